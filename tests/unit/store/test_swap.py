from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
from root_cases import KINDS, NOW, entry, make, new_root, pack, push, randomness, tip

from smartserver.errors import (
    CorruptFile,
    InvalidPath,
    NestedRepository,
    NoSuchRepository,
    OutcomeUnknown,
    Unsupported,
)
from smartserver.records.model import RefValue
from smartserver.store.document import Root, empty_root, encode_root
from smartserver.store.root import RootView, next_root, tombstone
from smartserver.store.swap import LOCK_WAIT, RootFile, RootMoved
from transports.base import Capability, Stat, Transport
from transports.decorators.faulty import FaultMode, FaultyTransport
from transports.decorators.passing import PassingTransport
from transports.errors import FileExists, Locked, NoSuchFile, PermissionDenied, TransportError, TransportFailed
from transports.local import LocalTransport
from transports.memory import Aftermath, MemoryTransport

MAIN = b"refs/heads/main"
MODES: list[FaultMode] = ["fail", "tear", "die", "lose"]


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: object) -> Transport:
    return MemoryTransport() if request.param == "memory" else LocalTransport(str(tmp_path))


# -- creation


@pytest.mark.parametrize("path", ["", "project", "group/sub/project"])
def test_a_repository_is_made_with_everything_above_it(storage: Transport, path: str) -> None:
    file = RootFile(storage, path)
    with pytest.raises(NoSuchRepository):
        file.read()
    assert file.create(*new_root(file.folder, {MAIN: tip(1)}))
    folder = storage.child(path) if path else storage
    assert folder.list_directory("") == ["format", "incoming", "lock", "log", "packs", "root", "tables"]
    assert folder.get("format") == b"smartserver repository 1 swap=file\n"
    assert RootFile(storage, path).read() == file.read()
    assert file.read().version == 1


def test_a_second_creation_sees_the_first(storage: Transport) -> None:
    make(storage, {MAIN: tip(1)}, "a")
    other = RootFile(storage, "a")
    assert not other.create(*new_root(other.folder, {MAIN: tip(2)}, incarnation=b"j" * 16))
    assert other.read().incarnation == b"i" * 16


