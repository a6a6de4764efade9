"""The executor of a real server: two pools of threads, so that a long verification never delays a small answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREADS = 8
"""Short work: mostly waiting for the disk; Python runs one of them at a time."""

LONG_THREADS = 2
"""Verification and repacking."""


class ThreadExecutor:
    """Runs work in threads and reports back through `call_from_thread`; implements `Executor`."""

    def __init__(self, call_from_thread: Callable[[Callable[[], None]], None]) -> None:
        self._call_from_thread = call_from_thread
        self._short = ThreadPoolExecutor(THREADS, "store")
        self._long = ThreadPoolExecutor(LONG_THREADS, "long")

    def run(self, work: Callable[[], T], done: Callable[[T], None], *, long: bool = False) -> None:
        """Call `work` in a thread, then `done` on the thread that moves the bytes."""

        def job() -> None:
            result = work()
            self._call_from_thread(lambda: done(result))

        (self._long if long else self._short).submit(job)

    def soon(self, call: Callable[[], None]) -> None:
        """Call this on the thread that moves the bytes."""
        self._call_from_thread(call)

    def stop(self) -> None:
        """Start no more work and wait for what runs."""
        self._short.shutdown(cancel_futures=True)
        self._long.shutdown(cancel_futures=True)
