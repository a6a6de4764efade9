"""doc/spec/wire.md against the code: every hex block is fed to both ends, every table compared with its source."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from wire_pair import C, Pair, S, Said

import smartserver.verbs.all  # noqa: F401 - declares the verbs
from smartserver.vcs.git.selector import BLOBS, Cut, FetchSelector
from smartserver.verbs.declare import VERBS
from smartserver.wire import frames, limits, messages, states
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Error,
    Event,
    GoAway,
    PeerClosed,
    Ping,
    Pong,
    Progress,
    Reply,
    Request,
    VersionMismatch,
)
from smartserver.wire.frames import FrameType
from smartserver.wire.messages import (
    Advice,
    Call,
    Counters,
    Failure,
    Fault,
    KnownVersion,
    Outcome,
    RequestFlag,
    State,
    Status,
    encode,
    raw,
)
from smartserver.wire.messages import Progress as ProgressMessage
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage

REQUEST_ID = bytes(range(16))
INCARNATION = bytes(range(0xA0, 0xB0))
OLD = bytes(range(0x40, 0x54))
TIP = bytes(range(0x20, 0x34))
MAIN = b"refs/heads/main"
OLDER_MARK, NEWER_MARK = 0xB0B1, 0xC0C1


PING = RequestMessage("", REQUEST_ID, 0, [Call("Server.ping", raw([]))])
PUSH = RequestMessage(
    "/project",
    REQUEST_ID,
    0,
    [
        Call("Repository.insert_pack", raw([])),
        Call("Branch.set_last_revision", raw([MAIN, TIP, "ff", True, b"", b""])),
    ],
    int(RequestFlag.ATOMIC | RequestFlag.BODY),
    KnownVersion(INCARNATION, 7, OLDER_MARK),
)
PUSHED = ReplyMessage(
    [Outcome(Status.DONE, raw([1])), Outcome(Status.DONE, raw([[OLD]]))],
    State(INCARNATION, 8, 7, {MAIN: raw([[TIP]])}, mark=1),
    Counters(1800, 2, 5, 4096, 900, 6),
)
DIVERGED = Failure(
    Fault("refused", raw({})),
    [
        Outcome(Status.NOT_DONE, fault=Fault("not-done", raw({}))),
        Outcome(Status.REFUSED, fault=Fault("diverged", raw({"ref": MAIN, "tip": OLD}))),
    ],
    State(INCARNATION, 9, 7, {MAIN: raw([[OLD]])}, mark=NEWER_MARK),
)
STATE = State(
    INCARNATION,
    3,
    None,
    {MAIN: raw([[TIP]]), b"old": raw(None), b"stable": raw([[OLD, b"7"], [TIP, b"", True]])},
    {"bookmarks": raw({b"@": TIP, b"gone": None})},
    "git sha1",
    {"HEAD": MAIN},
    1,
)

MESSAGES: dict[str, msgspec.Struct] = {
    "a State with everything": STATE,
    "a Progress": ProgressMessage("verify", 40, 100),
    "an Advice": Advice("faults", raw({"faults": {"badTimezone": [3, "ab12"]}})),
    "a FetchSelector": FetchSelector([b"\1" * 20], 2, filters=[(BLOBS, 0)], follow=[b"refs/tags/"], thin=True),
    "a Cut": Cut([b"\2" * 20], [b"\1" * 20]),
}

DIALOGS: dict[str, list[Said]] = {
    "ping": [(C, Request(1, encode(PING))), (S, Reply(1, encode(ReplyMessage([Outcome(0, raw([]))]))))],
    "push": [
        (C, Request(1, encode(PUSH), body=True)),
        (C, Body(1, b"(the segment)")),
        (C, End(1, 1, 13)),
        (S, Reply(1, encode(PUSHED))),
    ],
    "refused while sending": [
        (C, Request(1, b"...", body=True)),
        (C, Body(1, b"(the graph)")),
        (S, Error(1, encode(DIVERGED))),
        (C, Body(1, b"(a part of the segments)")),
        (C, Cancel(1)),
    ],
    "two requests and a body down": [
        (C, Request(1, b"...")),
        (C, Request(2, b"...")),
        (S, Progress(1, encode(ProgressMessage("reading", 0)))),
        (S, Reply(1, b"...", body=True)),
        (S, Body(1, b"(a segment)")),
        (S, Reply(2, b"...")),
        (S, Body(1, b"(another)")),
        (S, End(1, 2, 20)),
    ],
    "cancelled": [
        (C, Request(1, b"...")),
        (S, Reply(1, b"...", body=True)),
        (S, Body(1, b"(a segment)")),
        (C, Cancel(1)),
        (S, Error(1, encode(Failure(Fault("cancelled", raw({})))))),
    ],
    "signs of life": [(C, Ping(b"7")), (S, Pong(b"7")), (S, GoAway(b"restart"))],
}
"""Title -> what is said; the payload `...` stands for one shown elsewhere."""

ANOTHER_VERSION = "a client of version 2"
TO_IGNORE = "a frame to ignore"


SPEC = (Path(__file__).parents[3] / "doc" / "spec" / "wire.md").read_text(encoding="utf-8")
SIDES = {"C": C, "S": S}
LINE = re.compile(r"(?:([CS])  )?((?:[0-9a-f]{2} ?)+)\s*(?:# .*)?")

Flight = tuple[Role | None, bytes]


def blocks() -> dict[str, list[Flight]]:
    """Title -> the bytes, as flights of one side after the other (no side in the block of a payload)."""
    found: dict[str, list[Flight]] = {}
    for block in re.findall(r"```hex\n(.*?)```", SPEC, re.DOTALL):
        title, *lines = block.strip().split("\n")
        flights: list[Flight] = []
        for line in lines:
            match = LINE.fullmatch(line)
            assert match, line
            side = SIDES.get(match[1])
            if not flights or flights[-1][0] is not side:
                flights.append((side, b""))
            flights[-1] = (side, flights[-1][1] + bytes.fromhex(match[2]))
        assert title.startswith("# ")
        found[title[2:]] = flights
    return found


BLOCKS = blocks()


def rows(first_column: str, after: str = "") -> list[list[str]]:
    """The cells of the first table after the heading `after` whose header begins with `first_column`."""
    text = SPEC[SPEC.index(after) :]
    table = text[text.index(f"\n| {first_column} |") + 1 :].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_every_block_is_known() -> None:
    assert set(BLOCKS) == {*DIALOGS, *MESSAGES, ANOTHER_VERSION, TO_IGNORE}
    assert len(BLOCKS) == SPEC.count("```hex")


@pytest.mark.parametrize("title", list(DIALOGS))
def test_dialog_is_what_it_says(title: str) -> None:
    """Read: the events it stands for. Written: these bytes."""
    said = DIALOGS[title]
    pair = Pair()
    heard: list[tuple[Role, Event]] = []
    for side, flight in BLOCKS[title]:
        assert side is not None
        # The sender must have said it, for what the other says next depends on it.
        written = b""
        while len(written) < len(flight):
            sender, event = said[len(heard)]
            assert sender is side
            encoded = pair.ends[side].send(event)
            received = pair.deliver(side, flight[len(written) : len(written) + len(encoded)])
            assert received == [event]
            written += encoded
            heard.append((sender, event))
        assert written == flight
    assert heard == said


@pytest.mark.parametrize("title", list(DIALOGS))
def test_payloads_of_a_dialog(title: str) -> None:
    decoders = {
        Request: messages.decode_request,
        Reply: messages.decode_reply,
        Error: messages.decode_failure,
        Progress: messages.decode_progress,
    }
    for _, event in DIALOGS[title]:
        if isinstance(event, Request | Reply | Error | Progress) and event.payload != b"...":
            decoded = decoders[type(event)](event.payload)
            assert messages.encode(decoded) == event.payload
            if isinstance(decoded, messages.Request):
                for call in decoded.calls:
                    arguments = msgspec.msgpack.decode(call.arguments, type=VERBS[call.verb].request_type)
                    assert msgspec.msgpack.encode(arguments) == bytes(call.arguments)


@pytest.mark.parametrize("title", list(MESSAGES))
def test_payload(title: str) -> None:
    [(side, payload)] = BLOCKS[title]
    example = MESSAGES[title]
    assert side is None
    assert msgspec.msgpack.encode(example) == payload
    assert msgspec.msgpack.decode(payload, type=type(example)) == example


def test_another_version() -> None:
    [(_, opening), (_, answer)] = BLOCKS[ANOTHER_VERSION]
    server = Connection(Role.SERVER)
    server.receive_data(opening)
    assert server.next_event() == VersionMismatch((2,))
    assert server.send(VersionMismatch((1,))) == answer
    client = Connection(Role.CLIENT)
    client.receive_data(answer)
    client.receive_eof()
    assert list(iter(client.next_event, None)) == [VersionMismatch((1,)), PeerClosed()]


def test_frame_to_ignore() -> None:
    [(_, flight)] = BLOCKS[TO_IGNORE]
    assert Pair().deliver(C, flight) == [Ping()]


def test_frame_types() -> None:
    told = {(int(number, 16), name, sizes) for number, name, _, sizes, _ in rows("type")}
    sizes = {kind: f"{least} to {most}" if least != most else f"{most}" for kind, (least, most) in frames.SIZES.items()}
    assert told == {(int(kind), kind.name, sizes[kind]) for kind in FrameType}


def test_who_sends_which_frame() -> None:
    able = {
        role: {step.value[0] for steps in table.values() for step in steps} | {FrameType.PING, FrameType.PONG}
        for role, table in states.TABLES.items()
    }
    able[S].add(FrameType.GOAWAY)
    for _, name, sender, _, _ in rows("type"):
        senders = {role for role in Role if FrameType[name] in able[role]}
        assert senders == (set(Role) if sender == "both" else {Role(sender)}), name


def test_header() -> None:
    offsets = [int(offset) for offset, *_ in rows("offset")]
    assert offsets == [0, 4, 5, frames.HEADER.size]
    assert frames.HEADER.unpack(bytes.fromhex("00000002 41 00000003")) == (2, 0x41, 3)


@pytest.mark.parametrize("role", list(Role))
def test_state_tables(role: Role) -> None:
    told = {
        name: dict(step.split(": ") for step in steps.split(", ")) if steps != "nothing" else {}
        for name, _, steps in rows(f"state of the {role.value}'s machine")
    }
    assert told == {
        state.name: {step.name: new.name for step, new in steps.items()} for state, steps in states.TABLES[role].items()
    }
    assert {name: meaning for name, meaning, _ in rows(f"state of the {role.value}'s machine")} == {
        state.name: state.value for state in states.TABLES[role]
    }


def test_coupling_table() -> None:
    told = {(client, server): then for client, server, then in rows("client", "Both machines begin in IDLE")}
    assert told == {(client.name, server.name): then.name for (client, server), then in states.AFTER_CLIENT.items()}


def test_flags() -> None:
    assert {(name, int(bit)) for name, bit, _ in rows("flag")} == {(flag.name, flag.value) for flag in RequestFlag}


def test_statuses() -> None:
    assert "0 done, 1 refused, 2 not done" in SPEC
    assert [(status.name, status.value) for status in messages.Status] == [("DONE", 0), ("REFUSED", 1), ("NOT_DONE", 2)]


@pytest.mark.parametrize(
    "struct",
    [
        messages.Request,
        messages.Call,
        messages.KnownVersion,
        messages.Reply,
        messages.Outcome,
        messages.Failure,
        messages.Fault,
        messages.State,
        messages.Counters,
        messages.Progress,
        messages.Advice,
    ],
    ids=lambda struct: str(struct.__name__),
)
def test_fields(struct: type[msgspec.Struct]) -> None:
    """Names, order, types as msgpack has them, and which may be left out."""
    told = rows("field", f"\n### {struct.__name__}\n")
    fields = msgspec.structs.fields(struct)
    assert [name for name, *_ in told] == [field.name for field in fields]
    assert [bool(default) for _, _, default, _ in told] == [not field.required for field in fields]
    for (name, kind, *_), field in zip(told, fields, strict=True):
        python = str(field.type)
        words = {"bytes": "bytes", "text": "str", "int": "int", "array": "list", "map": "dict", "any": "Raw"}
        word = kind.split()[0]
        if struct in (messages.Fault, messages.Advice) and field.type is msgspec.Raw:
            assert (name, word) == ("arguments", "map")  # Left encoded; `named` takes nothing else.
        else:
            assert words.get(word, word) in python, name
        assert (" or nil" in kind.split("(")[0]) == python.endswith(" | None"), name


def test_limits() -> None:
    told = {cell.split(":")[0]: float(value) for cell, value in rows("limit")}
    assert told == {name: float(getattr(limits, name)) for name in told}
    assert {name for name in vars(limits) if name.startswith("MAX_")} - set(told) == {"MAX_TIPS_KNOWN"}


def test_numbers_in_the_text() -> None:
    """No number in the text that is not the one in the code."""
    said = " ".join(SPEC.split())
    assert f"a low TCP_NOTSENT_LOWAT ({limits.NOTSENT_LOWAT})" in said
    assert f"A request or reply of up to {limits.INITIAL_WINDOW} bytes" in said
    assert f"larger than {limits.GRAPH_FIRST_THRESHOLD} bytes" in said
    assert f"after {limits.DRAIN_BYTES} bytes or {limits.DRAIN_SECONDS:g} seconds" in said
    assert f"more than {limits.UNREAD_BYTES} bytes of answers" in said
    assert f"no byte came for {limits.STALL_TIMEOUT:g} seconds" in said
    assert f"({limits.KEEP_IDLE:g} seconds here)" in said
    assert f"PING after {limits.PING_INTERVAL:g} seconds" in said
    assert f"give the peer up after {limits.IDLE_TIMEOUT:g}" in said
    assert f"at most {limits.MAX_OPEN_REQUESTS} requests of a connection" in said
    assert f"whose payload is exactly {limits.MAX_FRAME} bytes" in said
    assert f"All parts joined have at most {limits.MAX_MESSAGE} bytes" in said
    assert f"at most {limits.MAX_PREFACE} bytes with the newline" in said
    assert f"in order; 1 to {limits.MAX_CALLS}" in said