def test_of_two_that_create_at_once_one_wins(tmp_path: object) -> None:
    for round_ in range(10):
        won: list[bytes] = []
        barrier = threading.Barrier(4)

        def create(incarnation: bytes, path: str, won: list[bytes], barrier: threading.Barrier) -> None:
            file = RootFile(LocalTransport(str(tmp_path)), path)
            root, files = new_root(file.folder, {MAIN: tip(1)}, incarnation=incarnation)
            barrier.wait()
            if file.create(root, files):
                won.append(incarnation)

        path = f"deep/{round_}"
        threads = [threading.Thread(target=create, args=(bytes([n]) * 16, path, won, barrier)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert RootFile(LocalTransport(str(tmp_path)), path).read().incarnation == won[0]


def test_half_made_leftovers_are_taken_over(storage: Transport) -> None:
    storage.make_directory("a")
    storage.make_directory("a/packs")
    storage.put("a/format", [b"smartserver repository 1 swap=file\n"])
    storage.put("a/root.0011223344556677", [b"torn"])
    with pytest.raises(NoSuchRepository):
        RootFile(storage, "a").read()
    file = make(storage, {MAIN: tip(1)}, "a")
    assert file.sweep() == ["root.0011223344556677"]
    assert file.read().version == 1


def test_no_repository_inside_another(storage: Transport) -> None:
    make(storage, {}, "a")
    with pytest.raises(NestedRepository) as raised:
        make(storage, {}, "a/packs/b")
    assert (raised.value.path, raised.value.inside) == ("a/packs/b", "a")
    make(storage, {}, "b/c")
    with pytest.raises(InvalidPath, match="the folder holds 'c'"):
        make(storage, {}, "b")


@pytest.mark.parametrize(("name", "what"), [(".git", "a git repository"), (".hg", "a Mercurial"), (".bzr", "a Bazaar")])
def test_another_tools_repository_is_left_alone(storage: Transport, name: str, what: str) -> None:
    storage.make_directory("a")
    storage.make_directory(f"a/{name}")
    with pytest.raises(InvalidPath, match=what):
        make(storage, {}, "a")
    for inside in ("a/b", "a/b/c", f"a/{name}/b"):
        with pytest.raises(InvalidPath, match=f"'a' is {what}.*: nothing is made inside it"):
            make(storage, {}, inside)
    assert storage.list_directory("a") == [name]
    with pytest.raises(NoSuchRepository):
        RootFile(storage, "a").read()


def test_a_file_in_the_place_of_a_repository_is_left_alone(storage: Transport) -> None:
    storage.put("file", [b"somebody's"])
    for path, why in [("file", "a file is there"), ("file/a", "'file' is a file"), ("file/a/b", "'file' is a file")]:
        with pytest.raises(InvalidPath) as raised:
            make(storage, {}, path)
        assert (raised.value.path, raised.value.why) == (path, why)
    assert storage.list_directory("") == ["file"]
    assert storage.get("file") == b"somebody's"


def test_a_link_that_leads_nowhere_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(InvalidPath, match="'a' is a link that leads nowhere"):
        make(LocalTransport(str(tmp_path)), {}, "a/b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], ""),
        (["a/notes.txt"], ""),
        (["a"], "a file"),
        (["a/.git/HEAD"], "a git repository"),
        (["a/HEAD", "a/objects/x"], "a git repository"),
        (["a/root"], "what is left of one: a root and no 'format'"),
        (["a/log/1"], "what is left of one: 'log' files and no 'root'"),
        (["a/packs/1.pack"], "what is left of one: 'packs' files and no 'root'"),
    ],
)
def test_what_is_there_instead_of_a_repository(storage: Transport, files: list[str], found: str) -> None:
    for file in files:
        parts = file.split("/")
        for depth in range(1, len(parts)):
            with contextlib.suppress(FileExists):
                storage.make_directory("/".join(parts[:depth]))
        storage.put(file, [b""])
    assert RootFile(storage, "a").instead() == found
    below = RootFile(storage, "a/b").instead()
    assert below == ("a file at 'a'" if found == "a file" else "")


def test_a_store_that_fails_knows_of_nothing_instead() -> None:
    class Sick(PassingTransport):
        def wrap(self, inner: Transport, prefix: str) -> Sick:
            return Sick(inner, prefix=prefix)

        def stat(self, path: str) -> Stat:
            raise TransportFailed(path, "input/output error")

    assert RootFile(Sick(MemoryTransport()), "a").instead() == ""


def test_a_store_without_locks_holds_no_new_repository() -> None:
    class Lockless(PassingTransport):
        def __init__(self, inner: Transport, prefix: str = "") -> None:
            super().__init__(inner, prefix=prefix)
            self.capabilities = Capability.NONE

        def wrap(self, inner: Transport, prefix: str) -> Lockless:
            return Lockless(inner, prefix=prefix)

    inner = MemoryTransport()
    with pytest.raises(Unsupported, match="without file locks"):
        make(Lockless(inner), {}, "a")
    assert inner.list_directory("") == []


# -- reading


def test_no_folder_no_format_no_root(storage: Transport) -> None:
    for path in ("absent", "absent/too"):
        with pytest.raises(NoSuchRepository) as raised:
            RootFile(storage, path).read()
        assert raised.value.path == path
    storage.make_directory("empty")
    storage.make_directory("rootless")
    storage.put("rootless/format", [b"smartserver repository 1 swap=file\n"])
    storage.make_directory("formatless")
    storage.put("formatless/root", [encode_root(new_root(storage, {})[0])])
    storage.put("file", [b"x"])
    for path in ("empty", "rootless", "formatless", "file"):
        with pytest.raises(NoSuchRepository):
            RootFile(storage, path).read()
        with pytest.raises(NoSuchRepository), RootFile(storage, path).swapping():
            pass
    assert storage.list_directory("empty") == []


def test_a_store_that_fails_does_not_mean_absent() -> None:
    class Sick(PassingTransport):
        def wrap(self, inner: Transport, prefix: str) -> Sick:
            return Sick(inner, prefix=prefix)

        def get(self, path: str) -> bytes:
            raise TransportFailed(path, "input/output error")

    inner = MemoryTransport()
    make(inner, {}, "a")
    with pytest.raises(TransportFailed, match="input/output"):
        RootFile(Sick(inner), "a").read()
    with pytest.raises(TransportFailed, match="input/output"):
        make(Sick(inner), {}, "a")


def test_a_damaged_root_is_neither_read_nor_replaced(storage: Transport) -> None:
    file = make(storage, {MAIN: tip(1)}, "a")
    content = bytearray(storage.get("a/root"))
    content[40] ^= 1
    storage.delete("a/root")
    storage.put("a/root", [bytes(content)])
    with pytest.raises(CorruptFile, match="root"):
        file.read()
    with pytest.raises(CorruptFile, match="root"):
        push(file, {MAIN: tip(2)}, 1)
    with pytest.raises(CorruptFile, match="root"):
        make(storage, {}, "a")
    assert storage.get("a/root") == bytes(content)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"5\n", "'5'"),
        (b"smartserver repository 1 swap=object\n", "swap=object"),
        (b"smartserver repository 1 swap=folder\n", "swap=folder"),
        (b"smartserver repository 2 swap=file\n", "version 2"),
    ],
)
def test_a_format_of_another_kind_is_named(storage: Transport, line: bytes, what: str) -> None:
    make(storage, {}, "a")
    storage.delete("a/format")
    storage.put("a/format", [line])
    attempts: list[Callable[[], object]] = [
        lambda: RootFile(storage, "a").read(),
        lambda: push(RootFile(storage, "a"), {MAIN: tip(2)}, 1),
        lambda: make(storage, {}, "a"),
    ]
    for attempt in attempts:
        with pytest.raises(Unsupported, match=what):
            attempt()


