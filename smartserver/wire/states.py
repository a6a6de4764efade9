"""The state machines of a connection, as tables that do not depend on the side that runs them.

Each request has two machines, one for the frames of the client and one for those of the server; both peers run both.
They are coupled in one place, `AFTER_CLIENT`: the frames that the client has sent decide when the server may answer.
"""

# Theory of operation
# ===================
#
# Rule 1: whatever changes the state of a connection or a request is in this file. As much as possible is in tables.
#
# Rule 2: nothing here knows which side we are. Both peers run the same machines on the same frames, so a frame that
# our side may not send is one that the other side would refuse. The role is used for one thing: whom an error blames.
# `LocalProtocolError` is a bug of ours, `RemoteProtocolError` is the peer's.
#
# There are three kinds of machine:
#
# 1) For each request a client machine (`CLIENT`): what the client has sent of it.
# 2) For each request a server machine (`SERVER`): what the server has sent of the answer.
# 3) For each side of the connection a small one (`SIDES`): silent, open, or closed.
#
# A machine moves when its own side sends a frame (`step`). The two machines of a request are coupled in one place,
# `AFTER_CLIENT`, which is asked after every step with the pair of states. It says when the server may answer:
#
#      client has sent            server may send
#      a part of the request      ERROR only                           (REFUSABLE)
#      all of it, or CANCEL       PROGRESS, then REPLY or ERROR        (ANSWERING)
#
# A request is forgotten when both machines have ended (`OVER`). Its id can never be used again, because ids only
# rise. So nothing is kept of requests that are over but the highest id.
#
# Two things are limited to one of a kind for each side of a connection (`Slot`): a body, and a message of several
# frames. A state says what it holds (`HOLDS`). That is how flow control works without windows: a body fills the link
# until it ends, and short frames of other requests pass between its frames.
#
# The hard case is CANCEL. It may cross the final answer on the link. Then the server has forgotten the request and
# reads a CANCEL for an id that is not open. That is no error, so `step` returns False for an id that it has seen. A
# client never needs this: it knows whether it has read the final answer. The other crossing is a refusal that comes
# while the client still sends its body. The server's machine is then over and the client's is not, so the request
# stays here, and the frames that still come count as correct, until END or CANCEL.
#
# What is ugly: GOAWAY, PING and PONG belong to no request and have no table. They are `step_connection`. The count of
# body bytes, which END must confirm, is beside the tables, too.

from __future__ import annotations

import enum

from smartserver.wire.errors import Interrupted, LocalProtocolError, ProtocolError, RemoteProtocolError
from smartserver.wire.frames import FrameType
from smartserver.wire.limits import MAX_OPEN_REQUESTS


