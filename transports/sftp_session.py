"""`Session`: SFTP on one channel. Many requests are under way at once, from any number of threads; answers find theirs
by id.

One thread reads, from the first packet to the last: so whoever sends never keeps the server from sending, and a
connection that is lost is noticed at once by all who wait.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from transports import sftp_packets as sftp
from transports.errors import TransportFailed

WINDOW = 4 * 1024 * 1024
"""Bytes of files under way at most, of one exchange: 32 Mbit/s on a link of 1000 ms, and what memory is taken."""

PATIENCE = 120.0
"""Seconds without a byte from the server, though answers are due, or in which it takes none, after which it counts as
gone: the client of our own protocol waits as long (`IDLE_TIMEOUT`)."""

CHUNK = 256 * 1024
"""Bytes taken from the channel at once."""


class Channel(Protocol):
    """What carries the bytes: of paramiko, or of a test."""

    def recv(self, nbytes: int, /) -> bytes:
        """Wait for bytes; none at the end.

        Raises:
            TimeoutError: none came for as long as its owner is patient; it may be called again.
            OSError: it is closed.
        """

    def sendall(self, s: bytes, /) -> None:
        """Take all of them.

        Raises:
            TimeoutError: none were taken for so long; nobody knows how many were before.
            OSError: it is closed.
        """

    def close(self) -> None:
        """End it, and whoever waits in `recv` or `sendall`."""

    def hang_up(self) -> None:
        """Let `recv` come to its end, without taking a lock or waiting."""


_Box = queue.SimpleQueue[tuple[int, sftp.Answer] | None]
"""Where the answers of one exchange come in, each with its place; None: no more will come."""


class Session:
    """An open channel. It lasts until it is lost or closed, and then for ever raises `TransportFailed`."""

    def __init__(self, channel: Channel, where: str, *, patience: float = PATIENCE, window: int = WINDOW) -> None:
        """Our greeting is sent with the first request, or when the server's answer to it is asked for."""
        self._channel = channel
        self._where = where
        self._patience = patience
        self._window = window
        self._sending = threading.Lock()
        """Who holds it may wait for the channel."""
        self._guard = threading.Lock()
        """Of the two that follow. Nobody waits who holds it."""
        self._due: dict[int, tuple[_Box, int]] = {}
        self._why = ""
        """Why it is of no more use."""
        self._later: deque[sftp.Request] = deque()
        """Added to without a lock: a file that is collected does so, in whatever its thread was doing."""
        self._number = 0
        self._heard = 0
        """Times the server has sent something."""
        self._greeted = threading.Event()
        self._version = sftp.Version(0, frozenset())
        self._greeting = sftp.init()
        threading.Thread(target=self._read, name=f"sftp {where}", daemon=True).start()

    @property
    def lost(self) -> bool:
        """Whether another one is needed."""
        return bool(self._why)

    def has(self, extension: bytes) -> bool:
        """Whether the server says that it has the extension; waits until it has said anything.

        Raises:
            TransportFailed: the connection is lost.
        """
        if not self._greeted.is_set():
            with self._sending:
                self._check()
                self._send(b"")
        heard = self._heard
        while not self._greeted.wait(self._patience):
            heard = self._check_heard(heard)
        self._check()
        return extension in self._version.extensions

    def exchange(self, requests: Sequence[sftp.Request]) -> list[sftp.Answer]:
        """Send them in order and wait for the answers, which come in the same order. What is more than `window` waits
        for answers to what is under way.

        Raises:
            TransportFailed: the connection is lost: what the server did of them is unknown.
        """
        box: _Box = queue.SimpleQueue()
        answers: dict[int, sftp.Answer] = {}
        sent = under_way = 0
        while len(answers) < len(requests):
            first = sent
            while sent < len(requests) and (not under_way or under_way + requests[sent].weight <= self._window):
                under_way += requests[sent].weight
                sent += 1
            if sent > first:
                self._post(requests[first:sent], box, first)
            for place, answer in self._take(box):
                answers[place] = answer
                under_way -= requests[place].weight
        return [answers[place] for place in range(len(requests))]

    def send(self, request: sftp.Request) -> Pending:
        """Send it; its answer is asked for later.

        Raises:
            TransportFailed: the connection is lost.
        """
        box: _Box = queue.SimpleQueue()
        self._post([request], box, 0)
        return Pending(self, box)

    def later(self, request: sftp.Request) -> None:
        """Send it before whatever is sent next, and do not mind its answer: a trip of its own is saved."""
        self._later.append(request)

    def close(self) -> None:
        """End it. Twice is nothing."""
        self._end("it is closed")

    def abandon(self) -> None:
        """End it from a finalizer, which may run in a thread that holds any lock, of paramiko's too: the reading thread
        does what takes one."""
        self._why = self._why or "it is closed"
        self._channel.hang_up()

    # -- within

    def _post(self, requests: Sequence[sftp.Request], box: _Box, first: int) -> None:
        with self._sending:
            with self._guard:
                self._check()
                unminded: _Box = queue.SimpleQueue()
                places = [(self._later.popleft(), (unminded, 0)) for _ in range(len(self._later))]
                places += [(request, (box, place)) for place, request in enumerate(requests, first)]
                packets = []
                for request, place in places:
                    self._number = (self._number + 1) & 0xFFFFFFFF
                    self._due[self._number] = place
                    packets.append(request.packet(self._number))
            self._send(b"".join(packets))

    def _send(self, packets: bytes) -> None:
        """What is not sent whole ends it: the server would take what comes next for the rest."""
        greeting, self._greeting = self._greeting, b""
        if not (greeting or packets):
            return
        try:
            self._channel.sendall(greeting + packets)
        except TimeoutError:
            self._end(self._takes_nothing)
            self._check()
        except OSError as wrong:
            self._end(str(wrong))
            self._check()
        except BaseException as wrong:
            self._end(f"sending was interrupted ({type(wrong).__name__})")
            raise

    @property
    def _takes_nothing(self) -> str:
        return f"the server takes nothing for {self._patience:.0f} s"

    def _take(self, box: _Box) -> list[tuple[int, sftp.Answer]]:
        """What has come, waiting for the first."""
        heard, taken = self._heard, list[tuple[int, sftp.Answer] | None]()
        while not taken:
            try:
                taken.append(box.get(timeout=self._patience))
            except queue.Empty:
                heard = self._check_heard(heard)
        while not box.empty():  # Nobody else takes from it.
            taken.append(box.get())
        if None in taken:
            self._check()
        return [each for each in taken if each is not None]

    def _check_heard(self, before: int) -> int:
        """How often the server has sent something: more than before.

        Raises:
            TransportFailed: it was silent for too long.
        """
        if self._heard == before:
            self._end(f"no sign of life for {self._patience:.0f} s")
        self._check()
        return self._heard

    def _check(self) -> None:
        if self._why:
            raise TransportFailed("", f"the connection to {self._where} is lost: {self._why}")

    def _end(self, why: str) -> None:
        with self._guard:
            self._why = self._why or why
            boxes = {id(box): box for box, _ in self._due.values()}
            self._due.clear()
        for box in boxes.values():
            box.put(None)
        self._greeted.set()
        self._channel.close()

    def _read(self) -> None:
        """What the reading thread does."""
        packets = sftp.Packets()
        try:
            while received := self._receive():
                self._heard += 1
                for answer in packets.receive(received):
                    self._answered(answer)
        except (OSError, sftp.BadPacket) as wrong:
            self._end(str(wrong))
        began = "" if self._greeted.is_set() else " before it said anything: has it SFTP?"
        self._end(f"the server ended it{began}")  # Unless there was another reason.

    def _receive(self) -> bytes:
        """What comes next, however long that takes, unless somebody is sending all the while."""
        before = -1
        while True:
            try:
                return self._channel.recv(CHUNK)
            except TimeoutError:
                sending = self._number if self._sending.locked() else -1
                if sending == before != -1:  # What carries the bytes is full, where no timeout of the channel counts.
                    self._end(self._takes_nothing)
                before = sending

    def _answered(self, answer: tuple[int, sftp.Answer] | sftp.Version) -> None:
        if isinstance(answer, sftp.Version):
            if answer.version != sftp.VERSION:
                raise sftp.BadPacket(f"the server speaks SFTP version {answer.version}, this client {sftp.VERSION}")
            self._version = answer
            self._greeted.set()
            return
        number, said = answer
        with self._guard:
            due = self._due.pop(number, None)
        if due is None:
            raise sftp.BadPacket(f"the server answered request {number}, which nobody asked")
        box, place = due
        box.put((place, said))


class Pending:
    """An answer that is to come."""

    def __init__(self, session: Session, box: _Box) -> None:
        self._session = session
        self._box = box

    def answer(self) -> sftp.Answer:
        """Wait for it; once.

        Raises:
            TransportFailed: the connection is lost.
        """
        ((_, answer),) = self._session._take(self._box)
        return answer
