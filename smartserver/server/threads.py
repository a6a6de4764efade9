"""The executor of a real server: a pool of threads for each lane, so that no pushes and no verifications that wait,
however many and for whatever, delay a read.

Python runs one thread at a time: for what a push takes of the processor reads wait in any lane, as for each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from smartserver.server.executor import Lane

T = TypeVar("T")

THREADS = {Lane.QUICK: 8, Lane.CONTENT: 4, Lane.BODY: 16, Lane.COMMIT: 16, Lane.LONG: 2, Lane.UPKEEP: 1}
"""Reads mostly wait for the disk, and of bodies only what must be read again does, or a large one for those before it.
A commit waits for syncs, which go together on most disks, and, where a writer is stopped, for `store.swap.LOCK_WAIT`.
What is put together takes the processor and waits for nothing: so many readers of it have it in turn. Two verifications
keep one busy, and one repack a disk."""


class ThreadExecutor:
    """Runs work in threads and reports back through `call_from_thread`; implements `Executor`."""

    def __init__(self, call_from_thread: Callable[[Callable[[], None]], None]) -> None:
        self.stopping = False
        self._call_from_thread = call_from_thread
        self._pools = {lane: ThreadPoolExecutor(count, lane.value) for lane, count in THREADS.items()}

    def run(self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK) -> None:
        """Call `work` in a thread, then `done` on the thread that moves the bytes."""

        def job() -> None:
            result = work()
            self._call_from_thread(lambda: done(result))

        self._pools[lane].submit(job)

    def soon(self, call: Callable[[], None]) -> None:
        """Call this on the thread that moves the bytes."""
        self._call_from_thread(call)

    def stop(self) -> None:
        """Start no more work and wait for what runs."""
        self.stopping = True
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)
