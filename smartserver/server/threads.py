"""The executor of a real server: a pool of threads for each lane, so that waiting pushes and verifications never delay
a read. `fair.FairQueue` chooses the next job of a lane.

Python runs one thread at a time, so all lanes still share one processor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from smartserver.server.executor import NOBODY, Lane
from smartserver.server.fair import FairQueue, Tenant

log = logging.getLogger("smartserver")

T = TypeVar("T")

THREADS = {
    Lane.QUICK: 8,
    Lane.CONTENT: 4,
    Lane.BODY: 16,
    Lane.COMMIT: 16,
    Lane.HOOK: 8,
    Lane.LONG: 2,
    Lane.UPKEEP: 1,
    Lane.HEALTH: 1,
}
"""The threads of each lane. Reads mostly wait for the disk. Checks of bodies wait for records that must be read again,
or for larger bodies before them. A commit waits for syncs: its own, or those of the record that it shares. Building
content only takes processor time. Two verifications keep a processor busy, and one repack a disk."""


class _Pool:
    """The threads of one lane. A thread is started when more jobs wait than threads are idle."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._queue: FairQueue[Callable[[], None]] = FairQueue(count)
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        """The number of threads that run no job. A thread that was started or notified counts as idle until it takes a
        job. So the number of waiting jobs is compared with this number, not with zero."""
        self._stopped = False

    def submit(self, client: Tenant, job: Callable[[], None]) -> None:
        """Queue a job.

        Raises:
            RuntimeError: the pool was stopped.
        """
        with self._changed:
            if self._stopped:
                raise RuntimeError(f"lane {self._name}: no work is begun after `stop`")
            if len(self._queue) >= self._idle and len(self._threads) < self._count:
                self._start()
            self._queue.put(client, job)
            self._changed.notify()

    def stop(self) -> None:
        """Drop the waiting jobs and start no more. Do not wait for running jobs."""
        with self._changed:
            self._stopped = True
            self._queue.clear()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the running jobs."""
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        """Start a thread. It can begin a job only after the caller has released the lock."""
        thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)
        self._idle += 1

    def _work(self) -> None:
        while (found := self._next()) is not None:
            client, job = found
            try:
                job()
            except Exception:  # A bug. The thread must not end, because no other replaces it.
                log.exception("internal error in a job of lane %s", self._name)
            finally:
                with self._changed:
                    self._idle += 1
                    self._queue.ended(client)
                    if len(self._queue) > 1:  # This thread takes one; several others may begin now.
                        self._changed.notify_all()
            del client, job, found  # An idle thread must not keep a request alive.

    def _next(self) -> tuple[Tenant, Callable[[], None]] | None:
        """Wait for the next job; return None once the pool is stopped."""
        with self._changed:
            while not self._stopped:
                if (found := self._queue.take()) is not None:
                    self._idle -= 1
                    return found
                self._changed.wait()
            return None


class ThreadExecutor:
    """Runs work in threads, and reports results through `call_from_thread`; implements `Executor`."""

    def __init__(self, call_from_thread: Callable[[Callable[[], None]], None]) -> None:
        self.stopping = False
        self._call_from_thread = call_from_thread
        self._pools = {lane: _Pool(lane.value, count) for lane, count in THREADS.items()}

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        """Call `work` in a thread, then `done` on the I/O thread."""

        def job() -> None:
            result = work()
            self._call_from_thread(lambda: done(result))

        self._pools[lane].submit(client, job)

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` on the I/O thread."""
        self._call_from_thread(call)

    def stop(self) -> None:
        """Begin no more work, and wait for the running work."""
        self.stopping = True
        for pool in self._pools.values():
            pool.stop()
        for pool in self._pools.values():
            pool.join()
