"""The events of a connection. Received events and events to send are of the same classes."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Request(msgspec.Struct, frozen=True):
    """A request, or a part of one.

    `body`: true if BODY frames and END follow the last part. `more`: true if another part of the payload follows. A
    payload for `send` may be longer than a frame; it is then sent in several.
    """

    id: int
    payload: bytes
    body: bool = False
    more: bool = False


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request, or a part of it. `body` and `more` are as in `Request`."""

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
    """A chunk of a body. A chunk for `send` may be longer than a frame."""

    id: int
    chunk: bytes


class End(msgspec.Struct, frozen=True):
    """The end of a body. `segments`: the number of its segments. `size`: the bytes of all its chunks. `trace`: the
    server's trace of the request (`messages.encode_server_trace`); empty from a client."""

    id: int
    segments: int
    size: int
    trace: bytes = b""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a request, in one frame."""

    id: int
    payload: bytes


class Cancel(msgspec.Struct, frozen=True):
    """The client cancels a request. The request still gets a final answer."""

    id: int


class Ping(msgspec.Struct, frozen=True):
    """A test whether the peer is still connected."""

    payload: bytes = b""


class Pong(msgspec.Struct, frozen=True):
    """The answer to a `Ping`."""

    payload: bytes = b""


class GoAway(msgspec.Struct, frozen=True):
    """The server takes no new requests on this connection, and closes it once the open ones are answered. `reason`: a
    UTF-8 text for the user."""

    reason: bytes = b""


class VersionMismatch(msgspec.Struct, frozen=True):
    """The peers have no version in common. Nothing more is read except the end.

    A client receives the versions that the server speaks, and a server the version with which the client opened. Only a
    server that received this event, and has sent nothing yet, may send it, with its own versions.
    """

    versions: tuple[int, ...]


class PeerClosed(msgspec.Struct, frozen=True):
    """The peer closed its side after it had sent everything that the protocol requires. This event cannot be sent."""


Event: TypeAlias = (
    Request | Reply | Error | Body | End | Progress | Cancel | Ping | Pong | GoAway | VersionMismatch | PeerClosed
)
