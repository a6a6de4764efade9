"""What happened on a connection, and what to send: the same classes for both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Request:
    """A request, or a part of one.

    `body`: BODY frames and END follow the last part. `more`: another part of the payload follows; a payload given to
    `send` may be longer than a frame and then leaves as several.
    """

    id: int
    payload: bytes
    body: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request, or a part of it; `body` and `more` as in `Request`."""

    id: int
    payload: bytes
    body: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class Error:
    """The refusal of a request, or the end of a reply's body that cannot be finished; `more` as in `Request`."""

    id: int
    payload: bytes
    more: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes of the body a side is sending; given to `send` it may be longer than a frame."""

    id: int
    chunk: bytes


@dataclass(frozen=True, slots=True)
class End:
    """The whole body was sent: how many segments, and how many bytes in all its chunks."""

    id: int
    segments: int
    size: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is; one frame."""

    id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Cancel:
    """The client wants no more of a request; it still gets its final answer."""

    id: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there: to be answered by `Pong` with the same payload."""

    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a `Ping`."""

    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class GoAway:
    """The server takes no new requests here and will close when those it has are answered; UTF-8 for a person."""

    reason: bytes = b""


@dataclass(frozen=True, slots=True)
class VersionMismatch:
    """The peers have no version in common; nothing more is read but the end.

    Received: the versions the peer speaks (a client) or opened with (a server). Sent, by a server that has received
    it and sent nothing yet: the versions this side speaks.
    """

    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """The peer sends no more, and nothing it owes is missing. Not for sending."""


Event: TypeAlias = (
    Request | Reply | Error | Body | End | Progress | Cancel | Ping | Pong | GoAway | VersionMismatch | PeerClosed
)
