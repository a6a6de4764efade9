"""store.swap: a writer of the repository that does not let go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest
from builders import MAIN, Lockless
from root_cases import make, tip

from smartserver.errors import Unsupported
from smartserver.store.swap import LOCK_WAIT, RootFile
from transports.base import Transport
from transports.decorators.passing import PassingTransport
from transports.errors import Locked


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
    with pytest.raises(Unsupported, match=r"push to it through a server \(hpss://\), or pull it into a new repository"):
        RootFile(Lockless(storage), "project").check_lock()
