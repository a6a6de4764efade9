"""The senders of each byte of one connection: bytes that the program sends are matched with bytes that reach the link.

A program sends at once (`socket.send`), or writes to a transport that sends later, when no line of the program is being
run. Offsets in the stream connect the two, so buffers cannot confuse senders, nor can threads that send in turns. If
two threads send at the same time, their bytes are taken to be in the order in which the calls returned. If the socket
sends more bytes than it was given (TLS), the match is the latest sender.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from netem.callsites import CallSites


class _OfThread(threading.local):
    """The state of each thread of the program."""

    sent = 0
    """The number of bytes that the socket accepted from the thread."""


class SendLog:
    """The log of the senders of one connection. The program's threads write it, the link's thread reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = _OfThread()
        self._begun: deque[tuple[int, CallSites]] = deque()
        self._written = 0
        self._received = 0
        self.sent = 0
        """The number of bytes that the socket accepted."""

    def writing(self, size: int, sites: CallSites) -> None:
        """Record that the program writes `size` bytes to a transport, which sends them now or later."""
        with self._lock:
            begin = max(self._written, self.sent)
            self._note(begin, sites)
            self._written = begin + size

    def send(self, sites: CallSites, send: Callable[[], int]) -> int:
        """Call `send`, log `sites` as the senders of its bytes, and return how many bytes the socket accepted. `send`
        may call this method again, as `sendall` calls `send`.

        `sites` is ignored for bytes of a transport, whose writer is known.
        """
        with self._lock:
            self._sending(sites)
        begun = self._thread.sent
        size = send()
        missing = begun + size - self._thread.sent  # an inner call has counted its own bytes
        if missing > 0:
            with self._lock:
                self._sending(sites)  # again, because another thread may have sent during `send`
                self.sent += missing
            self._thread.sent += missing
        return size

    def received(self, size: int) -> CallSites:
        """Return the lines that sent the first of the next `size` bytes on the link."""
        with self._lock:
            while len(self._begun) > 1 and self._begun[1][0] <= self._received:
                self._begun.popleft()
            self._received += size
            return self._begun[0][1] if self._begun else ()

    def _sending(self, sites: CallSites) -> None:
        if self.sent >= self._written:
            self._note(self.sent, sites)

    def _note(self, begin: int, sites: CallSites) -> None:
        while self._begun and self._begun[-1][0] >= begin:  # an attempt that sent nothing
            self._begun.pop()
        self._begun.append((begin, sites))
