"""The messages between a command and the keeper. A command sends one packet of JSON, and gets at most one as the
answer. A packet may carry the descriptors of a connection."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from smartserver.agent.address import NoAgent

MAX_PACKET = 64 * 1024
MAX_DESCRIPTORS = 3


class Borrow(msgspec.Struct, tag=True):
    """A request for a connection that was stored under `key`."""

    key: str


class Give(msgspec.Struct, tag=True):
    """A connection to hold, whose descriptors come with the message. The connection is at rest: neither side has
    anything left to send, and no bytes are unread."""

    key: str
    where: str
    """The URL of the server. `Status` lists it, and `Forget` selects connections by it."""
    last_id: int
    """The id of the last request on the connection."""
    patience: float
    """Seconds of silence after which the server is taken for disconnected."""


class Status(msgspec.Struct, tag=True):
    """A request for a list of the held connections."""


class Forget(msgspec.Struct, tag=True):
    """A request to close the connections to the server at `where`, or all connections if it is empty."""

    where: str


class Stop(msgspec.Struct, tag=True):
    """A request to close all connections, and end."""


class Lent(msgspec.Struct):
    """A lent connection. Its descriptors are sent with the message."""

    last_id: int
    patience: float


class HeldLine(msgspec.Struct):
    """One held connection in the answer to `Status`."""

    where: str
    seconds: float
    """Seconds since the connection was passed to the agent."""


class Held(msgspec.Struct):
    """The answer to `Status`: all held connections, and the id of the keeper's process."""

    process: int
    lines: list[HeldLine]


Message = Borrow | Give | Status | Forget | Stop
T = TypeVar("T")

_message: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_lent: msgspec.json.Decoder[Lent | None] = msgspec.json.Decoder(Lent | None)
decode_message, decode_lent = _message.decode, _lent.decode
decode_held, decode_count = msgspec.json.Decoder(Held).decode, msgspec.json.Decoder(int).decode
"""Decoders of each kind of packet. The answers to `Forget` and `Stop` are a count of connections."""


def send(connection: socket.socket, message: object, descriptors: Sequence[int] = ()) -> None:
    """Send one packet."""
    socket.send_fds(connection, [msgspec.json.encode(message)], list(descriptors))


def receive(connection: socket.socket, decode: Callable[[bytes], T]) -> tuple[T, list[int]]:
    """Receive one packet and the descriptors that were sent with it."""
    descriptors: list[int] = []
    try:
        packet, descriptors, flags, _ = socket.recv_fds(connection, MAX_PACKET, MAX_DESCRIPTORS)
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise NoAgent(
                f"expected a packet of at most {MAX_PACKET} bytes and {MAX_DESCRIPTORS} descriptors, got more"
            )
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return decode(packet), descriptors
    except (OSError, msgspec.DecodeError, NoAgent) as error:
        close_all(descriptors)
        raise NoAgent(str(error) or type(error).__name__) from None


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
