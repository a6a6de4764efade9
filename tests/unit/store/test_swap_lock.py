"""store.swap: a writer of the repository that does not let go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack

import pytest
from builders import MAIN, Lockless, Stepwise
from root_cases import make, tip

from smartserver.errors import Unsupported
from smartserver.store.swap import LOCK_WAIT, RootFile
from transports.base import Transport
from transports.decorators.passing import PassingTransport
from transports.errors import Locked
from transports.memory import MemoryTransport
from transports.steps import Put


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


def test_who_cannot_lock_is_told_what_he_can_do(storage: Transport) -> None:
    make(storage, {MAIN: tip(1)}, "project")
    file = RootFile(Lockless(storage), "project")
    way_out = r"push to it through a server \(hpss://\), or pull it into a new repository"
    with pytest.raises(Unsupported, match=way_out), file.swapping():
        raise AssertionError("held what it cannot lock")


# -- a store behind a link, to which much is brought with the lock

BROUGHT = Put("project/packs/new", b"p")


class Slow(Stepwise):
    """Something happens while that pack is brought."""

    meanwhile: Callable[[], object]

    def before(self, call: str, path: str) -> None:
        if (call, path) == ("create", BROUGHT.path):
            self.meanwhile()


@pytest.fixture
def far() -> Slow:
    inner = MemoryTransport()
    make(Lockless(inner), {MAIN: tip(1)}, "project")
    return Slow(Lockless(inner))


@pytest.fixture
def slept(far: Slow, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between looks, on a clock that moves by them, and by more than one waits while the pack is brought."""
    clock, pauses = [0.0], []

    def pause(seconds: float) -> None:
        clock.append(seconds)
        pauses.append(seconds)

    far.meanwhile = lambda: clock.append(LOCK_WAIT + 3)
    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(time, "monotonic", lambda: sum(clock))
    return pauses


def test_what_is_brought_first_is_no_waiting(far: Slow, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the lock for a moment then is waited for."""
    holder = ExitStack()
    holder.enter_context(RootFile(far.inner, "project").swapping())
    pause = time.sleep

    def let_go(seconds: float) -> None:
        pause(seconds)
        if len(slept) == 3:
            holder.close()

    monkeypatch.setattr(time, "sleep", let_go)
    with RootFile(far, "project").swapping([BROUGHT]):
        assert far.inner.get(BROUGHT.path) == BROUGHT.content
    assert len(slept) == 3


def test_who_brought_something_waits_as_long_as_others(far: Slow, slept: list[float]) -> None:
    """And is not waited for again at once, once that was in vain."""
    file = RootFile(far, "project")
    with RootFile(far.inner, "project").swapping():
        with pytest.raises(Locked, match="within 30 s"), file.swapping([BROUGHT]):
            raise AssertionError("held a lock that another holds")
        assert sum(slept) == pytest.approx(LOCK_WAIT)
        far.inner.delete(BROUGHT.path)
        far.meanwhile = list
        with pytest.raises(Locked), file.swapping([BROUGHT]):
            raise AssertionError("held a lock that another holds")
        assert sum(slept) == pytest.approx(LOCK_WAIT)


def test_other_threads_need_not_wait_for_what_one_brings(far: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartserver.store.swap.LOCK_WAIT", 0.01)
    file = RootFile(far, "project")
    began, go_on = threading.Event(), threading.Event()

    def meanwhile() -> None:
        began.set()
        assert go_on.wait(60)

    far.meanwhile = meanwhile

    def bring() -> None:
        with file.swapping([BROUGHT]):
            pass

    with ThreadPoolExecutor(1) as threads:
        brought = threads.submit(bring)
        try:
            assert began.wait(60)
            with file.swapping():
                pass
        finally:
            go_on.set()
        brought.result()


def test_who_had_to_wait_for_his_turn_looks_again(far: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """He is refused, waits until another thread has let go, and has the lock without a pause."""
    monkeypatch.setattr(time, "sleep", pytest.fail)
    far.meanwhile = list
    file = RootFile(far, "project")
    file._stuck_until = float("inf")

    class Turn:
        """Of a thread that lets go once it is waited for."""

        def acquire(self, timeout: float) -> bool:
            holder.close()
            return True

        def release(self) -> None:
            pass

    with ExitStack() as holder:
        holder.enter_context(RootFile(far.inner, "project").swapping())
        monkeypatch.setattr(file, "_turn", Turn())
        with file.swapping([BROUGHT]):
            pass
