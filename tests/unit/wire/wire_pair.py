"""Two connections joined, and how far some dialogs have come."""

from __future__ import annotations

from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import (
    Event,
    Ping,
    Pong,
    Request,
)
from smartserver.wire.limits import MAX_FRAME

C, S = Role.CLIENT, Role.SERVER
Said = tuple[Role, Event]


class Pair:
    """Two connections joined: each test checks both ends."""

    def __init__(self, *said: Said) -> None:
        self.ends = {role: Connection(role) for role in Role}
        for sender, event in said:
            self.say(sender, event)

    def say(self, sender: Role, event: Event) -> list[Event]:
        """Send an event, deliver its bytes; what the other end makes of them."""
        return self.deliver(sender, self.ends[sender].send(event))

    def deliver(self, sender: Role, sent: bytes) -> list[Event]:
        receiver = self.ends[sender.peer]
        receiver.receive_data(sent)
        return list(iter(receiver.next_event, None))


OPENED: tuple[Said, ...] = ((C, Ping()), (S, Pong()))
ASKED: tuple[Said, ...] = (*OPENED, (C, Request(1, b"")))
PUSHING: tuple[Said, ...] = (*OPENED, (C, Request(1, b"", body=True)))
FULL = bytes(range(256)) * (MAX_FRAME // 256)
