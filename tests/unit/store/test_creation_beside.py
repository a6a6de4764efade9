"""store.creation: a `folder` repository is made beside its place; who looks at any time sees nothing or all of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from builders import MAIN, Clock, History, Lockless, Repeatable, Stepwise, check_whole, push, refs_of, upload
from faulty_transport import FaultyTransport

from smartserver.errors import InvalidPath, NestedRepository, OutcomeUnknown
from smartserver.store.format import MADE_BESIDE
from smartserver.store.repository import PackRepository
from transports.base import Transport, WriteFile
from transports.errors import TransportError, TransportFailed
from transports.memory import MemoryTransport

WHOLE = ["format", "incoming", "lock", "log", "packs", "root", "tables"]
DAY = 24 * 3600


class Watched(Stepwise):
    """Looks, before each call and once at the end, what others see."""

    def __init__(self, inner: Transport, look: Callable[[], None]) -> None:
        super().__init__(inner)
        self._look = look

    def before(self, call: str, path: str) -> None:
        self._look()


class At:
    """Does something when it is called for the n-th time."""

    def __init__(self, left: int, act: Callable[[], object]) -> None:
        self.left, self._act = left, act

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._act()


def visible(storage: MemoryTransport, place: str = "") -> list[str]:
    """Every path that a listing shows, but for what is being made."""
    found = []
    for name in storage.list_directory(place):
        below = f"{place}/{name}".lstrip("/")
        if not name.startswith(MADE_BESIDE):
            found.append(below)
            with contextlib.suppress(TransportError):
                found += visible(storage, below)
    return found


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("path", ["project", "group/sub/project"])
def test_an_observer_sees_nothing_or_all_of_it(path: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr("smartserver.store.far.AT_ONCE", 10)
    storage, history = MemoryTransport(), History()
    line = history.line(3)
    seen: list[Mapping[bytes, bytes] | None] = []

    def look() -> None:
        other = PackRepository(storage, path)
        if not storage.exists(path):
            assert all(path.startswith(f"{each}/") for each in visible(storage))
            found = None
        else:
            assert storage.list_directory(path) == WHOLE
            assert [each for each in visible(storage, path) if "/packs/" in each] != []
            found = refs_of(other)
        if not seen or seen[-1] != found:
            seen.append(found)

    watched = Watched(Lockless(storage), look)
    repository = PackRepository(watched, path, randomness=Repeatable())
    push(repository, history, line, {MAIN: line[2]})
    look()
    assert seen == [None, {MAIN: line[2]}]
    check_whole(PackRepository(storage, path), history)
    assert storage.list_directory(f"{path}/incoming") == storage.list_directory(f"{path}/lock") == []
    assert [name for name in storage.list_directory(path.rpartition("/")[0]) if name.startswith(".")] == []


@pytest.mark.parametrize("large", [False, True])
def test_of_two_that_create_at_any_moment_both_push(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes before each call of the first: what it brought is kept, and the first goes on top of it."""
    if large:
        monkeypatch.setattr("smartserver.store.far.AT_ONCE", 10)
    at, over = 0, False
    while not over:
        at += 1
        storage, history = MemoryTransport(), History()
        ours, theirs = history.line(2, None, "ours"), history.line(2, None, "theirs")
        other = PackRepository(Lockless(storage), "a/b", randomness=Repeatable(5))
        second = partial(push, other, history, theirs, {b"refs/heads/theirs": theirs[1]})
        watched = Watched(Lockless(storage), look := At(at, second))
        push(PackRepository(watched, "a/b", randomness=Repeatable()), history, ours, {MAIN: ours[1]})
        over = look.left > 0
        refs = refs_of(PackRepository(storage, "a/b"))
        assert refs == {MAIN: ours[1]} | ({} if over else {b"refs/heads/theirs": theirs[1]}), at
        check_whole(PackRepository(storage, "a/b"), history)
        assert storage.list_directory("a") == ["b"], at
    assert at > 20


