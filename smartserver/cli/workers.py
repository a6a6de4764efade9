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

TOLD = signal.SIGUSR2
"""How a worker is told what came to the process above it. It heeds no other signal that ends a command: that of a
terminal or of a service manager may come to all of them, and a second one ends what the first one lets finish."""

STARTED = 2.0
"""Seconds after which a worker has started. One that fails before says what is wrong, and all end with it."""


def fork_workers(count: int) -> bool:
    """Returns in each worker; this process looks after them, and exits when they have ended. True: it is the first one
    there ever was, which does what is done once for all of them.

    A worker that is killed is replaced. `TOLD` comes to each for a signal that ends a command, and where this process
    is gone.
    """
    return _Workers(count).run()


class _Workers:
    def __init__(self, count: int) -> None:
        self._count = count
        self._started: dict[int, float] = {}
        """When each was forked, by its process."""
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
                if self._replace(max(STARTED - lasted, 0)):
                    return False
        sys.exit(self._status)

    def _replace(self, pause: float) -> bool:
        """Fork another worker after a pause; whether this is it."""
        while True:
            time.sleep(pause)
            try:
                return self._fork()
            except OSError as wrong:
                log.error("no worker can be started: %s", wrong.strerror)
                pause = STARTED

    def _pass_on(self, number: int) -> None:
        if self._is_ending and number == signal.SIGHUP:
            return  # The end of a terminal sends it, and its shell once more.
        self._is_ending = True
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, TOLD)

    def _fork(self) -> bool:
        """Fork a worker, unless they are to end; whether this is it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            process = 0 if self._is_ending else os.fork()
            if process:
                self._started[process] = time.monotonic()
            if process or self._is_ending:
                return False
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        os.close(self._there)
        threading.Thread(target=self._end_with_parent, daemon=True).start()
        return True

    def _end_with_parent(self) -> None:
        os.read(self._here, 1)
        os.kill(os.getpid(), TOLD)
