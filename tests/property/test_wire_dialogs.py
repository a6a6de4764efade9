"""Each end accepts everything that the other may send, for any cut of the bytes and any crossing of messages."""

from __future__ import annotations

import random

import msgspec
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st

from smartserver.wire.connection import Connection, Role
from smartserver.wire.errors import LocalProtocolError
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Error,
    Event,
    GoAway,
    Ping,
    Pong,
    Progress,
    Reply,
    Request,
)
from smartserver.wire.limits import MAX_FRAME

FULL = b"f" * MAX_FRAME
some_payloads = st.one_of(*[st.binary(max_size=12)] * 3, st.just(FULL), st.just(FULL + b"tail"))


def candidates(role: Role, number: int, payload: bytes, body: bool) -> list[Event]:
    """Return every event that `role` might send for request `number`."""
    more = len(payload) == MAX_FRAME
    if role is Role.CLIENT:
        return [
            Request(number, payload, body, more),
            Body(number, payload),
            End(number, 1, 0),
            *([] if body else [Cancel(number)]),
            *([Ping(payload[:9])] if len(payload) > 8 else []),
            Pong(payload[:9]),
        ]
    return [
        Progress(number, payload[:9]),
        Reply(number, payload, body, more),
        Body(number, payload),
        End(number, 1, 0),
        *([] if body else [Error(number, payload, more)]),
        *([Ping(payload[:9])] if len(payload) > 8 else []),
        Pong(payload[:9]),
        *([GoAway(payload[:9])] if payload.startswith(b"go") else []),
    ]


def parts(event: Event) -> list[Event]:
    """Return the events that the receiver of an event gets: one for each frame."""
    if isinstance(event, Body):
        return [Body(event.id, event.chunk[at : at + MAX_FRAME]) for at in range(0, len(event.chunk) or 1, MAX_FRAME)]
    if not isinstance(event, Request | Reply | Error):
        return [event]
    ends = len(event.payload) if event.more else len(event.payload) + 1
    cut = [event.payload[at : at + MAX_FRAME] for at in range(0, ends, MAX_FRAME)]
    more = [True] * (len(cut) - 1) + [event.more]
    if isinstance(event, Error):
        return [Error(event.id, *part) for part in zip(cut, more, strict=True)]
    return [type(event)(event.id, payload, event.body, goes_on) for payload, goes_on in zip(cut, more, strict=True)]


class Wire:
    """Two ends, and the bytes between them that have not arrived."""

    def __init__(self) -> None:
        self.ends = {role: Connection(role) for role in Role}
        self.between = {role: bytearray() for role in Role}
        self.sent: dict[Role, list[Event]] = {role: [] for role in Role}
        self.received: dict[Role, list[Event]] = {role: [] for role in Role}
        self.sums: dict[tuple[Role, int], int] = {}

    def send(self, sender: Role, event: Event) -> bool:
        """Send an event if the sender may, and tell whether it did."""
        if isinstance(event, End):
            event = msgspec.structs.replace(event, size=self.sums.get((sender, event.id), 0))
        try:
            encoded = self.ends[sender].send(event)
        except LocalProtocolError:
            return False
        if isinstance(event, Body):
            self.sums[sender, event.id] = self.sums.get((sender, event.id), 0) + len(event.chunk)
        note(type(event).__name__)
        self.between[sender] += encoded
        self.sent[sender] += parts(event)
        return True

    def known(self, role: Role) -> list[int]:
        """Return the requests that `role` knows, the newest first."""
        told = self.sent[role] if role is Role.CLIENT else self.received[Role.CLIENT]
        return list(dict.fromkeys(seen.id for seen in reversed(told) if isinstance(seen, Request)))

    def deliver(self, sender: Role, count: int, piece: int) -> None:
        """Deliver `count` bytes, at most `piece` at a time."""
        receiver = self.ends[sender.peer]
        arriving, self.between[sender] = self.between[sender][:count], self.between[sender][count:]
        for at in range(0, len(arriving), piece):
            receiver.receive_data(bytes(arriving[at : at + piece]))
            self.received[sender] += iter(receiver.next_event, None)