def test_a_folder_that_is_there_is_filled_in_its_place() -> None:
    """As is the store's own: nothing can be renamed to it."""
    for path in ("a", ""):
        storage, history = MemoryTransport(), History()
        if path:
            storage.make_directory(path)
        line = history.line(1)
        push(PackRepository(Lockless(storage), path), history, line, {MAIN: line[0]})
        assert storage.list_directory(path) == WHOLE
        check_whole(PackRepository(storage, path), history)


def test_what_is_given_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartserver.store.far.AT_ONCE", 10)
    for path in ("a/b", ""):
        storage, history = MemoryTransport(), History()
        line = history.line(1)
        sent = upload(PackRepository(Lockless(storage), path), history.body(line), 1)
        assert storage.list_directory("") != []
        sent.abandon()
        sent.abandon()
        assert storage.list_directory("") == []


def test_what_a_dead_one_left_is_swept_by_the_next_when_it_is_a_day_old() -> None:
    clock = Clock()
    storage, history = MemoryTransport(clock), History()
    line = history.line(1)
    dying = FaultyTransport(Lockless(storage), fail_at=12, mode="die")
    with contextlib.suppress(TransportError, OutcomeUnknown):
        push(PackRepository(dying, "a"), history, line, {MAIN: line[0]})
    (left,) = storage.list_directory("")
    assert left.startswith(MADE_BESIDE)
    clock.now += DAY - 1
    push(PackRepository(Lockless(storage), "b"), history, line, {MAIN: line[0]})
    assert storage.list_directory("") == [left, "b"]
    clock.now += 2
    push(PackRepository(Lockless(storage), "c"), history, line, {MAIN: line[0]})
    assert storage.list_directory("") == ["b", "c"]


def test_a_place_that_can_be_none_is_refused() -> None:
    storage, history = MemoryTransport(), History()
    line = history.line(1)
    push(PackRepository(Lockless(storage), "a"), history, line, {MAIN: line[0]})
    storage.put("file", [b"somebody's"])
    storage.make_directory("git")
    storage.make_directory("git/.git")
    for path, error, why in (
        ("a/b", NestedRepository, "'a'"),
        ("file/b", InvalidPath, "'file' is a file"),
        ("file", InvalidPath, "a file is there"),
        ("git/b", InvalidPath, "'git' is a git repository: nothing is made inside it"),
        ("git", InvalidPath, "a git repository is there"),
    ):
        before = visible(storage)
        with pytest.raises(error, match=why):
            push(PackRepository(Lockless(storage), path), history, line, {MAIN: line[0]})
        assert visible(storage) == before


class Full(Stepwise):
    """A store with no room for the pack, which it cannot say by name, as a server of SFTP."""

    def create(self, path: str) -> WriteFile:
        if path.endswith(".pack"):
            raise TransportFailed(path, "not written, the server says: Failure (its disk may be full)")
        return super().create(path)


@pytest.mark.parametrize("path", ["a", "a/b/c"])
@pytest.mark.parametrize("large", [False, True])
def test_what_fails_before_the_rename_changed_nothing(path: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr("smartserver.store.far.AT_ONCE", 10)
    storage, history = MemoryTransport(), History()
    line = history.line(1)
    with pytest.raises(TransportFailed, match="not written"):
        push(PackRepository(Full(Lockless(storage)), path), history, line, {MAIN: line[0]})
    assert storage.list_directory("") == []


class Lost(Stepwise):
    """A store whose connection is lost at the rename to the repository's place."""

    def __init__(self, inner: Transport, done: bool) -> None:
        super().__init__(inner)
        self._done = done

    def rename(self, source: str, target: str) -> None:
        if self._done or target != "a":
            super().rename(source, target)
        if target == "a":
            raise TransportFailed(target, "the connection was lost")


@pytest.mark.parametrize("done", [False, True])
def test_where_the_rename_got_no_answer_nobody_knows(done: bool) -> None:
    """What was made is not taken away: it may get its name yet."""
    storage, history = MemoryTransport(), History()
    line = history.line(1)
    with pytest.raises(OutcomeUnknown, match="putting the new repository in place failed"):
        push(PackRepository(Lost(Lockless(storage), done), "a"), history, line, {MAIN: line[0]})
    (name,) = storage.list_directory("")
    assert (name == "a") is done
    check_whole(PackRepository(storage, name), history)
