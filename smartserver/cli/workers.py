"""`serve --workers`: processes that accept connections from one socket, and a supervisor that replaces them.

Workers share the socket, the files of repositories, and memory for decoded texts and for counts. Each reads the log of
a repository for every request. So a repeated request is found in the log even if another worker carried it out.

The supervisor blocks the signals that end a command while it forks a worker, so that none is lost before it has noted
the process. A worker then ignores these signals and handles `STOP` and `TERMINATE`. It reads from a pipe whose other
end only the supervisor has. When the supervisor ends, for any reason, the pipe ends and the worker stops.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from smartserver.cli.interrupts import ENDING, on_ending
from smartserver.programs import exit_reason

log = logging.getLogger("smartserver")

STOP = signal.SIGUSR2
"""The signal that the supervisor sends to each worker after it got a signal. A terminal or a service manager may send
its own to all processes, so the same signal could reach a worker twice, and a second one cuts off open requests."""

TERMINATE = signal.SIGUSR1
"""The signal that the supervisor sends instead of `STOP` after SIGTERM."""

START_TIME = 2.0
"""Seconds after the start of a worker. If one of the first workers fails within this time, it could not start, and all
workers end. Any other worker is replaced, but not before this time: it may have failed because the database of the
tokens is not reachable."""


class WorkerRank(NamedTuple):
    """The place of a process among the workers."""

    number: int
    """The number of the worker, from 0. A replacement has the number of the old worker."""
    is_first: bool
    """True if this worker prints messages for all workers."""


def fork_workers(count: int, listening: Sequence[socket.socket]) -> WorkerRank:
    """Fork workers, and return in each of them with its rank. This process becomes their supervisor, and exits when
    they have ended.

    Raises:
        OSError: a process cannot be forked. Earlier workers end with this process.
    """
    return _Supervisor(listening).run(count)


class _Supervisor:
    def __init__(self, listening: Sequence[socket.socket]) -> None:
        self._listening = listening
        self._began: dict[int, tuple[int, float]] = {}
        """Process id of a worker -> (its number, the time of its fork)."""
        self._first: set[int] = set()
        """The process ids of the first workers."""
        self._is_ending = False
        self._status = 0
        self._pipe = os.pipe()

    def run(self, count: int) -> WorkerRank:
        on_ending(self._end)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # If it is ignored, `os.wait` does not return a worker's end.
        for number in range(count):
            if self._fork(number):
                return WorkerRank(number, number == 0)
        self._first = set(self._began)
        while self._began:
            process, ended = os.wait()
            began = self._began.pop(process, None)
            if began is not None and self._replaces(process, os.waitstatus_to_exitcode(ended), *began):
                return WorkerRank(began[0], False)
        sys.exit(self._status)

    def _replaces(self, process: int, status: int, number: int, began: float) -> bool:
        """Handle the end of a worker, and fork a replacement if one is needed. Return True in the replacement."""
        lasted = time.monotonic() - began
        if self._is_ending:
            self._status = self._status or max(status, 0)
        elif status > 0 and lasted < START_TIME and process in self._first:
            self._status = status
            self._end(signal.SIGTERM)
        else:
            log.error("worker %d ended with %s: another one takes its place", process, exit_reason(status))
            time.sleep(max(START_TIME - lasted, 0))
            while not self._is_ending:
                try:
                    return self._fork(number)
                except OSError as error:
                    log.error("no worker can be started: %s", error.strerror)
                    time.sleep(START_TIME)
        return False

    def _end(self, number: int) -> None:
        """Handle the signal `number`: close the listening sockets and tell all workers to stop. Clients can connect
        until the last worker has closed them, too. A second SIGHUP is ignored."""
        if self._is_ending and number == signal.SIGHUP:
            return  # Both a closed terminal and its shell send it.
        self._is_ending = True
        for listening in self._listening:
            listening.close()
        for process in self._began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, TERMINATE if number == signal.SIGTERM else STOP)

    def _fork(self, number: int) -> bool:
        """Fork a worker, unless the server is ending. Return True in the worker."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            if self._is_ending:
                return False
            process = os.fork()
            if process:
                self._began[process] = number, time.monotonic()
                return False
            for ending in ENDING:
                signal.signal(ending, signal.SIG_IGN)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        os.close(self._pipe[1])
        threading.Thread(target=self._stop_with_supervisor, daemon=True).start()
        return True

    def _stop_with_supervisor(self) -> None:
        os.read(self._pipe[0], 1)
        os.kill(os.getpid(), STOP)
