"""The senders of each byte of one connection: bytes handed to a socket, matched with those that arrive on the link.

A program sends at once (`socket.send`), or writes to a transport that sends later, when no line of the program is being
run. Offsets in the stream join the two, so buffers cannot mix senders up, nor can threads that send in turns; of two
that send at once, the bytes are taken to be in the order in which the sends ended. Where the socket sends more than was
handed to it (TLS), the match is the latest sender.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from netem.callsites import CallSites


class _OfThread(threading.local):
    """The state of each thread."""

    sent = 0
    """Bytes the socket took from it."""


class SendLog:
    """The senders of one connection; the program's threads write it, the link's thread reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = _OfThread()
        self._begun: deque[tuple[int, CallSites]] = deque()
        self._written = 0
        self._received = 0
        self.sent = 0
        """Bytes the socket took."""

    def writing(self, size: int, sites: CallSites) -> None:
        """The program hands `size` bytes to a transport, which sends them now or later."""
        with self._lock:
            begin = max(self._written, self.sent)
            self._note(begin, sites)
            self._written = begin + size

    def send(self, sites: CallSites, send: Callable[[], int]) -> int:
        """Let a socket send, and say how many bytes it took; `send` may come here again, as `sendall` calls `send`.

        If a transport was handed these bytes, it is known who wrote them.
        """
        with self._lock:
            self._sending(sites)
        begun = self._thread.sent
        size = send()
        missing = begun + size - self._thread.sent  # what a call inside took, it has counted
        if missing > 0:
            with self._lock:
                self._sending(sites)  # once more: another thread may have begun, or sent, meanwhile
                self.sent += missing
            self._thread.sent += missing
        return size

    def received(self, size: int) -> CallSites:
        """The lines that sent the first of the next `size` bytes that came onto the link."""
        with self._lock:
            while len(self._begun) > 1 and self._begun[1][0] <= self._received:
                self._begun.popleft()
            self._received += size
            return self._begun[0][1] if self._begun else ()

    def _sending(self, sites: CallSites) -> None:
        if self.sent >= self._written:
            self._note(self.sent, sites)

    def _note(self, begin: int, sites: CallSites) -> None:
        while self._begun and self._begun[-1][0] >= begin:  # that try sent nothing
            self._begun.pop()
        self._begun.append((begin, sites))
