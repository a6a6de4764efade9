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
from transports.sftp_handles import Handles

WINDOW = 4 * 1024 * 1024
"""Bytes of files under way at most, of one exchange: 32 Mbit/s on a link of 1000 ms, and what memory is taken."""

PATIENCE = 120.0
"""Seconds without a byte from the server, though answers are due, or in which it takes none, after which it counts as
gone: the client of our own protocol waits as long (`IDLE_TIMEOUT`)."""

CHUNK = 256 * 1024
"""Bytes taken from the channel at once."""


class Channel(Protocol):
    """A carrier of the bytes: of paramiko, or of a test."""

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
        """End it, and every wait in `recv` or `sendall`."""

    def hang_up(self) -> None:
        """Let `recv` come to its end, without taking a lock or waiting."""


_Box = queue.SimpleQueue[tuple[int, sftp.Answer] | None]
"""The queue of the answers of one exchange, each with its place; None: no more will come."""


class Session:
    """An open channel. It lasts until it is lost or closed, and then for ever raises `TransportFailed`."""

    def __init__(
        self,
        channel: Channel,
        where: str,
        *,
        patience: float = PATIENCE,
        window: int = WINDOW,
        is_openssh: bool = False,
    ) -> None:
        """Our greeting is sent with the first request, or when the server's answer to it is asked for.

        `is_openssh`: the server says that it is OpenSSH's.
        """
        self.is_openssh = is_openssh
        """True if the server says that it is OpenSSH's."""
        self._channel = channel
        self._where = where
        self._patience = patience
        self._window = window
        self._sending = threading.Lock()
        """A lock whose holder may wait for the channel."""
        self._guard = threading.Lock()
        """The lock of the three that follow. Its holder never waits."""
        self._due: dict[int, tuple[_Box, int, sftp.Request]] = {}
        self._handles = Handles(predictable=is_openssh)
        self._why = ""
        """The reason why it cannot be used any more; empty while it can."""
        self._later: deque[sftp.Request | sftp.Following] = deque()
        """Added to without a lock: a file that is collected does so, in whatever its thread was doing."""
        self._number = 0
        self._heard = 0
        """Times the server has sent something."""
        self._greeted = threading.Event()
        self._version = sftp.Version(0, frozenset())
        self._greeting = sftp.init()
        if is_openssh:  # Whether it is true is known after the first flight, whatever that asks for.
            self._later.extend([sftp.open_directory(b"."), sftp.Following(sftp.close)])
        threading.Thread(target=self._read, name=f"sftp {where}", daemon=True).start()

    @property
    def lost(self) -> bool:
        """True if another session is needed."""
        return bool(self._why)

    def has(self, extension: bytes) -> bool:
        """Tell whether the server has the extension; wait for its first packet."""
        if not self._greeted.is_set():
            with self._sending:
                self._check()
                self._send(b"")
        heard = self._heard
        while not self._greeted.wait(self._patience):
            heard = self._check_heard(heard)
        self._check()
        return extension in self._version.extensions

    def exchange(self, requests: Sequence[sftp.Request | sftp.Following]) -> list[sftp.Answer]:
        """Send them in order and wait for the answers, which come in the same order. Requests over `window` wait for
        answers to those under way; for all of them, if some follow openings, as no handle is foreseen before. An
        opening is sent with all that follows it, or a folder that is read on under its own handle would lack the names
        that came before."""
        box: _Box = queue.SimpleQueue()
        answers: dict[int, sftp.Answer] = {}
        filled: list[sftp.Request | None] = []
        weights = [request.weight for request in requests]
        starts = [place for place, request in enumerate(requests) if not isinstance(request, sftp.Following)]
        is_foreseen = len(starts) < len(requests)
        ends = deque([*starts[1:], len(requests)])
        sent = under_way = 0
        while len(answers) < len(requests):
            first = sent
            waits = is_foreseen and under_way
            while ends and not waits and (not under_way or under_way + sum(weights[sent : ends[0]]) <= self._window):
                under_way += sum(weights[sent : ends[0]])
                sent = ends.popleft()
            if sent > first:
                filled += self._post(requests[first:sent], box, first)
                for place in range(first, sent):
                    if filled[place] is None:
                        answers[place] = sftp.NOT_SENT
                        under_way -= weights[place]
            if len(answers) < sent:
                for place, answer in self._take(box):
                    answers[place] = answer
                    under_way -= weights[place]
        return _counted(requests, filled, [answers[place] for place in range(len(requests))])

    def send(self, request: sftp.Request) -> Pending:
        """Send it; its answer is asked for later."""
        box: _Box = queue.SimpleQueue()
        self._post([request], box, 0)
        return Pending(self, box)

    def later(self, request: sftp.Request) -> None:
        """Send it with the next requests, and ignore its answer: that saves a trip."""
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

    def _post(
        self, requests: Sequence[sftp.Request | sftp.Following], box: _Box, first: int
    ) -> list[sftp.Request | None]:
        """Send requests; what was sent for each of them, if it was."""
        with self._sending:
            with self._guard:
                self._check()
                unminded: _Box = queue.SimpleQueue()
                later = [self._later.popleft() for _ in range(len(self._later))]
                filled = self._handles.fill([*later, *requests])
                packets = []
                for place, request in enumerate(filled, first - len(later)):
                    if request is not None:
                        self._number = (self._number + 1) & 0xFFFFFFFF
                        self._due[self._number] = box if place >= first else unminded, place, request
                        packets.append(request.packet(self._number))
            self._send(b"".join(packets))
        return filled[len(later) :]

    def _send(self, packets: bytes) -> None:
        """Send packets. A part that is not sent ends the session: the server would take the next bytes for the rest."""
        greeting, self._greeting = self._greeting, b""
        if not (greeting or packets):
            return
        try:
            self._channel.sendall(greeting + packets)
        except TimeoutError:
            self._end(self._takes_nothing)
            self._check()
        except OSError as error:
            self._end(str(error))
            self._check()
        except BaseException as error:
            self._end(f"sending was interrupted ({type(error).__name__})")
            raise

    @property
    def _takes_nothing(self) -> str:
        return f"the server takes nothing for {self._patience:.0f} s"

    def _take(self, box: _Box) -> list[tuple[int, sftp.Answer]]:
        """The answers that have come; wait for the first."""
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
        """The number of times that the server has sent something, which is more than before."""
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
            boxes = {id(box): box for box, _, _ in self._due.values()}
            self._due.clear()
        for box in boxes.values():
            box.put(None)
        self._greeted.set()
        self._channel.close()

    def _read(self) -> None:
        """Run the reading thread."""
        packets = sftp.Packets()
        try:
            while received := self._receive():
                self._heard += 1
                for answer in packets.receive(received):
                    self._answered(answer)
        except (OSError, sftp.BadPacket) as error:
            self._end(str(error))
        began = "" if self._greeted.is_set() else " before it said anything: has it SFTP?"
        self._end(f"the server ended it{began}")  # Unless there was another reason.

    def _receive(self) -> bytes:
        """The next bytes, however long that takes, unless a thread is sending all the while."""
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
            if due is not None:
                self._handles.answered(due[2], said)
        if due is None:
            raise sftp.BadPacket(f"the server answered request {number}, which nobody asked")
        box, place, _ = due
        box.put((place, said))


def _counted(
    requests: Sequence[sftp.Request | sftp.Following],
    filled: Sequence[sftp.Request | None],
    answers: list[sftp.Answer],
) -> list[sftp.Answer]:
    """The answers; `NOT_SENT` to what was sent under a handle that what was opened does not have."""
    opened: bytes | None = None
    for place, (request, sent) in enumerate(zip(requests, filled, strict=True)):
        if isinstance(request, sftp.Following):
            if sent is None or opened is None or sent != request.make(opened):
                answers[place] = sftp.NOT_SENT
        elif request.opens:
            answer = answers[place]
            opened = answer.handle if isinstance(answer, sftp.Handle) else None
    return answers


class Pending:
    """An answer that is to come."""

    def __init__(self, session: Session, box: _Box) -> None:
        self._session = session
        self._box = box

    def answer(self) -> sftp.Answer:
        """Wait for it; once."""
        ((_, answer),) = self._session._take(self._box)
        return answer
