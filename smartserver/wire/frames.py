"""Converts bytes to frames and back. Every received byte is read once and copied twice, however the bytes were
split."""

from __future__ import annotations

import enum
import itertools
import re
import struct
from collections import deque
from typing import NamedTuple

from smartserver.wire.errors import LocalProtocolError, NotHpss, ProtocolError, RemoteProtocolError
from smartserver.wire.limits import MAX_END, MAX_FRAME, MAX_PING, MAX_PREFACE, MAX_REASON

VERSION = 1
PREFACE = b"hpss/1\n"
HEADER = struct.Struct(">IBI")
"""Payload length, type, request id."""
END_PAYLOAD = struct.Struct(">IQ")
"""The numbers of segments and bytes of the body. The server's trace since its REPLY follows, if the client requested
it."""
IGNORED_FROM = 0x80
"""The first of the frame types that a receiver skips."""
MAX_ID = 0xFFFFFFFF


class FrameType(enum.IntEnum):
    """The type of a frame. For REQUEST and REPLY, the bit 0x40 means that a body follows."""

    REQUEST = 1
    BODY = 2
    END = 3
    REPLY = 4
    ERROR = 5
    PROGRESS = 6
    CANCEL = 7
    PING = 8
    PONG = 9
    GOAWAY = 10
    REQUEST_WITH_BODY = 0x41
    REPLY_WITH_BODY = 0x44


SIZES: dict[FrameType, tuple[int, int]] = {
    FrameType.REQUEST: (0, MAX_FRAME),
    FrameType.BODY: (0, MAX_FRAME),
    FrameType.END: (END_PAYLOAD.size, END_PAYLOAD.size + MAX_END),
    FrameType.REPLY: (0, MAX_FRAME),
    FrameType.ERROR: (0, MAX_FRAME),
    FrameType.PROGRESS: (0, MAX_FRAME),
    FrameType.CANCEL: (0, 0),
    FrameType.PING: (0, MAX_PING),
    FrameType.PONG: (0, MAX_PING),
    FrameType.GOAWAY: (0, MAX_REASON),
    FrameType.REQUEST_WITH_BODY: (0, MAX_FRAME),
    FrameType.REPLY_WITH_BODY: (0, MAX_FRAME),
}
"""The fewest and the most bytes of payload of a frame, by its type."""

OF_CONNECTION = frozenset({FrameType.PING, FrameType.PONG, FrameType.GOAWAY})
"""The types of frames that belong to no request and have the id 0."""

CONTINUED = frozenset(
    {
        FrameType.REQUEST,
        FrameType.REQUEST_WITH_BODY,
        FrameType.REPLY,
        FrameType.REPLY_WITH_BODY,
        FrameType.ERROR,
    }
)
"""The types of frames whose message continues in the next frame of the same type and id if the payload is full."""


class Frame(NamedTuple):
    """One frame. `type` is a plain number if the frame must be skipped."""

    type: int
    id: int
    payload: bytes | memoryview


def type_name(number: int) -> str:
    """Return the name of a frame type, for messages."""
    try:
        return FrameType(number).name
    except ValueError:
        return f"a frame of type 0x{number:02x}"


def check_header(length: int, number: int, request_id: int, blame: type[ProtocolError]) -> None:
    """Check the header of a frame.

    Raises:
        ProtocolError: the header is not valid. The class is `blame`.
    """
    if number >= IGNORED_FROM:
        if length > MAX_FRAME:
            raise blame(f"expected a frame of no more than {MAX_FRAME} bytes, got {type_name(number)} of {length}")
        return
    try:
        kind = FrameType(number)
    except ValueError:
        raise blame(f"expected a known frame type, got 0x{number:02x} (length {length}, id {request_id})") from None
    least, most = SIZES[kind]
    if not least <= length <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}" if least else f"no more than {most}"
        raise blame(f"expected {wanted} bytes of payload in {kind.name}, got {length}")
    if (kind in OF_CONNECTION) != (request_id == 0):
        wanted = "0" if kind in OF_CONNECTION else f"1 to {MAX_ID}"
        raise blame(f"expected a request id of {wanted} in {kind.name}, got {request_id}")


def encode_frames(frames: list[Frame]) -> bytes:
    """Return the bytes of frames, joined in order."""
    parts: list[bytes | memoryview] = []
    for frame in frames:
        parts += (HEADER.pack(len(frame.payload), frame.type, frame.id), frame.payload)
    return b"".join(parts)