def test_unknown_features_are_refused_to_read_or_to_write(storage: Transport) -> None:
    file = make(storage, {}, "a")
    for feature in ("write_features", "read_features"):
        root = msgspec.structs.replace(file.read(), **{feature: ("new",)})
        storage.delete("a/root")
        storage.put("a/root", [encode_root(root)])
        with pytest.raises(Unsupported, match="'new'"):
            push(file, {MAIN: tip(2)}, 1)
        if feature == "write_features":
            assert file.read() == root
    with pytest.raises(Unsupported, match="'new'"):
        file.read()


# -- swapping


def test_a_swap_replaces_the_root_and_leaves_no_temporary(storage: Transport) -> None:
    file = make(storage, {MAIN: tip(1)}, "a")
    root = push(file, {MAIN: tip(2)}, 1)
    assert file.read() == root == RootFile(storage, "a").read()
    assert storage.list_directory("a") == ["format", "incoming", "lock", "log", "packs", "root", "tables"]


def test_each_of_many_writers_builds_on_the_last(tmp_path: object) -> None:
    storage = LocalTransport(str(tmp_path))
    make(storage, {}, "a")

    def write(first: int) -> None:
        file = RootFile(storage, "a")
        for number in range(first, first + 10):
            push(file, {b"ref %d" % number: tip(number)}, number)

    threads = [threading.Thread(target=write, args=(first,)) for first in (100, 200, 300, 400)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view = RootView(RootFile(storage, "a").read(), storage.child("a"))
    assert view.root.version == 41
    assert set(view.refs()) == {b"ref %d" % (first + n) for first in (100, 200, 300, 400) for n in range(10)}


def test_a_root_made_from_an_older_one_is_refused(storage: Transport) -> None:
    file = make(storage, {MAIN: tip(1)}, "a")
    stale, files = next_root(RootView(file.read(), file.folder), now=NOW, refs={MAIN: tip(7)}, log=entry(7))
    push(file, {MAIN: tip(2)}, 1)
    with file.swapping() as swap, pytest.raises(RootMoved, match=r"version 2 of 6969.* cannot follow version 2"):
        swap.replace(stale, files)
    again, _ = new_root(file.folder, {}, incarnation=b"j" * 16)
    with file.swapping() as swap, pytest.raises(RootMoved):
        swap.replace(again)
    with RootFile(storage, "b").swapping(create=True) as swap, pytest.raises(RootMoved, match="cannot follow none"):
        swap.replace(stale, files)
    assert RootView(file.read(), file.folder).ref(MAIN) == tip(2)


def test_two_swaps_under_one_lock(storage: Transport) -> None:
    file = make(storage, {MAIN: tip(1)}, "a")
    with file.swapping() as swap:
        for number in (2, 3):
            view = RootView(swap.current, file.folder)
            swap.replace(*next_root(view, now=NOW, refs={MAIN: tip(number)}, log=entry(number)))
    assert file.read().version == 3


def test_a_tombstone_and_a_creation_over_it(storage: Transport) -> None:
    file = make(storage, {MAIN: tip(1)}, "a")
    with file.swapping() as swap:
        swap.replace(*tombstone(RootView(swap.current, file.folder), now=NOW, log=entry(1)))
    grave = file.read()
    assert grave.deleted
    with file.swapping(create=True) as swap:
        assert swap.existing == grave
        view = RootView(empty_root(b"j" * 16, "hg", KINDS, now=NOW, over=grave), file.folder)
        swap.replace(*next_root(view, now=NOW, log=entry(2)))
    root = RootFile(storage, "a").read()
    assert (root.incarnation, root.version, root.vcs, root.deleted) == (b"j" * 16, 1, "hg", False)


def test_create_itself_replaces_a_tombstone_only(storage: Transport) -> None:
    file = make(storage, {MAIN: tip(1)}, "a")
    with file.swapping() as swap:
        swap.replace(*tombstone(RootView(swap.current, file.folder), now=NOW, log=entry(1)))
    assert file.create(*new_root(file.folder, {}, incarnation=b"j" * 16))
    assert not file.create(*new_root(file.folder, {}, incarnation=b"k" * 16))
    assert file.read().incarnation == b"j" * 16


def test_swapping_tells_that_there_is_no_repository(storage: Transport) -> None:
    with RootFile(storage, "a").swapping(create=True) as swap:
        assert swap.existing is None
        with pytest.raises(NoSuchRepository):
            _ = swap.current
    with pytest.raises(NoSuchRepository):
        RootFile(storage, "a").read()


def test_a_repository_removed_from_outside_is_gone() -> None:
    storage = MemoryTransport()
    file = make(storage, {}, "a")
    storage.rename("a", "elsewhere")
    with pytest.raises(NoSuchRepository):
        push(file, {MAIN: tip(2)}, 1)
    with pytest.raises(NoSuchRepository):
        file.read()
    assert make(storage, {}, "a").read().version == 1


class Refusing(PassingTransport):
    """Refuses one kind of call with one error."""

    def __init__(self, inner: Transport, call: str, error: TransportError, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self.call, self.error = call, error

    def wrap(self, inner: Transport, prefix: str) -> Refusing:
        return Refusing(inner, self.call, self.error, prefix)

    def rename(self, source: str, target: str) -> None:
        if self.call == "rename":
            raise self.error
        self.inner.rename(source, target)

    def sync_directory(self, path: str) -> None:
        if self.call == f"sync {path}":
            raise self.error
        self.inner.sync_directory(path)


def test_a_rename_that_is_refused_for_certain_changes_nothing() -> None:
    storage = MemoryTransport()
    make(storage, {MAIN: tip(1)}, "a")
    before = storage.get("a/root")
    for error in (PermissionDenied("a/root"), NoSuchFile("a/root")):
        with pytest.raises(type(error)):
            push(RootFile(Refusing(storage, "rename", error), "a"), many(1000), 1)
        assert storage.get("a/root") == before
        assert storage.list_directory("a/tables") == []
        assert not [name for name in storage.list_directory("a") if name.startswith("root.")]


@pytest.mark.parametrize("call", ["rename", "sync "])
def test_a_failure_at_or_after_the_rename_is_outcome_unknown(call: str) -> None:
    storage = MemoryTransport()
    file = make(storage, {MAIN: tip(1)}, "a")
    with pytest.raises(OutcomeUnknown, match="no more"):
        push(RootFile(Refusing(storage, call, TransportFailed("a", "no more")), "a"), many(1000), 1)
    assert storage.list_directory("a/tables") != []  # The root may name it: nothing is cleaned up.
    view = RootView(file.read(), file.folder)
    assert dict(view.refs()) == ({MAIN: tip(1)} if call == "rename" else {MAIN: tip(1), **many(1000)})


@pytest.mark.parametrize("call", ["sync tables", "sync log"])
def test_a_failure_before_the_rename_changes_nothing(call: str) -> None:
    storage = MemoryTransport()
    file = make(storage, {MAIN: tip(1)}, "a")
    before = storage.get("a/root")
    with pytest.raises(TransportFailed, match="no more"):
        push(RootFile(Refusing(storage, call, TransportFailed("a", "no more")), "a"), many(1000), 1)
    assert storage.get("a/root") == before
    assert storage.list_directory("a/tables") == storage.list_directory("a/log") == []
    push(file, many(1000), 1)


# -- every call fails once


def many(count: int) -> dict[bytes, RefValue | None]:
    return {b"refs/tags/%06d" % number: tip(number) for number in range(count)}


class Case:
    """A change to a repository: what is there before, and the change."""

    def before(self, storage: Transport) -> Root | None:
        return make(storage, {MAIN: tip(1)}, "deep/a").read()

    def change(self, storage: Transport) -> Root:
        raise NotImplementedError


class Creation(Case):
    def before(self, storage: Transport) -> Root | None:
        return None

    def change(self, storage: Transport) -> Root:
        return make(storage, {MAIN: tip(1)}, "deep/a").read()


class LargeCreation(Creation):
    """So many refs that they, and the log's entry, go to files."""

    def change(self, storage: Transport) -> Root:
        file = make(storage, many(800), "deep/a")
        assert len(file.folder.list_directory("log")) == len(file.folder.list_directory("tables")) == 1
        return file.read()


class Push(Case):
    def change(self, storage: Transport) -> Root:
        return push(RootFile(storage, "deep/a", randomness=randomness(3)), {MAIN: tip(2)}, 1)


class Fold(Case):
    """The table, the log and what they replace all go to files."""

    def before(self, storage: Transport) -> Root | None:
        file = make(storage, many(300), "deep/a")
        with file.swapping() as swap:
            view = RootView(swap.current, file.folder)
            swap.replace(*next_root(view, now=NOW, log=entry(50, b"x" * 20_000), randomness=randomness(9)))
        return file.read()

    def change(self, storage: Transport) -> Root:
        file = RootFile(storage, "deep/a", randomness=randomness(3))
        with file.swapping() as swap:
            view = RootView(swap.current, file.folder)
            refs: dict[bytes, RefValue | None] = {b"refs/heads/%06d" % number: tip(number) for number in range(1000)}
            root, files = next_root(view, now=NOW, refs=refs, packs=[pack(1)], log=entry(1), randomness=randomness(4))
            assert {path.partition("/")[0] for path, _ in files} == {"tables", "log"}
            swap.replace(root, files)
        return root


class Deletion(Case):
    def change(self, storage: Transport) -> Root:
        file = RootFile(storage, "deep/a", randomness=randomness(3))
        with file.swapping() as swap:
            root, files = tombstone(RootView(swap.current, file.folder), now=NOW, log=entry(1))
            swap.replace(root, files)
        return root


def found(storage: Transport) -> Root | None:
    """The root that is there, all of whose files are whole; None for that of a creation that was cut short."""
    file = RootFile(storage, "deep/a")
    try:
        root = file.read()
    except NoSuchRepository:
        return None
    if root.deleted and not root.log:
        return None
    assert RootView(root, file.folder).verify() == []
    return root


def works_on(storage: Transport) -> None:
    """Whatever was found, a repository is made where there is none, and pushed to."""
    file = RootFile(storage, "deep/a", randomness=randomness(77))
    if found(storage) is None:
        assert file.create(*new_root(file.folder, {}))
    if not file.read().deleted:
        push(file, {b"afterwards": tip(9)}, 99)
        assert RootView(file.read(), file.folder).ref(b"afterwards") == tip(9)
    file.sweep()
    assert file.folder.list_directory("") == ["format", "incoming", "lock", "log", "packs", "root", "tables"]


CASES = [Creation(), LargeCreation(), Push(), Fold(), Deletion()]
POWER: list[Aftermath | None] = [None, *Aftermath]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case).__name__)
def test_whatever_fails_the_root_is_before_or_after(case: Case, mode: FaultMode) -> None:
    fail_at, done = 0, False
    after: Root | None = None
    while not done:
        fail_at += 1
        for power in POWER:
            for seed in (1, 2, 3) if power in (Aftermath.SOME, Aftermath.TORN) else (0,):
                storage = MemoryTransport(clock=lambda: NOW)
                before = case.before(storage)
                faulty = FaultyTransport(storage, fail_at=fail_at, mode=mode)
                error: Exception | None = None
                try:
                    acknowledged = case.change(faulty)
                except (TransportError, OutcomeUnknown) as wrong:
                    error = wrong
                else:
                    after = after or acknowledged
                done = faulty.calls < fail_at
                context = (mode, fail_at, faulty.log, power, seed, error)
                survivor = storage if power is None else storage.crash(power, seed)
                now = found(survivor)
                if error is None:
                    assert now is not None, context
                    assert now.version == (before.version if before is not None else 0) + 1, context
                    assert now.vcs == "git sha1", context
                else:
                    assert now == before or (now is not None and now.version == (before.version if before else 0) + 1)
                    if not isinstance(error, OutcomeUnknown):
                        assert now == before, context
                works_on(survivor)
    assert after is not None
    assert fail_at > 5


