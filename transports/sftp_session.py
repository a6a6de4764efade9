"""`Session`: SFTP on one channel. Any number of threads may have many requests under way at once; an answer has the id
of its request.

One thread reads all packets. So a thread that sends never keeps the server from sending, and all waiting threads notice
a lost connection at once.
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
"""The most bytes of files that one exchange requests ahead. It also bounds the memory of an exchange, and allows 32
Mbit/s at 1000 ms."""

PATIENCE = 120.0
"""Timeout in seconds: the session is lost if the server sends no byte while answers are due, or receives no byte, for
so long. The hpss client waits as long (`IDLE_TIMEOUT`)."""

CHUNK = 256 * 1024
"""The most bytes of one read from the channel."""


class Channel(Protocol):
    """The connection that carries the bytes: a channel of paramiko, or a channel in tests."""

    def recv(self, nbytes: int, /) -> bytes:
        """Wait for bytes and return at most `nbytes` of them; empty at the end.

        Raises:
            TimeoutError: no byte was received within the channel's timeout; the caller may retry.
            OSError: the channel is closed.
        """

    def sendall(self, s: bytes, /) -> None:
        """Send all of `s`.

        Raises:
            TimeoutError: no byte could be sent within the channel's timeout. Earlier bytes may have been sent.
            OSError: the channel is closed.
        """

    def close(self) -> None:
        """Close the channel and end every wait in `recv` and `sendall`."""

    def hang_up(self) -> None:
        """Make `recv` return the end of the stream. This neither takes a lock nor waits."""


_Box = queue.SimpleQueue[tuple[int, sftp.Answer] | None]
"""The queue of the answers to one exchange, each with the number of its request in the exchange. None marks the end."""


class Session:
    """SFTP on an open channel. Once the session is lost or closed, every call raises `TransportFailed`."""

    def __init__(
        self,
        channel: Channel,
        where: str,
        *,
        patience: float = PATIENCE,
        window: int = WINDOW,
        is_openssh: bool = False,
    ) -> None:
        """Nothing is sent yet: the greeting is sent with the first request, or by `has`.

        `where`: the account, for messages. `patience` and `window` replace `PATIENCE` and `WINDOW`.
        """
        self.is_openssh = is_openssh
        """True if the server identifies itself as OpenSSH."""
        self._channel = channel
        self._where = where
        self._patience = patience
        self._window = window
        self._sending = threading.Lock()
        """The lock of the channel's sending side. Its holder may wait for the channel."""
        self._guard = threading.Lock()
        """The lock of `_due`, `_handles` and `_why`. Its holder never waits."""
        self._due: dict[int, tuple[_Box, int, sftp.Request]] = {}
        self._handles = Handles(predictable=is_openssh)
        self._why = ""
        """The reason why the session is lost; empty while it is usable."""
        self._later: deque[sftp.Request | sftp.Following] = deque()
        """Requests to send together with the next ones. The finalizer of a file appends to this list, so no lock may be
        needed for it."""
        self._number = 0
        self._heard = 0
        """The number of reads that returned bytes from the server."""
        self._greeted = threading.Event()
        self._version = sftp.Version(0, frozenset())
        self._greeting = sftp.init()
        if is_openssh:  # Open and close one folder, so that the first flight shows whether handles are predictable.
            self._later.extend([sftp.open_directory(b"."), sftp.Following(sftp.close)])
        threading.Thread(target=self._read, name=f"sftp {where}", daemon=True).start()

    @property
    def lost(self) -> bool:
        """True if the session is lost or closed and another one is needed."""
        return bool(self._why)

    def has(self, extension: bytes) -> bool:
        """Tell whether the server has the extension. The first call waits for the server's first packet."""
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
        """Send requests in order and return their answers in the same order. Requests that exceed the window wait for
        answers to earlier ones; if any request is a `Following`, they wait for all earlier answers, because handles can
        be predicted only then. An opening and the `Following` requests after it are always sent together; otherwise
        the first names of a folder could be lost."""
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
        """Send a request and return its pending answer."""
        box: _Box = queue.SimpleQueue()
        self._post([request], box, 0)
        return Pending(self, box)

    def later(self, request: sftp.Request) -> None:
        """Send a request together with the next ones and ignore its answer, which saves a round trip."""
        self._later.append(request)

    def close(self) -> None:
        """Close the session; closing twice is harmless."""
        self._end("it is closed")

    def abandon(self) -> None:
        """Close the session from a finalizer. The finalizer's thread may hold any lock, even one of paramiko's, so the
        reading thread does everything that takes a lock."""
        self._why = self._why or "it is closed"
        self._channel.hang_up()

    # -- within

    def _post(
        self, requests: Sequence[sftp.Request | sftp.Following], box: _Box, first: int
    ) -> list[sftp.Request | None]:
        """Send requests, after those of `later`. Their answers go into `box`, with numbers from `first`. For each
        request, return the request that was actually sent, or None if it was not sent."""
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
        """Send packets. A partial send ends the session, because the server would treat the next bytes as the rest of a
        packet."""
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
        """Wait for an answer. Return all answers that have arrived."""
        heard, taken = self._heard, list[tuple[int, sftp.Answer] | None]()
        while not taken:
            try:
                taken.append(box.get(timeout=self._patience))
            except queue.Empty:
                heard = self._check_heard(heard)
        while not box.empty():  # No other thread takes from it.
            taken.append(box.get())
        if None in taken:
            self._check()
        return [each for each in taken if each is not None]

    def _check_heard(self, before: int) -> int:
        """Return `_heard`. If it is still `before`, end the session and raise an error."""
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
        """Read packets until the channel or the session ends. This is the function of the reading thread."""
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
        """Wait for the next bytes and return them. End the session if one send is blocked for a whole timeout of the
        channel."""
        before = -1
        while True:
            try:
                return self._channel.recv(CHUNK)
            except TimeoutError:
                sending = self._number if self._sending.locked() else -1
                if sending == before != -1:  # The connection itself is full, and the channel's timeout does not apply.
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
            raise sftp.BadPacket(f"the server answered request {number}, which was not sent")
        box, place, _ = due
        box.put((place, said))


def _counted(
    requests: Sequence[sftp.Request | sftp.Following],
    filled: Sequence[sftp.Request | None],
    answers: list[sftp.Answer],
) -> list[sftp.Answer]:
    """Return the answers, with `NOT_SENT` for each request that was sent under a wrongly predicted handle."""
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
    """The future answer to a request that was sent."""

    def __init__(self, session: Session, box: _Box) -> None:
        self._session = session
        self._box = box

    def answer(self) -> sftp.Answer:
        """Wait for the answer and return it. This may be called only once."""
        ((_, answer),) = self._session._take(self._box)
        return answer
