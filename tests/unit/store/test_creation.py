"""store.creation: where a repository may be made, and what there is at every moment of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from builders import MAIN, History, Repeatable, Stepwise, check_whole, create, push, refs_of, request_id
from faulty_transport import FaultyTransport
from memory_transport import MemoryTransport
from trips import Trips

from smartserver.errors import InvalidPath, NestedRepository, NoSuchRepository
from smartserver.store.creation import LOOKED_AT
from smartserver.store.format import LINE
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.base import Capability, Stat, Step, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import FileExists, NoSuchFile, TransportError, TransportFailed
from transports.local import LocalTransport
from transports.steps import MakeDirectory

WHOLE = ["checkpoints", "format", "incoming", "log", "packs"]


def make(storage: Transport, path: str = "a", *, seed: int = 0) -> PackRepository:
    """An empty repository."""
    repository = PackRepository(storage, path, randomness=Repeatable(seed))

    def plan(transaction: Transaction) -> bytes:
        create(transaction)
        return b""

    repository.commit(request_id(), 0, "user", plan)
    return repository


@pytest.mark.parametrize("path", ["", "project", "group/sub/project"])
def test_a_repository_is_made_with_everything_above_it(storage: Transport, path: str) -> None:
    with pytest.raises(NoSuchRepository):
        PackRepository(storage, path).snapshot()
    made = make(storage, path)
    assert made.folder.list_directory("") == WHOLE
    assert made.folder.get("format") == LINE
    assert PackRepository(storage, path).snapshot().state.hash == made.snapshot().state.hash


class Meanwhile(PassingTransport):
    """A store behind a link, where something happens before the first folder of a repository is made."""

    def __init__(self, inner: Transport, happens: Callable[[Transport], object]) -> None:
        super().__init__(inner)
        self.capabilities = Capability.ROUND_TRIPS
        self._happens = [happens]

    def wrap(self, inner: Transport, prefix: str) -> Meanwhile:
        made = Meanwhile(inner, lambda _: None)
        made.prefix, made._happens = prefix, self._happens
        return made

    def perform(self, steps: Sequence[Step]) -> None:
        if self._happens and any(isinstance(step, MakeDirectory) for step in steps):
            self._happens.pop()(self.inner)
        self.inner.perform(steps)


def push_meanwhile(storage: MemoryTransport, happens: Callable[[Transport], object]) -> None:
    history = History()
    line = history.line(1)
    push(PackRepository(Meanwhile(storage, happens), "a/b"), history, line, {MAIN: line[0]})
    check_whole(PackRepository(storage, "a/b"), history)


def test_what_came_to_a_place_since_it_was_looked_at() -> None:
    """A folder of another tool is refused, and nothing is made in it; a repository, or half of one, is taken over."""

    def begin_git(store: Transport) -> None:
        for path in ("a/b", "a/b/objects"):
            store.make_directory(path)
        store.put("a/b/HEAD", [b"ref: refs/heads/main"])

    storage = MemoryTransport()
    storage.make_directory("a")
    with pytest.raises(InvalidPath, match="a git repository is there"):
        push_meanwhile(storage, begin_git)
    assert storage.list_directory("a/b") == ["HEAD", "objects"]
    for happens in (lambda store: make(store, "a/b"), lambda store: store.make_directory("a/b")):
        storage = MemoryTransport()
        storage.make_directory("a")
        push_meanwhile(storage, happens)


def test_a_folder_above_that_went_away_since_it_was_looked_at() -> None:
    storage = MemoryTransport()
    storage.make_directory("a")
    push_meanwhile(storage, lambda store: store.remove_directory("a"))


def test_a_second_creation_sees_the_first(storage: Transport) -> None:
    first = make(storage)
    assert make(storage, seed=1).snapshot().state.hash == first.snapshot().state.hash


def test_no_repository_inside_another(storage: Transport) -> None:
    make(storage)
    with pytest.raises(NestedRepository) as raised:
        make(storage, "a/packs/b")
    assert (raised.value.path, raised.value.inside) == ("a/packs/b", "a")
    assert storage.list_directory("a") == WHOLE


def test_no_repository_above_another(storage: Transport) -> None:
    make(storage, "a/b/c")
    for above, inner in (("a", "b/c"), ("a/b", "c")):
        with pytest.raises(InvalidPath, match=f"a repository is below it at '{inner}': none can be made above that"):
            make(storage, above)
    for path in ("d", "d/x", *[f"d/x/{number:03}" for number in range(LOOKED_AT)]):
        storage.make_directory(path)
    with pytest.raises(InvalidPath, match="more than 100 folders are below it"):
        make(storage, "d")


def test_one_may_be_made_above_what_is_left_of_others(storage: Transport) -> None:
    """A deleted one, and one that is deleted below that; an upload that was cut short; folders with nothing in them."""
    for path in ("a/b", "a/b/c"):
        make(storage, path)
        PackRepository(storage, path).delete(request_id(), 0, "user")
    storage.make_directory("a/d")
    storage.make_directory("a/d/incoming")
    storage.put("a/d/incoming/upload.pack", [b"half"])
    for path in ("a/e", "a/e/packs", "a/e/log"):
        storage.make_directory(path)
    storage.put("a/e/log/0000000001", [b"The format was to follow."])
    assert make(storage).exists()
    with pytest.raises(NestedRepository):
        make(storage, "a/b/c")


def test_a_file_below_is_in_the_way(storage: Transport) -> None:
    for path in ("a", "a/b", "a/b/c"):
        storage.make_directory(path)
    storage.put("a/b/c/notes", [b"words"])
    with pytest.raises(InvalidPath, match="the folder holds 'b/c/notes', which belongs to no repository"):
        make(storage)


@pytest.mark.parametrize("folders", [["log"], ["format"], ["format", "log"], []], ids=" ".join)
def test_what_somebody_called_as_we_do_stops_nothing(storage: Transport, folders: list[str]) -> None:
    for above in ("", "a/", "a/b/"):
        if above:
            storage.make_directory(above.rstrip("/"))
        for name in ("format", "log"):
            if name in folders:
                storage.make_directory(above + name)
            else:
                storage.put(above + name, [b"hi\n"])
    repository = PackRepository(storage, "a/b/c")
    assert not repository.exists()
    assert repository.describe_place() == ""
    push(repository, History(), [])
    assert repository.exists()


def test_a_folder_called_format_in_the_place_is_left_alone(storage: Transport) -> None:
    for path in ("a", "a/format", "a/format/letters"):
        storage.make_directory(path)
    assert PackRepository(storage, "a").describe_place() == ""
    with pytest.raises(InvalidPath, match="the folder holds 'format', which belongs to no repository"):
        make(storage)
    assert (storage.list_directory("a"), storage.list_directory("a/format")) == (["format"], ["letters"])


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (".git", "a git repository"),
        (".hg", "a Mercurial"),
        (".bzr", "a Bazaar"),
        ("smartserver-cluster", "a store whose logs are in a database"),
    ],
)
def test_another_tools_repository_is_left_alone(storage: Transport, name: str, what: str) -> None:
    storage.make_directory("a")
    storage.make_directory(f"a/{name}")
    with pytest.raises(InvalidPath, match=what):
        make(storage)
    for inside in ("a/b", "a/b/c", f"a/{name}/b"):
        with pytest.raises(InvalidPath, match=f"'a' is {what}.*: nothing is made inside it"):
            make(storage, inside)
    assert storage.list_directory("a") == [name]


def test_a_file_in_the_place_of_a_repository_is_left_alone(storage: Transport) -> None:
    storage.put("file", [b"somebody's"])
    for path, why in [("file", "a file is there"), ("file/a", "'file' is a file"), ("file/a/b", "'file' is a file")]:
        with pytest.raises(InvalidPath) as raised:
            make(storage, path)
        assert (raised.value.path, raised.value.why) == (path, why)
    assert storage.list_directory("") == ["file"]
    assert storage.get("file") == b"somebody's"


def test_a_link_that_leads_nowhere_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(InvalidPath, match="'a' is a link that leads nowhere"):
        make(LocalTransport(str(tmp_path)), "a/b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], ""),
        (["a/notes.txt"], ""),
        (["a"], "a file"),
        (["a/.git/HEAD"], "a git repository"),
        (["a/HEAD", "a/objects/x"], "a git repository"),
        (["a/log/0000000001"], ""),
        (["a/log/0000000002"], "what is left of one: 'log' files and no 'format'"),
        (["a/packs/1.pack"], "what is left of one: 'packs' files and no 'format'"),
    ],
)
def test_what_is_there_instead_of_a_repository(storage: Transport, files: list[str], found: str) -> None:
    for file in files:
        parts = file.split("/")
        for depth in range(1, len(parts)):
            with contextlib.suppress(FileExists):
                storage.make_directory("/".join(parts[:depth]))
        storage.put(file, [b""])
    assert PackRepository(storage, "a").describe_place() == found
    below = PackRepository(storage, "a/b").describe_place()
    assert below == ("a file, 'a', above it" if found == "a file" else "")


def test_what_lies_there_is_asked_for_in_one_trip(storage: Transport) -> None:
    storage.make_directory("a")
    store = Trips(storage)
    assert PackRepository(store, "a/b").describe_place() == ""
    assert len(store.log) == 1


def test_a_store_that_fails_knows_of_nothing_instead() -> None:
    class Sick(PassingTransport):
        def stat(self, path: str) -> Stat:
            raise TransportFailed(path, "input/output error")

    assert PackRepository(Sick(MemoryTransport()), "a").describe_place() == ""


# -- every moment of it


def test_the_write_order_of_a_creation() -> None:
    """`format` is made last of the place, and all of that is durable before there is anything that a record names."""
    faulty = FaultyTransport(MemoryTransport())
    push(PackRepository(faulty, "deep/a", randomness=Repeatable()), History(), [])
    calls = []
    for call in faulty.log:
        what, _, path = call.partition(" ")
        path = path.removeprefix("deep/a").lstrip("/") or "."
        calls.append(f"{what} incoming" if path.startswith("incoming/") else f"{what} {path}")
    written = ["create incoming", "write incoming", "sync incoming"]
    assert calls == [
        *["make_directory deep", "make_directory ."],
        *[f"make_directory {name}" for name in ("packs", "incoming", "log", "checkpoints")],
        *[*written, *written],
        *["link log/0000000001", "delete incoming", "sync_directory log"],
        *["link format", "delete incoming"],
        *["sync_directory .", "sync_directory deep", "sync_directory ."],
        *[*written, "link log/0000000002", "delete incoming", "sync_directory log"],
    ]


class Watched(Stepwise):
    """Does something before each call, and not while that is done."""

    def __init__(self, inner: Transport, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._act = [act]

    def before(self, call: str, path: str) -> None:
        if self._act:
            act = self._act.pop()
            act()
            self._act.append(act)


@pytest.mark.parametrize("path", ["project", "group/sub/project"])
def test_an_observer_sees_nothing_or_all_of_it(path: str) -> None:
    storage, history = MemoryTransport(), History()
    line = history.line(3)
    seen: list[Mapping[bytes, bytes] | None] = []

    def look() -> None:
        other = PackRepository(storage, path)
        found = refs_of(other) if other.exists() else None
        assert other.describe_place() == ""
        if not seen or seen[-1] != found:
            seen.append(found)

    push(PackRepository(Watched(storage, look), path, randomness=Repeatable()), history, line, {MAIN: line[2]})
    look()
    assert seen == [None, {MAIN: line[2]}]
    check_whole(PackRepository(storage, path), history)
    assert storage.list_directory(f"{path}/incoming") == []


class At:
    """Does something when it is called for the n-th time."""

    def __init__(self, left: int, act: Callable[[], object]) -> None:
        self.left, self._act = left, act

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._act()


@pytest.mark.parametrize("links", [True, False])
def test_of_two_that_create_at_any_moment_both_push(links: bool) -> None:
    """The second comes before each call of the first: what it brought is kept, and the first goes on top of it."""
    at, over = 0, False
    while not over:
        at += 1
        storage, history = MemoryTransport(links=links), History()
        ours, theirs = history.line(2, None, "ours"), history.line(2, None, "theirs")
        other = PackRepository(storage, "a/b", randomness=Repeatable(5))

        def second(other: PackRepository = other, history: History = history, theirs: list[bytes] = theirs) -> None:
            push(other, history, theirs, {b"refs/heads/theirs": theirs[1]})

        look = At(at, second)
        push(PackRepository(Watched(storage, look), "a/b", randomness=Repeatable()), history, ours, {MAIN: ours[1]})
        over = look.left > 0
        refs = refs_of(PackRepository(storage, "a/b"))
        assert refs == {MAIN: ours[1]} | ({} if over else {b"refs/heads/theirs": theirs[1]}), at
        check_whole(PackRepository(storage, "a/b"), history)
        assert storage.list_directory("a/b/incoming") == [], at
    assert at > 20


def test_another_may_look_slowly_at_any_moment() -> None:
    """It is never told that the folder holds what is left of a repository, though one is made between two looks."""
    storage, history = MemoryTransport(), History()
    line = history.line(1)

    class Slow(PassingTransport):
        def list_directory(self, path: str) -> list[str]:
            found = self.inner.list_directory(path)
            if not storage.exists("a/format"):
                push(PackRepository(storage, "a"), history, line, {MAIN: line[0]})
            return found

        def stat(self, path: str) -> Stat:
            try:
                return self.inner.stat(path)
            except (NoSuchFile, TransportError):
                if not storage.exists("a/format"):
                    push(PackRepository(storage, "a"), history, line, {MAIN: line[0]})
                raise

    storage.make_directory("a")
    assert PackRepository(Slow(storage), "a").describe_place() == ""
    push(PackRepository(Slow(storage), "a", randomness=Repeatable()), history, [])
    assert refs_of(PackRepository(storage, "a")) == {MAIN: line[0]}
