from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import msgspec
import pytest
from builders import MAIN
from copies import freeze, thaw
from faulty_transport import FaultMode, FaultyTransport
from root_cases import KINDS, NOW, create, entry, make, many, new_root, pack, push, randomness, tip

from smartserver.errors import (
    CorruptFile,
    NoSuchRepository,
    OutcomeUnknown,
    Unsupported,
)
from smartserver.records.model import RefValue
from smartserver.store.creation import Creation
from smartserver.store.document import Root, empty_root, encode_root
from smartserver.store.root import RootView, next_root, tombstone
from smartserver.store.swap import RootFile, RootMoved
from transports.base import Transport
from transports.decorators.passing import PassingTransport
from transports.errors import NoSuchFile, PermissionDenied, TransportError, TransportFailed
from transports.local import LocalTransport
from transports.memory import Aftermath, MemoryTransport

MODES: list[FaultMode] = ["fail", "tear", "die", "lose"]


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
    stale, files = next_root(RootView(file.read(), file.folder), now=NOW, refs={MAIN: tip(7)}, log=entry(7)).finish()
    push(file, {MAIN: tip(2)}, 1)
    with file.swapping() as swap, pytest.raises(RootMoved, match=r"version 2 of 6969.* cannot follow version 2"):
        swap.replace(stale, files)
    again, _ = new_root(file.folder, {}, incarnation=b"j" * 16)
    with file.swapping() as swap, pytest.raises(RootMoved):
        swap.replace(again)
    other = RootFile(storage, "b")
    Creation(other).hold_place("git sha1", KINDS)
    with other.swapping() as swap, pytest.raises(RootMoved, match="cannot follow version 1"):
        swap.replace(stale, files)
    assert RootView(file.read(), file.folder).ref(MAIN) == tip(2)


def test_two_swaps_under_one_lock(storage: Transport) -> None:
    file = make(storage, {MAIN: tip(1)}, "a")
    with file.swapping() as swap:
        for number in (2, 3):
            view = RootView(swap.current, file.folder)
            swap.replace(*next_root(view, now=NOW, refs={MAIN: tip(number)}, log=entry(number)).finish())
    assert file.read().version == 3


def test_a_tombstone_and_a_creation_over_it(storage: Transport) -> None:
    file = make(storage, {MAIN: tip(1)}, "a")
    with file.swapping() as swap:
        swap.replace(*tombstone(RootView(swap.current, file.folder), now=NOW, log=entry(1)).finish())
    grave = file.read()
    assert grave.deleted
    Creation(file).hold_place("git sha256", KINDS)
    with file.swapping() as swap:
        assert swap.current == grave
        view = RootView(empty_root(b"j" * 16, "git sha256", KINDS, now=NOW, over=grave), file.folder)
        swap.replace(*next_root(view, now=NOW, log=entry(2)).finish())
    root = RootFile(storage, "a").read()
    assert (root.incarnation, root.version, root.vcs, root.deleted) == (b"j" * 16, 1, "git sha256", False)


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


def clock() -> float:
    return NOW


class Case:
    """A change to a repository: what is there before, and the change."""

    def before(self, storage: Transport) -> Root | None:
        return make(storage, {MAIN: tip(1)}, "deep/a").read()

    def change(self, storage: Transport) -> Root:
        raise NotImplementedError


class Making(Case):
    def before(self, storage: Transport) -> Root | None:
        return None

    def change(self, storage: Transport) -> Root:
        return make(storage, {MAIN: tip(1)}, "deep/a").read()


class LargeMaking(Making):
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
            swap.replace(*next_root(view, now=NOW, log=entry(50, b"x" * 20_000), randomness=randomness(9)).finish())
        return file.read()

    def change(self, storage: Transport) -> Root:
        file = RootFile(storage, "deep/a", randomness=randomness(3))
        with file.swapping() as swap:
            view = RootView(swap.current, file.folder)
            refs: dict[bytes, RefValue | None] = {b"refs/heads/%06d" % number: tip(number) for number in range(1000)}
            root, files = next_root(
                view, now=NOW, refs=refs, packs=[pack(1)], log=entry(1), randomness=randomness(4)
            ).finish()
            assert {path.partition("/")[0] for path, _ in files} == {"tables", "log"}
            swap.replace(root, files)
        return root


class Deletion(Case):
    def change(self, storage: Transport) -> Root:
        file = RootFile(storage, "deep/a", randomness=randomness(3))
        with file.swapping() as swap:
            root, files = tombstone(RootView(swap.current, file.folder), now=NOW, log=entry(1)).finish()
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
        assert create(file, *new_root(file.folder, {}))
    if not file.read().deleted:
        push(file, {b"afterwards": tip(9)}, 99)
        assert RootView(file.read(), file.folder).ref(b"afterwards") == tip(9)
    file.sweep()
    assert file.folder.list_directory("") == ["format", "incoming", "lock", "log", "packs", "root", "tables"]


CASES = [Making(), LargeMaking(), Push(), Fold(), Deletion()]
POWER: list[Aftermath | None] = [None, *Aftermath]


@functools.cache
def begun(case: Case) -> tuple[Root | None, bytes]:
    """The root before, and the storage to be copied."""
    storage = MemoryTransport(clock=clock)
    return case.before(storage), freeze(storage)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case).__name__)
def test_whatever_fails_the_root_is_before_or_after(case: Case, mode: FaultMode) -> None:
    before, start = begun(case)
    next_version = (before.version if before is not None else 0) + 1
    fail_at, done = 0, False
    while not done:
        fail_at += 1
        storage = thaw(start)
        faulty = FaultyTransport(storage, fail_at=fail_at, mode=mode)
        error: Exception | None = None
        try:
            case.change(faulty)
        except (TransportError, OutcomeUnknown) as wrong:
            error = wrong
        done = faulty.calls < fail_at
        assert (error is None) or not done
        left = freeze(storage)
        for power in POWER:
            for seed in (1, 2, 3) if power in (Aftermath.SOME, Aftermath.TORN) else (0,):
                context = (mode, fail_at, faulty.log, power, seed, error)
                survivor = storage if power is None else thaw(left).crash(power, seed)
                now = found(survivor)
                if error is None:
                    assert now is not None, context
                    assert now.version == next_version, context
                    assert now.vcs == "git sha1", context
                else:
                    assert now == before or (now is not None and now.version == next_version), context
                    if not isinstance(error, OutcomeUnknown):
                        assert now == before, context
                works_on(survivor)
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