def test_the_write_order_of_a_swap() -> None:
    storage = MemoryTransport()
    Fold().before(storage)
    faulty = FaultyTransport(storage)
    Fold().change(faulty)
    calls = [call.replace("deep/a/", "").replace("deep/a", ".") for call in faulty.log]
    kinds = [call.split(".")[0] if "root." in call else "/".join(call.split("/")[:1]) for call in calls]
    assert kinds == [
        "lock lock",
        *["create tables", "write tables", "sync tables"],
        *["create log", "write log", "sync log"],
        "sync_directory log",
        "sync_directory tables",
        *["create root", "write root", "sync root"],
        "rename root",
        "sync_directory .",
    ]


def test_the_write_order_of_a_creation() -> None:
    faulty = FaultyTransport(MemoryTransport())
    make(faulty, {}, "deep/a")
    calls = [call.replace("deep/a/", "") for call in faulty.log]
    assert [call.split(".")[0] for call in calls] == [
        "make_directory deep",
        "make_directory deep/a",
        *[f"make_directory {name}" for name in ("packs", "incoming", "tables", "log")],
        *["sync_directory deep/a", "sync_directory deep", "sync_directory "],
        "lock lock",
        *["create format", "write format", "sync format", "rename format", "sync_directory deep/a"],
        *["create root", "write root", "sync root", "rename root", "sync_directory deep/a"],
    ]