def check(wire: Wire) -> None:
    for sender in Role:
        wire.deliver(sender, len(wire.between[sender]), 1 << 16)
    for sender in Role:
        late = [event for event in wire.sent[sender] if event not in wire.received[sender]]
        assert all(isinstance(event, Cancel) for event in late)
        assert [event for event in wire.sent[sender] if event not in late] == wire.received[sender]
        note(f"{len(late)} cancelled too late")


step = st.tuples(st.sampled_from(Role), st.integers(0, 999), some_payloads, st.booleans())


@given(st.lists(step, min_size=30, max_size=80), st.integers(1, 20))
def test_what_may_be_sent_is_understood(script: list[tuple[Role, int, bytes, bool]], piece: int) -> None:
    """Both ends act on their knowledge at that moment: answers, refusals and CANCELs cross freely.

    Each step lets some bytes arrive, or sends the first allowed event in a random order.
    """
    wire = Wire()
    for role, order, payload, body in script:
        turn = random.Random(order)
        if turn.random() < 0.4:
            waiting = len(wire.between[role])
            wire.deliver(role, turn.choice([waiting, waiting, waiting // 2]), max(piece, waiting // 100))
            continue
        known = wire.known(role)
        newer = [known[0] + 1 if known else 1] if role is Role.CLIENT else []
        events = [event for number in known[:3] + newer for event in candidates(role, number, payload, body)]
        turn.shuffle(events)
        any(wire.send(role, event) for event in events)
    check(wire)


push = st.tuples(
    st.lists(some_payloads, max_size=4),
    st.sampled_from(["end", "cancel", "cancel late"]),
    st.sampled_from(["reply", "body", "refuse early", "refuse late", "body cut short"]),
)


@given(st.lists(push, min_size=1, max_size=3), st.lists(st.integers(1, 100_000), min_size=1, max_size=8))
def test_any_split_gives_the_same_events(pushes: list[tuple[list[bytes], str, str]], cuts: list[int]) -> None:
    """Uploads are answered early, late or not at all, ended or cancelled; whole and cut bytes give the same events."""
    heard: list[dict[Role, list[Event]]] = []
    for sizes in ([1 << 30], cuts):
        wire = Wire()
        turn = 0

        def arrive(sender: Role, wire: Wire = wire, sizes: list[int] = sizes) -> None:
            nonlocal turn
            while wire.between[sender]:
                size = max(sizes[turn % len(sizes)], len(wire.between[sender]) // 200)
                turn += 1
                wire.deliver(sender, size, size)

        for number, (chunks, end, answer) in enumerate(pushes, 1):
            wire.send(Role.CLIENT, Request(number, b"push", body=True))
            arrive(Role.CLIENT)
            if answer == "refuse early":
                wire.send(Role.SERVER, Error(number, b"no"))
            for chunk in chunks:
                wire.send(Role.CLIENT, Body(number, chunk))
            wire.send(Role.CLIENT, Cancel(number) if end == "cancel" else End(number, len(chunks), 0))
            arrive(Role.CLIENT)
            if answer == "refuse late":
                wire.send(Role.SERVER, Error(number, b"no"))
            wire.send(Role.SERVER, Progress(number, b"half"))
            wire.send(Role.SERVER, Reply(number, b"yes", body=answer.startswith("body")))
            wire.send(Role.SERVER, Body(number, b"some"))
            wire.send(Role.SERVER, Error(number, b"lost") if answer == "body cut short" else End(number, 1, 0))
            if end == "cancel late":
                wire.send(Role.CLIENT, Cancel(number))
            arrive(Role.SERVER)
        check(wire)
        heard.append(wire.received)
    assert heard[0] == heard[1]