class Role(enum.Enum):
    """The role of a peer on a connection."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def peer(self) -> Role:
        """The role of the peer of this role."""
        return Role.SERVER if self is Role.CLIENT else Role.CLIENT


class Step(enum.Enum):
    """A step of a state machine: the type of a frame, and True if its message continues in the next frame."""

    REQUEST = (FrameType.REQUEST, False)
    REQUEST_MORE = (FrameType.REQUEST, True)
    REQUEST_WITH_BODY = (FrameType.REQUEST_WITH_BODY, False)
    REQUEST_WITH_BODY_MORE = (FrameType.REQUEST_WITH_BODY, True)
    BODY = (FrameType.BODY, False)
    END = (FrameType.END, False)
    CANCEL = (FrameType.CANCEL, False)
    PROGRESS = (FrameType.PROGRESS, False)
    REPLY = (FrameType.REPLY, False)
    REPLY_MORE = (FrameType.REPLY, True)
    REPLY_WITH_BODY = (FrameType.REPLY_WITH_BODY, False)
    REPLY_WITH_BODY_MORE = (FrameType.REPLY_WITH_BODY, True)
    ERROR = (FrameType.ERROR, False)
    ERROR_MORE = (FrameType.ERROR, True)
    PING = (FrameType.PING, False)
    PONG = (FrameType.PONG, False)
    GOAWAY = (FrameType.GOAWAY, False)


class ClientState(enum.Enum):
    """The part of one request that the client has sent."""

    IDLE = "nothing"
    REQUEST = "a part of the request"
    REQUEST_THEN_BODY = "a part of the request; a body will follow"
    BODY = "the request and perhaps some of its body"
    DONE = "everything"
    CANCELLED = "CANCEL"


class ServerState(enum.Enum):
    """The part of one answer that the server has sent."""

    IDLE = "nothing, for nothing was asked"
    REFUSABLE = "nothing; the client is still sending, so only a refusal may come"
    ANSWERING = "nothing or PROGRESS"
    REPLY = "a part of the reply"
    REPLY_THEN_BODY = "a part of the reply; a body will follow"
    BODY = "the reply and perhaps some of its body"
    ERROR = "a part of the error"
    DONE = "the final answer"


State = ClientState | ServerState

CLIENT: dict[State, dict[Step, State]] = {
    ClientState.IDLE: {
        Step.REQUEST: ClientState.DONE,
        Step.REQUEST_MORE: ClientState.REQUEST,
        Step.REQUEST_WITH_BODY: ClientState.BODY,
        Step.REQUEST_WITH_BODY_MORE: ClientState.REQUEST_THEN_BODY,
    },
    ClientState.REQUEST: {
        Step.REQUEST: ClientState.DONE,
        Step.REQUEST_MORE: ClientState.REQUEST,
        Step.CANCEL: ClientState.CANCELLED,
    },
    ClientState.REQUEST_THEN_BODY: {
        Step.REQUEST_WITH_BODY: ClientState.BODY,
        Step.REQUEST_WITH_BODY_MORE: ClientState.REQUEST_THEN_BODY,
        Step.CANCEL: ClientState.CANCELLED,
    },
    ClientState.BODY: {
        Step.BODY: ClientState.BODY,
        Step.END: ClientState.DONE,
        Step.CANCEL: ClientState.CANCELLED,
    },
    ClientState.DONE: {Step.CANCEL: ClientState.CANCELLED},
    ClientState.CANCELLED: {},
}

SERVER: dict[State, dict[Step, State]] = {
    ServerState.IDLE: {},
    ServerState.REFUSABLE: {
        Step.ERROR: ServerState.DONE,
        Step.ERROR_MORE: ServerState.ERROR,
    },
    ServerState.ANSWERING: {
        Step.PROGRESS: ServerState.ANSWERING,
        Step.REPLY: ServerState.DONE,
        Step.REPLY_MORE: ServerState.REPLY,
        Step.REPLY_WITH_BODY: ServerState.BODY,
        Step.REPLY_WITH_BODY_MORE: ServerState.REPLY_THEN_BODY,
        Step.ERROR: ServerState.DONE,
        Step.ERROR_MORE: ServerState.ERROR,
    },
    ServerState.REPLY: {
        Step.REPLY: ServerState.DONE,
        Step.REPLY_MORE: ServerState.REPLY,
    },
    ServerState.REPLY_THEN_BODY: {
        Step.REPLY_WITH_BODY: ServerState.BODY,
        Step.REPLY_WITH_BODY_MORE: ServerState.REPLY_THEN_BODY,
    },
    ServerState.BODY: {
        Step.BODY: ServerState.BODY,
        Step.END: ServerState.DONE,
        Step.ERROR: ServerState.DONE,
        Step.ERROR_MORE: ServerState.ERROR,
    },
    ServerState.ERROR: {
        Step.ERROR: ServerState.DONE,
        Step.ERROR_MORE: ServerState.ERROR,
    },
    ServerState.DONE: {},
}

TABLES: dict[Role, dict[State, dict[Step, State]]] = {Role.CLIENT: CLIENT, Role.SERVER: SERVER}

AFTER_CLIENT: dict[tuple[State, State], State] = {
    (ClientState.REQUEST, ServerState.IDLE): ServerState.REFUSABLE,
    (ClientState.REQUEST_THEN_BODY, ServerState.IDLE): ServerState.REFUSABLE,
    (ClientState.BODY, ServerState.IDLE): ServerState.REFUSABLE,
    (ClientState.DONE, ServerState.IDLE): ServerState.ANSWERING,
    (ClientState.DONE, ServerState.REFUSABLE): ServerState.ANSWERING,
    (ClientState.CANCELLED, ServerState.REFUSABLE): ServerState.ANSWERING,
}
"""The new state of the server's machine, by the pair of states (client, server) after a step. Other pairs do not change
it."""

OVER: frozenset[State] = frozenset({ClientState.DONE, ClientState.CANCELLED, ServerState.DONE})
"""The final states. A request is dropped when both its machines are in a final state."""


class Slot(enum.Enum):
    """Something of which each side of a connection may send only one at a time."""

    BODY = "a body"
    MESSAGE = "a message of several frames"


HOLDS: dict[State, frozenset[Slot]] = {
    ClientState.REQUEST: frozenset({Slot.MESSAGE}),
    ClientState.REQUEST_THEN_BODY: frozenset({Slot.MESSAGE, Slot.BODY}),
    ClientState.BODY: frozenset({Slot.BODY}),
    ServerState.REPLY: frozenset({Slot.MESSAGE}),
    ServerState.REPLY_THEN_BODY: frozenset({Slot.MESSAGE, Slot.BODY}),
    ServerState.BODY: frozenset({Slot.BODY}),
    ServerState.ERROR: frozenset({Slot.MESSAGE}),
}
"""The slots that a machine holds in each state."""


class Side(enum.Enum):
    """The state of one side of a connection. In error messages, the value describes what the side has sent."""

    SILENT = "nothing"
    OPEN = "its opening line"
    FOREIGN = "that it speaks another version"
    CLOSED = "that it is done"


class Opening(enum.Enum):
    """The events that open, refuse or close one side of a connection."""

    PREFACE = "hpss/1"
    OTHER_VERSION = "hpss/N or hpss! N"
    EOF = "end of its bytes"


SIDES: dict[Side, dict[Opening, Side]] = {
    Side.SILENT: {Opening.PREFACE: Side.OPEN, Opening.OTHER_VERSION: Side.FOREIGN, Opening.EOF: Side.CLOSED},
    Side.OPEN: {Opening.EOF: Side.CLOSED},
    Side.FOREIGN: {Opening.EOF: Side.CLOSED},
    Side.CLOSED: {},
}


class Machine:
    """The states of both machines of one request, and the number of bytes of body that each side has sent."""

    __slots__ = ("body", "state")

    def __init__(self) -> None:
        self.state: dict[Role, State] = {Role.CLIENT: ClientState.IDLE, Role.SERVER: ServerState.IDLE}
        self.body = {Role.CLIENT: 0, Role.SERVER: 0}


class ConnectionState:
    """The state of a connection: its two sides, and the requests that are not over. `role`: the role of this end."""

    def __init__(self, role: Role, last_id: int = 0) -> None:
        """`last_id`: the id of the last request on a connection that was at rest; 0 for a new connection."""
        self.role = role
        begun = Side.OPEN if last_id else Side.SILENT
        self.sides = {Role.CLIENT: begun, Role.SERVER: begun}
        self.going_away = False
        self._requests: dict[int, Machine] = {}
        self._last_id = last_id
        self._slots: dict[tuple[Role, Slot], int] = {}
        self._unanswered_pings = {Role.CLIENT: 0, Role.SERVER: 0}

    def _blame(self, sender: Role) -> type[ProtocolError]:
        return LocalProtocolError if sender is self.role else RemoteProtocolError

    @property
    def at_rest(self) -> bool:
        """True if both sides are open, no request is open, each PING was answered, and no GOAWAY was sent."""
        both = all(side is Side.OPEN for side in self.sides.values())
        return both and not self._requests and not any(self._unanswered_pings.values()) and not self.going_away

    def opening(self, sender: Role, what: Opening) -> None:
        """Record that `sender` opened, refused or closed its side.

        Raises:
            ProtocolError: the sender may not do this now.
        """
        side = self.sides[sender]
        if what not in SIDES[side]:
            raise self._blame(sender)(f"the {sender.value} has sent {side.value}: {what.value} may not follow")
        self.sides[sender] = SIDES[side][what]

    def step(self, sender: Role, request_id: int, step: Step, size: int = 0) -> bool:
        """Record a frame of a request. `size`: the bytes of body in the frame; for END, the bytes of the whole body.

        Return False for a CANCEL that crossed the final answer, and that must be ignored.

        Raises:
            ProtocolError: the sender may not send this frame now; nothing has changed.
        """
        machine = self._requests.get(request_id)
        if machine is None:
            if (
                sender is Role.CLIENT
                and step is Step.CANCEL
                and self.role is Role.SERVER
                and request_id <= self._last_id
            ):
                return False
            machine = self._begin(sender, request_id, step)
        old = machine.state[sender]
        new = TABLES[sender][old].get(step)
        if new is None:
            raise self._out_of_order(sender, request_id, old, step)
        for slot in HOLDS.get(new, ()):
            holder = self._slots.get((sender, slot), request_id)
            if holder != request_id:
                raise self._blame(sender)(
                    f"expected no more than one {slot.name.lower()} from the {sender.value} at a time, "
                    f"got {step.value[0].name} {request_id} while {slot.value} of request {holder} is under way"
                )
        if step is Step.END and size != machine.body[sender]:
            raise self._blame(sender)(
                f"expected {machine.body[sender]} bytes in END {request_id}, the sum of its BODY frames, got {size}"
            )
        self._move(machine, sender, request_id, new)
        if step is Step.BODY:
            machine.body[sender] += size
        return True

    def _begin(self, sender: Role, request_id: int, step: Step) -> Machine:
        """Return the machines of a new request."""
        blame = self._blame(sender)
        if sender is Role.SERVER or step not in CLIENT[ClientState.IDLE]:
            raise blame(f"got {step.value[0].name} from the {sender.value} for request {request_id}, which is not open")
        if request_id <= self._last_id:
            raise blame(f"expected a request id above {self._last_id}, got {request_id}: ids only rise")
        if len(self._requests) == MAX_OPEN_REQUESTS:
            raise blame(f"expected no more than {MAX_OPEN_REQUESTS} open requests, got another")
        if self.going_away and self.role is Role.CLIENT:
            raise blame(f"the server is going away: request {request_id} needs another connection")
        return Machine()

    def _move(self, machine: Machine, sender: Role, request_id: int, new: State) -> None:
        """Move the sender's machine to the state `new`, which `step` has checked."""
        state = machine.state
        state[sender] = new
        pair = (state[Role.CLIENT], state[Role.SERVER])
        state[Role.SERVER] = AFTER_CLIENT.get(pair, state[Role.SERVER])
        self._last_id = max(self._last_id, request_id)
        for slot in Slot:
            if slot in HOLDS.get(new, ()):
                self._slots[sender, slot] = request_id
            elif self._slots.get((sender, slot)) == request_id:
                del self._slots[sender, slot]
        if OVER.issuperset(state.values()):
            del self._requests[request_id]
        else:
            self._requests[request_id] = machine

    def _out_of_order(self, sender: Role, request_id: int, old: State, step: Step) -> ProtocolError:
        return self._blame(sender)(
            f"request {request_id}: expected {expected(sender, old)} from the {sender.value}, got {step.value[0].name}"
        )

    def step_connection(self, sender: Role, step: Step) -> None:
        """Record a frame that belongs to no request.

        Raises:
            ProtocolError: the sender may not send this frame now.
        """
        if step is Step.PING:
            self._unanswered_pings[sender] += 1
        elif step is Step.PONG:
            if not self._unanswered_pings[sender.peer]:
                raise self._blame(sender)(f"expected no PONG from the {sender.value}, for no PING is unanswered")
            self._unanswered_pings[sender.peer] -= 1
        elif sender is Role.CLIENT:
            raise self._blame(sender)("expected GOAWAY from the server only, got one from the client")
        else:
            self.going_away = True

    def end(self, sender: Role, unfinished: str) -> None:
        """Record the end of a side's bytes. `unfinished`: the description of an incomplete frame, or empty.

        Raises:
            Interrupted: the side must still send something.
        """
        owed = [unfinished] if unfinished else []
        for request_id, machine in self._requests.items():
            state = machine.state[sender]
            if self.sides[sender] is not Side.FOREIGN and state not in OVER:
                owed.append(f"request {request_id}: expected {expected(sender, state)}")
        when = "before it said anything" if self.sides[sender] is Side.SILENT and not unfinished else "too early"
        self.opening(sender, Opening.EOF)
        if owed:
            shown = "; ".join(owed[:3]) + (f"; and {len(owed) - 3} more" if len(owed) > 3 else "")
            raise Interrupted(f"the {sender.value} closed the connection {when}: {shown}")


def expected(sender: Role, state: State) -> str:
    """Return the names of the frames that a side may send in a state, for messages."""
    names = list(dict.fromkeys(step.value[0].name for step in TABLES[sender][state]))
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "nothing more"
