"""store.creation, store.surroundings: of two creations at once, one in the other, at most one makes a repository."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import MAIN, History, Lockless, Repeatable, Stepwise, check_whole, push
from smartserver.store.swap import RootFile

from smartserver.errors import InvalidPath, NestedRepository
from smartserver.store.format import MADE_BESIDE, Discipline
from smartserver.store.repository import PackRepository
from smartserver.store.surroundings import holds_repository
from transports.base import Transport
from transports.errors import Locked, TransportError
from transports.local import LocalTransport
from transports.memory import MemoryTransport

OUTER = "a"


class At(Stepwise):
    """Does something before the n-th call."""

    def __init__(self, inner: Transport, at: int, act: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._left = [at]
        self._act = act
        self.came: list[bool] = []
        """What became of it."""

    @property
    def over(self) -> bool:
        """Whether there was no such call."""
        return self._left[0] > 0

    def before(self, call: str, path: str) -> None:
        self._left[0] -= 1
        if self._left[0] == 0:
            self.came.append(self._act())

    def list_directory(self, path: str) -> list[str]:
        self.before("list_directory", self.full(path))
        return super().list_directory(path)


def made(storage: Transport, path: str, discipline: Discipline, history: History, seed: int = 0) -> bool:
    """Whether a creation succeeds."""
    line = history.line(1, None, path)
    repository = PackRepository(storage, path, discipline=discipline, randomness=Repeatable(seed))
    with contextlib.suppress(InvalidPath, NestedRepository, Locked):
        push(repository, history, line, {MAIN: line[0]})
        return True
    return False


def live(storage: Transport, path: str) -> bool:
    with contextlib.suppress(TransportError):
        return PackRepository(storage, path).begin().exists
    return False


def stored(storage: Transport, path: str = "") -> Iterator[str]:
    for name in storage.list_directory(path):
        below = f"{path}/{name}".lstrip("/")
        yield below
        with contextlib.suppress(TransportError):
            yield from stored(storage, below)


def deleted(storage: Transport, discipline: Discipline) -> None:
    """Leave a deleted repository at the outer place."""
    history = History()
    assert made(storage, OUTER, discipline, history, 9)
    PackRepository(storage, OUTER, randomness=Repeatable(8)).delete(b"", 0, "user")


BEFORE: dict[str, Callable[[Transport], object]] = {
    "nothing": lambda storage: None,
    "an empty folder": lambda storage: storage.make_directory(OUTER),
    "a deleted one, file": lambda storage: deleted(storage, Discipline.FILE),
    "a deleted one, folder": lambda storage: deleted(storage, Discipline.FOLDER),
}


FILE, FOLDER = Discipline.FILE, Discipline.FOLDER
EACH = [(FILE, FILE), (FILE, FOLDER), (FOLDER, FILE), (FOLDER, FOLDER)]
CASES = [
    *[("nothing", inner, *each, False) for inner in ("a/b", "a/b/c") for each in EACH],
    *[("an empty folder", "a/b", *each, False) for each in EACH],
    *[(f"a deleted one, {each.value}", "a/b", each, each, False) for each in (FILE, FOLDER)],
    ("a deleted one, file", "a/b", FILE, FOLDER, False),
    *[(before, "a/b", FOLDER, FOLDER, True) for before in BEFORE if "file" not in before],
    ("nothing", "a/b/c", FOLDER, FOLDER, True),
]
SHORT = [("nothing", "a/b", FILE, FILE, False), ("nothing", "a/b", FOLDER, FOLDER, False)]


@pytest.mark.parametrize("outer_first", [True, False], ids=["outer first", "inner first"])
@pytest.mark.parametrize(
    ("before", "inner", "of_outer", "of_inner", "far"),
    [case if case in SHORT else pytest.param(*case, marks=pytest.mark.long) for case in CASES],
)
def test_one_of_two_is_refused_at_any_moment(
    before: str,
    inner: str,
    of_outer: Discipline,
    of_inner: Discipline,
    far: bool,
    outer_first: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole second creation comes before each call of the first. `far`: the first works behind a link."""
    orders = [(OUTER, of_outer), (inner, of_inner)]
    (one, of_one), (other, of_other) = orders if outer_first else orders[::-1]
    monkeypatch.setattr("smartserver.store.swap.LOCK_WAIT", 0.0)
    for at in itertools.count(1):
        storage, history = MemoryTransport(), History()
        BEFORE[before](storage)
        watched = At(storage, at, partial(made, storage, other, of_other, history, 5))
        first = made(Lockless(watched) if far else watched, one, of_one, history)
        came = watched.came
        found = [live(storage, OUTER), live(storage, inner)]
        where = f"before call {at}"
        assert sum(found) == 1, where
        assert sorted([first, *came]) == ([False, True] if came else [True]), where
        check_whole(PackRepository(storage, OUTER if found[0] else inner), history)
        assert not [each for each in stored(storage) if MADE_BESIDE in each], where
        if watched.over:
            break
    assert at > 20


@pytest.mark.parametrize("discipline", [FILE, FOLDER])
def test_of_many_at_once_none_is_in_another(tmp_path: Path, discipline: Discipline) -> None:
    """Each on a transport of its own, as in processes of their own. The innermost place or one around it has one."""
    for number in range(10):
        paths = ["a", "a/b", "a/b/c", "a/d"] * 2
        barrier = threading.Barrier(len(paths))

        def make(path: str, number: int, barrier: threading.Barrier) -> None:
            storage, history = LocalTransport(str(tmp_path)), History()
            repository = PackRepository(storage, f"{number}/{path}", discipline=discipline)
            line = history.line(1)
            barrier.wait()
            with contextlib.suppress(InvalidPath, NestedRepository):
                push(repository, history, line, {MAIN: line[0]})

        threads = [threading.Thread(target=make, args=(path, number, barrier)) for path in paths]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [path for path in set(paths) if live(LocalTransport(str(tmp_path)), f"{number}/{path}")]
        assert found
        assert not [(one, other) for one in found for other in found if other.startswith(f"{one}/")]


def test_a_place_that_another_creation_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two make `a`, another `a/b`. The first that sees that takes the tombstone away, on which the second one rests."""
    storage, history = MemoryTransport(), History()
    line = history.line(1)
    swapping = RootFile.swapping

    def late(file: RootFile, *arguments: Any) -> Any:
        monkeypatch.setattr(RootFile, "swapping", swapping)
        push(PackRepository(storage, "a/b", discipline=FILE), history, line, {MAIN: line[0]})
        storage.delete("a/root")
        return swapping(file, *arguments)

    monkeypatch.setattr(RootFile, "swapping", late)
    with pytest.raises(InvalidPath, match="a repository is below it at 'b'"):
        push(PackRepository(storage, "a", discipline=FILE), history, line, {MAIN: line[0]})
    assert live(storage, "a/b")
    assert not live(storage, "a")


def test_a_deleted_repository_is_none() -> None:
    storage, history = MemoryTransport(), History()
    repository, line = PackRepository(storage, "a"), history.line(1)
    push(repository, history, line, {MAIN: line[0]})
    assert holds_repository(storage, "a")
    repository.delete(b"r" * 16, 0, "joe")
    assert not holds_repository(storage, "a")
    assert not holds_repository(storage, "b")