def test_the_write_order_of_a_creation_with_files() -> None:
    """The place is held before the files are there, by a tombstone that names none."""
    inner = MemoryTransport()
    faulty = FaultyTransport(inner)
    make(faulty, many(800), "deep/a")
    calls = [call.replace("deep/a/", "").replace("deep/a", ".") for call in faulty.log]
    kinds = [call.split(".")[0] if "root." in call else call.split("/")[0] for call in calls]
    swap = ["create root", "write root", "sync root", "rename root", "sync_directory ."]
    files = [f"{call} {place}" for place in ("tables", "log") for call in ("create", "write", "sync")]
    assert kinds[-18:] == [*swap, *files, "sync_directory log", "sync_directory tables", *swap]
    cut = MemoryTransport()
    renames = [number for number, call in enumerate(faulty.log, 1) if call == "rename deep/a/root"]
    with pytest.raises(OutcomeUnknown):
        make(FaultyTransport(cut, fail_at=renames[1], mode="die"), many(800), "deep/a")
    held = RootFile(cut, "deep/a").read()
    assert (held.deleted, held.version, held.log_since, held.packs, held.log_files) == (True, 1, 0, (), ())
    assert held.incarnation != b"i" * 16
    assert all(table.file is None for table in held.tables.values())


def test_another_may_create_at_any_moment_of_a_creation() -> None:
    """It is never told that the folder holds what is left of a repository."""
    inner = MemoryTransport()
    looked: list[str] = []

    class Watched(PassingTransport):
        def wrap(self, inner: Transport, prefix: str) -> Watched:
            return Watched(inner, prefix=prefix)

        def sync_directory(self, path: str) -> None:
            self.inner.sync_directory(path)
            looked.append(self.inner.describe(path))
            RootFile(inner, "a").prepare()

    make(Watched(inner), many(800), "a")
    assert len(looked) > 5

    class Slow(PassingTransport):
        """Between two of its looks the other makes the whole repository."""

        def __init__(self, inner: Transport, prefix: str = "") -> None:
            super().__init__(inner, prefix=prefix)

        def wrap(self, inner: Transport, prefix: str) -> Slow:
            return Slow(inner, prefix)

        def exists(self, path: str) -> bool:
            found = self.inner.exists(path)
            if path == "root" and not found:
                make(other, many(800), "a")
            return found

        def list_directory(self, path: str) -> list[str]:
            found = self.inner.list_directory(path)
            if path == "log" and not other.exists("a/root"):
                make(other, many(800), "a")
            return found

    other = MemoryTransport()
    RootFile(Slow(other), "a").prepare()
    assert other.exists("a/root")


