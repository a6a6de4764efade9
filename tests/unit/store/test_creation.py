"""store.creation: where a repository may be made, what there is at every moment of it, and two at once."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from builders import (
    MAIN,
    Clock,
    Far,
    History,
    Repeatable,
    Stepwise,
    check_whole,
    create,
    push,
    refs_of,
    request_id,
    upload,
)
from calls import raising
from changes import change, files
from interrupted import Interrupted, call_number
from memory_transport import MemoryTransport
from trips import Trips

from smartserver.errors import InvalidPath, NestedRepository
from smartserver.store.checkpoint import clean_log, make_checkpoint
from smartserver.store.creation import LOOKED_AT, Creation, holds_repository
from smartserver.store.format import LINE
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.base import Stat, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import NoSuchFile, TransportError, TransportFailed
from transports.local import LocalTransport

WHOLE = ["checkpoints", "format", "incoming", "log", "packs"]


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Transport:
    return MemoryTransport() if request.param == "memory" else LocalTransport(str(tmp_path))


def make(storage: Transport, path: str = "a", *, seed: int = 0) -> PackRepository:
    """An empty repository."""
    repository = PackRepository(storage, path, randomness=Repeatable(seed))
    change(repository, create)
    return repository


def push_meanwhile(storage: MemoryTransport, happens: Callable[[Transport], object]) -> None:
    """Push over a link; something happens before the first folder of the repository is made."""
    history = History()
    line = history.line(1)
    busy = Interrupted(storage, lambda call, path: call == "make_directory", lambda: happens(storage))
    push(PackRepository(Far(busy), "a/b"), history, line, {MAIN: line[0]})
    assert not busy.acts
    check_whole(PackRepository(storage, "a/b"), history)


def test_what_came_to_a_place_since_it_was_looked_at() -> None:
    """A folder of another tool is refused, and nothing is made in it; a repository, or half of one, is taken over."""

    def begin_git(store: Transport) -> None:
        for path in ("a/b", "a/b/objects"):
            store.make_directory(path)
        store.put("a/b/HEAD", [b"ref: refs/heads/main"])

    storage = MemoryTransport()
    storage.make_directory("a")
    with pytest.raises(InvalidPath, match="there is a git repository already"):
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
        PackRepository(storage, path).delete(b"d" * 16, 0, "user")
    storage.make_directory("a/d")
    storage.make_directory("a/d/incoming")
    storage.put("a/d/incoming/upload.pack", [b"half"])
    for path in ("a/e", "a/e/packs", "a/e/log"):
        storage.make_directory(path)
    storage.put("a/e/log/0000000001", [b"The format was to follow."])
    assert not holds_repository(storage, "a/b")
    assert make(storage).exists()
    assert holds_repository(storage, "a")
    with pytest.raises(NestedRepository):
        make(storage, "a/b/c")


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


NO_FORMAT = "{!r} files and no 'format'"
FOREIGN = {
    "a git repository": [["a/.git/HEAD"], ["a/HEAD", "a/objects/x"]],
    "a Mercurial repository": [["a/.hg/x"]],
    "a Bazaar repository": [["a/.bzr/x"]],
    "a store whose logs are in a database": [["a/smartserver-cluster"]],
}


@pytest.mark.parametrize(
    ("there", "found", "why", "inside"),
    [
        ([], "", None, None),
        (["a/objects/x"], "", "the folder holds 'objects/x', which belongs to no repository", None),
        (["a/b/c/notes"], "", "the folder holds 'b/c/notes', which belongs to no repository", None),
        (["a/format/letters"], "", "the folder holds 'format', which belongs to no repository", None),
        (["a"], "a file", "a file has this path", "'a' is a file"),
        *[
            (there, owner, f"there is {owner} already", f"'a' is {owner}: name a place outside it")
            for owner, places in FOREIGN.items()
            for there in places
        ],
        (["a/log/0000000001"], "", None, None),
        *[
            (
                [f"a/{name}/2"],
                f"what is left of one: {NO_FORMAT.format(name)}",
                f"the folder holds {NO_FORMAT.format(name)}: restore that file, or move the folder away",
                None,
            )
            for name in ("log", "packs")
        ],
    ],
)
def test_what_is_there_is_left_alone(
    storage: Transport, there: list[str], found: str, why: str | None, inside: str | None
) -> None:
    for path in there:
        for folder in itertools.accumulate(path.split("/")[:-1], "{}/{}".format):
            if not storage.exists(folder):
                storage.make_directory(folder)
        storage.put(path, [b"somebody's"])
    before = files(storage)
    assert PackRepository(storage, "a").describe_place() == found
    assert PackRepository(storage, "a/b").describe_place() == ("a file, 'a', above it" if found == "a file" else "")
    for path, refusal in (("a", why), ("a/x", inside), ("a/x/y", inside)):
        if refusal is not None:
            with pytest.raises(InvalidPath) as raised:
                make(storage, path)
            assert (raised.value.path, raised.value.why) == (path, refusal)
            assert files(storage) == before
            assert not storage.exists("a/incoming")


def test_a_link_that_leads_nowhere_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(InvalidPath, match="'a' is a link that leads nowhere"):
        make(LocalTransport(str(tmp_path)), "a/b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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

    class Watched(Stepwise):
        def before(self, call: str, path: str) -> None:
            look()

    push(PackRepository(Watched(storage), path, randomness=Repeatable()), history, line, {MAIN: line[2]})
    look()
    assert seen == [None, {MAIN: line[2]}]
    check_whole(PackRepository(storage, path), history)
    assert storage.list_directory(f"{path}/incoming") == []


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

        watched = Interrupted(storage, call_number(at), second)
        push(PackRepository(watched, "a/b", randomness=Repeatable()), history, ours, {MAIN: ours[1]})
        over = bool(watched.acts)
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


DAYS = 3 * 24 * 3600.0


def test_a_repository_that_lost_its_format_is_not_replaced() -> None:
    clock = Clock()
    storage, history = MemoryTransport(clock=clock), History()
    repository = PackRepository(storage, "project", clock=clock, randomness=Repeatable())
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    storage.delete("project/format")
    left = files(storage, "project")
    other = PackRepository(storage, "project", clock=clock, randomness=Repeatable(1))
    clock.now += DAYS
    with pytest.raises(InvalidPath, match="'packs' files and no 'format': restore that file"):
        push(other, history, line[:1], {MAIN: line[0]})
    assert other.collect_garbage_files() == 0
    assert files(storage, "project") == left
    storage.put("project/format", [LINE])
    assert refs_of(PackRepository(storage, "project")) == {MAIN: line[1]}
    assert other.verify().problems == ()


class Stopped(Exception):
    """The moment at which the power goes."""


def test_a_creation_that_failed_is_in_nobodys_way() -> None:
    """Its place is no repository: there may be others below, and then it can be made no more."""
    history, storage = History(), MemoryTransport()
    line = history.line(2)
    busy = Interrupted(storage, lambda *call: call == ("sync_directory", "team/packs"), raising(Stopped()))
    with pytest.raises(Stopped):
        push(PackRepository(busy, "team"), history, line)
    assert storage.exists("team/format")
    push(PackRepository(storage, "team/project", randomness=Repeatable(3)), history, line, {MAIN: line[1]})
    with pytest.raises(InvalidPath, match="a repository is below it at 'project'"):
        push(PackRepository(storage, "team", randomness=Repeatable(4)), history, line, {MAIN: line[1]})


@pytest.mark.parametrize(
    ("call", "path"), [("list_directory", "a"), ("sync_directory", "a"), ("link", "log/0000000002")]
)
def test_one_that_is_given_up_takes_nothing_from_another(call: str, path: str) -> None:
    """One has a body in quarantine and is given up at any moment of another's that has none."""
    history, storage = History(), MemoryTransport()
    line = history.line(2)
    given_up = upload(PackRepository(storage, "a", randomness=Repeatable()), history.body(line), 2)
    busy = Interrupted(storage, lambda name, at: name == call and at.endswith(path), given_up.abandon)
    assert change(PackRepository(busy, "a", randomness=Repeatable(4)), create).changed
    assert not busy.acts
    assert storage.list_directory("a/packs") == storage.list_directory("a/incoming") == []
    push(PackRepository(storage, "a", randomness=Repeatable(5)), history, line, {MAIN: line[1]})