class ReceiveBuffer:
    """Splits received bytes into an opening line and frames.

    It stores the frame that is being received, in one allocation of its exact size, and the unread bytes.
    """

    def __init__(self, *, reuses: bool = False) -> None:
        """`reuses`: true to keep the allocation of a frame for the next frame of the same size. Without reuse, the
        allocator returns such large blocks to the system, and a client takes a fifth longer for a megabyte."""
        self._reuses = reuses
        self._pieces: deque[bytes] = deque()
        self._at = 0
        """The number of bytes of the first piece that were read."""
        self._line = bytearray()
        self._header = bytearray()
        self._payload = bytearray()
        self._missing = 0
        """Once the header is complete, the number of bytes of payload that are still missing."""

    def feed(self, piece: bytes) -> None:
        """Append received bytes."""
        if piece:
            self._pieces.append(piece)

    def _take(self, most: int) -> memoryview:
        """Take up to `most` bytes of the first piece."""
        piece = self._pieces[0]
        taken = memoryview(piece)[self._at : self._at + most]
        self._at += len(taken)
        if self._at == len(piece):
            self._pieces.popleft()
            self._at = 0
        return taken

    def discard(self) -> int:
        """Drop all unread bytes, and return their number."""
        discarded = sum(map(len, self._pieces)) - self._at
        self._pieces.clear()
        self._at = 0
        return discarded

    def opening(self, refusal: bool) -> bytes | None:
        """Return the peer's first line, or None while it is incomplete. `refusal`: true if the line may be `hpss! ...`.

        Raises:
            NotHpss: the bytes cannot become such a line.
        """
        while self._pieces:
            self._line += self._take(1)
            if not _may_open(self._line, refusal):
                fed = b"".join(itertools.islice(self._pieces, MAX_PREFACE))
                seen = bytes(self._line) + fed[self._at : self._at + MAX_PREFACE]
                raise NotHpss(_not_hpss(seen[:MAX_PREFACE]))
            if self._line.endswith(b"\n"):
                line = bytes(self._line)
                self._line.clear()
                return line
        return None

    def frame(self) -> Frame | None:
        """Return the next frame; None while it is incomplete.

        Raises:
            RemoteProtocolError: the header of the frame is not valid.
        """
        while len(self._header) < HEADER.size:
            if not self._pieces:
                return None
            self._header += self._take(HEADER.size - len(self._header))
            if len(self._header) == HEADER.size:
                self._missing, number, request_id = HEADER.unpack(self._header)
                check_header(self._missing, number, request_id, RemoteProtocolError)
                if len(self._payload) != self._missing:
                    self._payload = bytearray(self._missing)
        while self._missing:
            if not self._pieces:
                return None
            filled = len(self._payload) - self._missing
            taken = self._take(self._missing)
            self._payload[filled : filled + len(taken)] = taken
            self._missing -= len(taken)
        _, number, request_id = HEADER.unpack(self._header)
        frame = Frame(number, request_id, bytes(self._payload))
        self._header.clear()
        if not self._reuses:
            self._payload = bytearray()
        return frame

    @property
    def part_way(self) -> bool:
        """True if only a part of a frame was received."""
        return bool(self._header)

    def unfinished(self) -> str:
        """Describe an incomplete frame or line, for a message; empty between frames."""
        if self._line:
            return f"in the middle of the opening line (got {bytes(self._line)!r})"
        if not self._header:
            return ""
        if len(self._header) < HEADER.size:
            return f"in the middle of a frame header (got {len(self._header)} of {HEADER.size} bytes)"
        _, number, request_id = HEADER.unpack(self._header)
        size = len(self._payload)
        return f"in the middle of {type_name(number)} {request_id} (got {size - self._missing} of {size} bytes)"


_OPENING = re.compile(rb"hpss/([1-9][0-9]{0,4})\n")
_REFUSAL = re.compile(rb"hpss!((?: [1-9][0-9]{0,4})+)\n")


def versions_of(line: bytes) -> tuple[int, ...]:
    """Return the versions that an opening line names."""
    return tuple(int(word) for word in re.findall(rb"[0-9]+", line))


def encode_refusal(versions: tuple[int, ...]) -> bytes:
    """Return the line that refuses a peer's version. Its form never changes.

    Raises:
        LocalProtocolError: `versions` is empty or too long, or a version is out of range.
    """
    line = b"hpss!" + b"".join(b" %d" % version for version in versions) + b"\n"
    if not _REFUSAL.fullmatch(line) or len(line) > MAX_PREFACE:
        raise LocalProtocolError(f"expected versions of 1 to 99999 in {MAX_PREFACE} bytes, got {versions}")
    return line


def _may_open(line: bytes | bytearray, refusal: bool) -> bool:
    if line.endswith(b"\n"):
        return bool(_OPENING.fullmatch(line) or (refusal and _REFUSAL.fullmatch(line)))
    if len(line) >= MAX_PREFACE:
        return False
    rest = line[5:]
    if line[:5] == b"hpss/"[: len(line)]:
        return not rest or rest.isdigit()
    return refusal and line[:5] == b"hpss!"[: len(line)] and not rest.strip(b" 0123456789")


_BANNERS = (
    (re.compile(rb"HTTP/|<(?:!|html)", re.IGNORECASE), "an HTTP server"),
    (re.compile(rb"(?:GET|HEAD|POST|PUT|OPTIONS|CONNECT) "), "an HTTP client"),
    (re.compile(rb"SSH-"), "SSH"),
    (re.compile(rb"[0-9a-f]{4}(?:git-|ERR |version|[0-9a-f]{40})"), "git"),
    (re.compile(rb"bzr (?:message|request|response)|hello\n"), "the Bazaar smart protocol"),
    (re.compile(rb"\( (?:success|failure) "), "Subversion"),
    (re.compile(rb"[\x14-\x17]\x03[\x00-\x04]"), "TLS"),
    (re.compile(rb"220[ -]"), "FTP or SMTP"),
)


def _not_hpss(seen: bytes) -> str:
    """Return the message of a `NotHpss` for a peer whose first bytes are `seen`."""
    guess = next((f" (this looks like {name})" for banner, name in _BANNERS if banner.match(seen)), "")
    return f"the peer does not speak hpss: expected {PREFACE!r}, got {seen!r}{guess}"
