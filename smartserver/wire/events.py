"""Events of a connection, those that happened and those to send: the same classes for both directions."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Request(msgspec.Struct, frozen=True):
    """A request, or a part of one.

    `body`: BODY frames and END follow the last part. `more`: another part of the payload follows; a payload given to
    `send` may be longer than a frame and then leaves as several.
    """

    id: int
    payload: bytes
    body: bool = False
    more: bool = False


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request, or a part of it; `body` and `more` as in `Request`."""

    id: int
    payload: bytes
    body: bool = False
    more: bool = False


class Error(msgspec.Struct, frozen=True):
    """The refusal of a request, or the end of a reply's body that cannot be finished; `more` as in `Request`."""

    id: int
    payload: bytes
    more: bool = False


class Body(msgspec.Struct, frozen=True):
    """Bytes of the body a side is sending; given to `send` it may be longer than a frame."""

    id: int
    chunk: bytes


class End(msgspec.Struct, frozen=True):
    """The whole body was sent: how many segments, and how many bytes in all its chunks. `trace`: what the server tells
    of the request (`messages.encode_server_trace`)."""

    id: int
    segments: int
    size: int
    trace: bytes = b""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a request; one frame."""

    id: int
    payload: bytes


class Cancel(msgspec.Struct, frozen=True):
    """The client wants no more of a request; it still gets its final answer."""

    id: int


class Ping(msgspec.Struct, frozen=True):
    """Are you there: to be answered by `Pong` with the same payload."""

    payload: bytes = b""


class Pong(msgspec.Struct, frozen=True):
    """The answer to a `Ping`."""

    payload: bytes = b""


class GoAway(msgspec.Struct, frozen=True):
    """The server takes no new requests here and will close when those it has are answered; UTF-8 for a person."""

    reason: bytes = b""


class VersionMismatch(msgspec.Struct, frozen=True):
    """The peers have no version in common; nothing more is read but the end.

    Received: the versions the peer speaks (a client) or opened with (a server). Sent, by a server that has received
    it and sent nothing yet: the versions this side speaks.
    """

    versions: tuple[int, ...]


class PeerClosed(msgspec.Struct, frozen=True):
    """The peer sends no more, and nothing it owes is missing. Not for sending."""


Event: TypeAlias = (
    Request | Reply | Error | Body | End | Progress | Cancel | Ping | Pong | GoAway | VersionMismatch | PeerClosed
)