OUTER = "a"


def made(storage: Transport, path: str, history: History, seed: int = 0) -> bool:
    """Tell whether a creation succeeds."""
    line = history.line(1, None, path)
    repository = PackRepository(storage, path, randomness=Repeatable(seed))
    with contextlib.suppress(InvalidPath, NestedRepository):
        push(repository, history, line, {MAIN: line[0]})
        return True
    return False


def live(storage: Transport, path: str) -> bool:
    with contextlib.suppress(TransportError):
        return PackRepository(storage, path).begin().exists
    return False


def deleted(storage: Transport, path: str) -> None:
    """Leave a deleted repository at a place."""
    assert made(storage, path, History(), 9)
    PackRepository(storage, path, randomness=Repeatable(8)).delete(b"", 0, "user")


def half_made(storage: Transport) -> None:
    """Leave a place without a repository, and an upload that was cut short, at the inner place."""
    Creation(storage, "a/b", Repeatable(7), time.time).perform([])
    storage.put("a/b/incoming/upload.pack", [b"half"])


BEFORE: dict[str, Callable[[Transport], object]] = {
    "nothing": lambda storage: None,
    "an empty folder": lambda storage: storage.make_directory(OUTER),
    "a deleted one": partial(deleted, path=OUTER),
    "a deleted one inside": partial(deleted, path="a/b"),
    "a half-made one inside": half_made,
}
CASES = [
    ("nothing", "a/b", True, False),
    ("a deleted one", "a/b", False, False),
    ("a deleted one inside", "a/b", False, False),
    ("a deleted one inside", "a/b/c", False, False),
    ("a half-made one inside", "a/b", True, False),
    pytest.param("a deleted one inside", "a/b", True, True, marks=pytest.mark.long),
    pytest.param("nothing", "a/b/c", True, False, marks=pytest.mark.long),
    pytest.param("an empty folder", "a/b", True, False, marks=pytest.mark.long),
    pytest.param("nothing", "a/b", False, True, marks=pytest.mark.long),
]


