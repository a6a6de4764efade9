"""What one end may send the other end takes, however the bytes are cut and whatever crosses on the way."""

from __future__ import annotations

import contextlib

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
ids = st.integers(1, 4)
payloads = st.binary(max_size=12)
some_payloads = st.one_of(payloads, payloads, payloads, st.just(FULL), st.just(FULL + b"tail"))

from_client = st.one_of(
    st.builds(Request, ids, some_payloads, st.booleans()),
    st.builds(Request, ids, st.just(FULL), st.booleans(), st.just(True)),
    st.builds(Body, ids, some_payloads),
    st.builds(End, ids, st.integers(0, 3), st.just(0)),
    st.builds(Cancel, ids),
    st.builds(Ping, payloads),
    st.builds(Pong, payloads),
)
from_server = st.one_of(
    st.builds(Reply, ids, some_payloads, st.booleans()),
    st.builds(Error, ids, some_payloads),
    st.builds(Error, ids, st.just(FULL), st.just(True)),
    st.builds(Progress, ids, payloads),
    st.builds(Body, ids, some_payloads),
    st.builds(End, ids, st.integers(0, 3), st.just(0)),
    st.builds(Ping, payloads),
    st.builds(Pong, payloads),
    st.builds(GoAway, payloads),
)
actions = st.one_of(
    st.tuples(st.just(Role.CLIENT), from_client),
    st.tuples(st.just(Role.SERVER), from_server),
    st.tuples(st.sampled_from(Role), st.integers(1, 40)),  # so many bytes arrive from that side
)


def parts(event: Event) -> list[Event]:
    """What is received of an event: one for each frame it takes."""
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
    """Two ends and the bytes between them, not yet arrived."""

    def __init__(self) -> None:
        self.ends = {role: Connection(role) for role in Role}
        self.between = {role: bytearray() for role in Role}
        self.sent: dict[Role, list[Event]] = {role: [] for role in Role}
        self.received: dict[Role, list[Event]] = {role: [] for role in Role}
        self.sums: dict[tuple[Role, int], int] = {}

    def send(self, sender: Role, event: Event) -> None:
        """Send it if it may be sent."""
        if isinstance(event, End):
            event = End(event.id, event.segments, self.sums.get((sender, event.id), 0))
        try:
            encoded = self.ends[sender].send(event)
        except LocalProtocolError:
            return
        if isinstance(event, Body):
            self.sums[sender, event.id] = self.sums.get((sender, event.id), 0) + len(event.chunk)
        note(type(event).__name__)
        self.between[sender] += encoded
        self.sent[sender] += parts(event)

    def deliver(self, sender: Role, count: int, piece: int) -> None:
        """Let `count` bytes arrive, at most `piece` at a time."""
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


@given(st.lists(actions, max_size=40), st.integers(1, 20))
def test_what_may_be_sent_is_understood(script: list[tuple[Role, Event | int]], piece: int) -> None:
    """Both ends act on what they know at that moment: answers, refusals and CANCELs cross as they like."""
    wire = Wire()
    for role, action in script:
        if isinstance(action, int):
            wire.deliver(role, action if action < 40 else len(wire.between[role]), max(piece, action * action))
        else:
            wire.send(role, action)
    check(wire)


push = st.tuples(
    st.lists(some_payloads, max_size=4),
    st.sampled_from(["end", "cancel", "cancel late"]),
    st.sampled_from(["reply", "body", "refuse early", "refuse late", "body cut short"]),
)


@given(st.lists(push, min_size=1, max_size=3), st.lists(st.integers(1, 100_000), min_size=1, max_size=8))
def test_any_split_gives_the_same_events(
    pushes: list[tuple[list[bytes], str, str]], cuts: list[int]
) -> None:
    """Uploads answered early, late or not at all, ended or cancelled: whole and cut the events are the same."""
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


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_long_frame_cut_anywhere(ends: bytes, data: st.DataObject) -> None:
    chunk = ends + FULL[len(ends) :]
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    encoded = client.send(Request(1, b"", body=True)) + client.send(Body(1, chunk)) + client.send(Cancel(1))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)), max_size=6)))
    events: list[Event] = []
    for start, stop in zip([0, *cuts], [*cuts, len(encoded)], strict=True):
        with contextlib.suppress(StopIteration):
            server.receive_data(encoded[start:stop])
            events += iter(server.next_event, None)
    assert events == [Request(1, b"", body=True), Body(1, chunk), Cancel(1)]
