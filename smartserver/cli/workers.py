"""`serve --workers`: processes that accept connections from one socket, and one above them that only looks after them.

They share the socket and the repositories' files, as servers that are started apart would: what is stored is read from
its root each time, and a request that is repeated is found in the log of its repository, whoever carried it out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time

from smartserver.cli.interrupts import ENDING, on_ending

log = logging.getLogger("smartserver")

STARTED = 2.0
"""Seconds after which a worker has started. One that fails before says what is wrong, and all end with it."""


def fork_workers(count: int) -> bool:
    """Returns in each worker; this process looks after them, and exits when they have ended. True: it is the first one
    there ever was, which does what is done once for all of them.

    A worker that is killed is replaced. A signal that ends a command is passed on to each; no worker gets that of a
    terminal itself. They end as after SIGTERM where this process is gone.
    """
    return _Workers(count).run()


class _Workers:
    def __init__(self, count: int) -> None:
        self._count = count
        self._started: dict[int, float] = {}
        """When each was forked, by its process."""
        self._heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        self._is_ending = False
        self._status = 0
        self._here, self._there = os.pipe()
        """Workers wait for the end of the first, which comes with the end of this process."""

    def run(self) -> bool:
        on_ending(self._pass_on)
        for number in range(self._count):
            if self._fork():
                return number == 0
        while self._started:
            process, ended = os.wait()
            lasted = time.monotonic() - self._started.pop(process)
            status = os.waitstatus_to_exitcode(ended)
            if self._is_ending:
                self._status = self._status or max(status, 0)
            elif status > 0 and lasted < STARTED:
                self._status = status
                self._pass_on(signal.SIGTERM)
            else:
                why = f"signal {-status}" if status < 0 else f"status {status}"
                log.error("worker %d ended with %s: another one takes its place", process, why)
                time.sleep(max(STARTED - lasted, 0))
                if not self._is_ending and self._fork():
                    return False
        sys.exit(self._status)

    def _pass_on(self, number: int) -> None:
        self._is_ending = True
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def _fork(self) -> bool:
        """Fork a worker; whether this is it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            process = os.fork()
            if process:
                self._started[process] = time.monotonic()
                return False
            for number in self._heeded:
                signal.signal(number, signal.SIG_DFL)  # Until it serves there is nothing to undo or to say.
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        os.setpgid(0, 0)
        os.close(self._there)
        threading.Thread(target=self._end_with_parent, daemon=True).start()
        return True

    def _end_with_parent(self) -> None:
        os.read(self._here, 1)
        os.kill(os.getpid(), signal.SIGTERM)