@pytest.mark.parametrize("outer_first", [True, False], ids=["outer first", "inner first"])
@pytest.mark.parametrize(("before", "inner", "links", "far"), CASES)
def test_one_of_two_is_refused_at_any_moment(
    before: str, inner: str, links: bool, far: bool, outer_first: bool
) -> None:
    """The whole second creation comes before each call of the first. `far`: the first works behind a link."""
    one, other = (OUTER, inner) if outer_first else (inner, OUTER)
    for at in itertools.count(1):
        storage, history = MemoryTransport(links=links), History()
        BEFORE[before](storage)
        came: list[bool] = []

        def second(storage: Transport = storage, history: History = history, came: list[bool] = came) -> None:
            came.append(made(storage, other, history, 5))

        watched = Interrupted(storage, call_number(at), second)
        first = made(Far(watched) if far else watched, one, history)
        found = [live(storage, OUTER), live(storage, inner)]
        where = f"before call {at}"
        assert sum(found) == 1, where
        assert sorted([first, *came]) == ([False, True] if came else [True]), where
        check_whole(PackRepository(storage, OUTER if found[0] else inner), history)
        if watched.acts:
            break
    assert at > 20


def test_a_change_that_turns_into_a_creation_looks_below() -> None:
    """It was planned on the repository that is deleted meanwhile, and one is made below."""
    storage, history = MemoryTransport(), History()
    assert made(storage, OUTER, history, 1)

    def meanwhile() -> None:
        PackRepository(storage, OUTER, randomness=Repeatable(2)).delete(request_id(), 0, "user")
        assert made(storage, "a/b", history, 3)

    def recreate(transaction: Transaction) -> None:
        create(transaction)
        transaction.set_setting("description", b"new")

    busy = Interrupted(storage, lambda call, path: call == "link" and path.startswith("a/log/"), meanwhile)
    repository = PackRepository(busy, OUTER, randomness=Repeatable(4))
    with pytest.raises(InvalidPath, match="a repository is below it at 'b'"):
        change(repository, recreate)
    assert [live(storage, OUTER), live(storage, "a/b")] == [False, True]


@pytest.mark.parametrize("far", [False, True])
def test_one_that_was_stopped_for_days_follows_what_came_meanwhile(far: bool) -> None:
    """The first records of the other are deleted by then, so their numbers are free again."""
    clock, history = Clock(), History()
    storage = MemoryTransport(clock=clock)
    storage.make_directory(OUTER)

    def meanwhile() -> None:
        other, last = PackRepository(storage, OUTER, randomness=Repeatable(2), clock=clock), None
        for number in range(30):
            (last,) = history.line(1, last, f"{number}")
            push(other, history, [last], {MAIN: last})
            clock.now += 3600
            head = other.log.look()
            other.log.checkpointed(make_checkpoint(other.folder, head.state, other.randomness))
            clean_log(other.folder, other.randomness)

    watched = Interrupted(storage, lambda call, path: call == "make_directory" and path.startswith("a/"), meanwhile)
    stopped = PackRepository(Far(watched) if far else watched, OUTER, randomness=Repeatable(4), clock=clock)
    (own,) = history.line(1, None, "own")
    push(stopped, history, [own], {b"refs/heads/own": own})
    assert not storage.exists("a/log/0000000002")
    assert set(refs_of(PackRepository(storage, OUTER))) == {MAIN, b"refs/heads/own"}
