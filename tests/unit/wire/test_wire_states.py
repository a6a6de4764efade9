"""The tables: what they accept is the grammar, in every state every other step is refused, and no state is a trap."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from smartserver.wire.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from smartserver.wire.limits import MAX_OPEN_REQUESTS
from smartserver.wire.states import (
    AFTER_CLIENT,
    CLIENT,
    OVER,
    TABLES,
    ClientState,
    ConnectionState,
    Role,
    State,
    Step,
)

C, S = Role.CLIENT, Role.SERVER
CONNECTION_STEPS = {Step.PING, Step.PONG, Step.GOAWAY}
REQUEST_STEPS = [step for step in Step if step not in CONNECTION_STEPS]

# What takes a new request to a state: the shortest way, found by walking.

Told = tuple[Role, Step]
Both = tuple[State, State]


def drive(role: Role, told: Iterable[Told], request_id: int = 1) -> ConnectionState:
    state = ConnectionState(role)
    for sender, step in told:
        state.step(sender, request_id, step)
    return state


def both(state: ConnectionState, request_id: int = 1) -> Both | None:
    machine = state._requests.get(request_id)
    return (machine.state[C], machine.state[S]) if machine else None


def reach() -> dict[Both, tuple[Told, ...]]:
    ways: dict[Both, tuple[Told, ...]] = {}
    frontier: list[tuple[Told, ...]] = [((C, step),) for step in CLIENT[ClientState.IDLE]]
    while frontier:
        way = frontier.pop(0)
        where = both(drive(C, way))
        if where is None or where in ways:
            continue
        ways[where] = way
        for sender in Role:
            frontier += [(*way, (sender, step)) for step in TABLES[sender][where[sender is S]]]
    return ways


WAYS = reach()


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("where", list(WAYS), ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_every_step_in_every_state(role: Role, where: Both) -> None:
    for sender, step in itertools.product(Role, REQUEST_STEPS):
        state = drive(role, WAYS[where])
        assert both(state) == where
        new = TABLES[sender][where[sender is S]].get(step)
        if new is None:
            blame = LocalProtocolError if sender is role else RemoteProtocolError
            with pytest.raises(ProtocolError) as caught:
                state.step(sender, 1, step)
            assert type(caught.value) is blame
            assert f"from the {sender.value}, got {step.value[0].name}" in str(caught.value)
            assert both(state) == where
        else:
            assert state.step(sender, 1, step)
            after = (new, where[1]) if sender is C else (where[0], new)
            after = (after[0], AFTER_CLIENT.get(after, after[1]))
            assert both(state) == (None if OVER.issuperset(after) else after)


@pytest.mark.parametrize("where", list(WAYS), ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_no_state_is_a_trap(where: Both) -> None:
    """From anywhere the client can cancel and the server can answer, and then the request is forgotten."""
    state = drive(C, WAYS[where])
    for _ in range(4):
        pair = both(state)
        if pair is None:
            break
        for sender in Role:
            mine = pair[sender is S]
            last = [step for step, new in TABLES[sender][mine].items() if new is not mine]
            if mine not in OVER and last:
                state.step(sender, 1, last[-1])
                break
    assert both(state) is None
    assert state._slots == {}


@pytest.mark.parametrize("role", list(Role))
def test_ids_only_rise(role: Role) -> None:
    state = drive(role, [(C, Step.REQUEST), (S, Step.REPLY)], 5)
    for used in (5, 4):
        with pytest.raises(ProtocolError, match=f"expected a request id above 5, got {used}"):
            state.step(C, used, Step.REQUEST)
    assert state.step(C, 6, Step.REQUEST)
    with pytest.raises(ProtocolError, match="above 6, got 5"):
        state.step(C, 5, Step.REQUEST)


def test_cancel_may_cross_the_final_answer() -> None:
    told = [(C, Step.REQUEST), (S, Step.REPLY)]
    assert drive(S, told).step(C, 1, Step.CANCEL) is False
    with pytest.raises(LocalProtocolError, match="CANCEL from the client for request 1, which is not open"):
        drive(C, told).step(C, 1, Step.CANCEL)
    with pytest.raises(RemoteProtocolError, match="CANCEL from the client for request 2, which is not open"):
        drive(S, told).step(C, 2, Step.CANCEL)


@pytest.mark.parametrize(
    ("sender", "told", "step", "what"),
    [
        (C, [(C, 1, Step.REQUEST_WITH_BODY)], Step.REQUEST_WITH_BODY, "body"),
        (C, [(C, 1, Step.REQUEST_WITH_BODY)], Step.REQUEST_WITH_BODY_MORE, "body"),
        (C, [(C, 1, Step.REQUEST_WITH_BODY), (S, 1, Step.ERROR)], Step.REQUEST_WITH_BODY, "body"),
        (C, [(C, 1, Step.REQUEST_WITH_BODY_MORE)], Step.REQUEST_MORE, "message"),
        (C, [(C, 1, Step.REQUEST_MORE)], Step.REQUEST_MORE, "message"),
        (
            S,
            [(C, 1, Step.REQUEST), (C, 2, Step.REQUEST), (S, 1, Step.REPLY_WITH_BODY)],
            Step.REPLY_WITH_BODY,
            "body",
        ),
        (S, [(C, 1, Step.REQUEST), (C, 2, Step.REQUEST), (S, 1, Step.REPLY_MORE)], Step.ERROR_MORE, "message"),
    ],
)
def test_one_at_a_time(sender: Role, told: list[tuple[Role, int, Step]], step: Step, what: str) -> None:
    """A second body or long message in the same direction waits; a small message does not."""
    state = ConnectionState(C)
    for who, request_id, earlier in told:
        state.step(who, request_id, earlier)
    with pytest.raises(ProtocolError, match=f"no more than one {what} from the {sender.value} at a time"):
        state.step(sender, 2, step)
    assert state.step(sender, 2, Step.REQUEST if sender is C else Step.REPLY)


def test_bodies_of_both_directions_do_not_wait_for_each_other() -> None:
    state = drive(C, [(C, Step.REQUEST), (S, Step.REPLY_WITH_BODY)])
    assert state.step(C, 2, Step.REQUEST_WITH_BODY)
    assert state.step(S, 1, Step.BODY, 3)
    assert state.step(C, 2, Step.BODY, 4)
    assert state.step(C, 2, Step.END, 4)
    assert state.step(C, 3, Step.REQUEST_WITH_BODY)


@pytest.mark.parametrize("sender", list(Role))
def test_end_says_the_sum(sender: Role) -> None:
    told = [(C, Step.REQUEST_WITH_BODY)] if sender is C else [(C, Step.REQUEST), (S, Step.REPLY_WITH_BODY)]
    state = drive(C, told)
    state.step(sender, 1, Step.BODY, 3)
    state.step(sender, 1, Step.BODY, 4)
    with pytest.raises(ProtocolError, match="expected 7 bytes in END 1, the sum of its BODY frames, got 6"):
        state.step(sender, 1, Step.END, 6)
    assert state.step(sender, 1, Step.END, 7)


def test_open_requests_are_limited() -> None:
    state = ConnectionState(S)
    for request_id in range(1, MAX_OPEN_REQUESTS + 1):
        state.step(C, request_id, Step.REQUEST)
    with pytest.raises(RemoteProtocolError, match=f"no more than {MAX_OPEN_REQUESTS} open requests"):
        state.step(C, MAX_OPEN_REQUESTS + 1, Step.REQUEST)
    state.step(S, 1, Step.REPLY)
    assert state.step(C, MAX_OPEN_REQUESTS + 1, Step.REQUEST)


@pytest.mark.parametrize("role", list(Role))
def test_pong_answers_one_ping(role: Role) -> None:
    state = ConnectionState(role)
    for sender in Role:
        with pytest.raises(ProtocolError, match=f"no PONG from the {sender.value}"):
            state.step_connection(sender, Step.PONG)
        state.step_connection(sender.peer, Step.PING)
        state.step_connection(sender, Step.PONG)
        with pytest.raises(ProtocolError, match="no PONG"):
            state.step_connection(sender, Step.PONG)


def test_going_away() -> None:
    """The client asks nothing new after it heard; at the server a request that crossed is as good as another."""
    states = {role: drive(role, [(C, Step.REQUEST)]) for role in Role}
    for state in states.values():
        with pytest.raises(ProtocolError, match="GOAWAY from the server only"):
            state.step_connection(C, Step.GOAWAY)
        state.step_connection(S, Step.GOAWAY)
        state.step(S, 1, Step.REPLY)
    with pytest.raises(LocalProtocolError, match="the server is going away: request 2"):
        states[C].step(C, 2, Step.REQUEST)
    assert states[S].step(C, 2, Step.REQUEST)