# -- a writer that does not let go


class Waits(PassingTransport):
    """Notes how long each lock would be waited for; with a clock that stands, nobody is."""

    def __init__(self, inner: Transport, *, prefix: str = "", waits: list[float] | None = None) -> None:
        super().__init__(inner, prefix=prefix)
        self.waits: list[float] = [] if waits is None else waits

    def wrap(self, inner: Transport, prefix: str) -> Waits:
        return Waits(inner, prefix=prefix, waits=self.waits)

    def lock(self, path: str, wait: float | None = None) -> AbstractContextManager[None]:
        assert wait is not None
        self.waits.append(wait)
        return self.inner.lock(path, 0)


def test_a_lock_that_is_held_is_given_up(storage: Transport) -> None:
    """Once after its time; then at once, until somebody has it or that time has passed again."""
    make(storage, {MAIN: tip(1)}, "project")
    watched = Waits(storage)
    file = RootFile(watched, "project")
    with storage.lock("project/lock"):
        for _ in range(2):
            with pytest.raises(Locked) as raised, file.swapping():
                raise AssertionError("held a lock that another holds")
            assert (raised.value.path, raised.value.seconds) == ("project/lock", 30)
            with pytest.raises(Locked):
                file.sweep()
    first, *rest = watched.waits
    assert 0 < first <= LOCK_WAIT
    assert rest == [0.0] * 3
    with file.swapping():
        pass
    with file.swapping():
        pass
    assert watched.waits[4] == 0.0
    assert 0 < watched.waits[5] <= LOCK_WAIT


def test_threads_of_a_process_wait_for_each_other_no_longer(
    storage: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(storage, {MAIN: tip(1)}, "project")
    file = RootFile(storage, "project")

    def try_it() -> None:
        with file.swapping():
            raise AssertionError("held a lock that another thread holds")

    with ThreadPoolExecutor(1) as threads, file.swapping():
        monkeypatch.setattr("smartserver.store.swap.LOCK_WAIT", 0.01)
        with pytest.raises(Locked, match="project/lock"):
            threads.submit(try_it).result()
    with file.swapping():
        pass
