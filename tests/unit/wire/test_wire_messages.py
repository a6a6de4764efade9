"""Payloads: exact bytes, what a request refuses and a reply skips; relations between limits."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

import msgspec
import pytest

from smartserver.wire import frames, limits, messages
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_ARGUMENTS, MAX_CALLS, MAX_ENTRIES, MAX_MAPS, MAX_WORDS
from smartserver.wire.messages import (
    Advice,
    Failure,
    Fault,
    Outcome,
    Progress,
    Reply,
    Request,
    ServerSpan,
    ServerTrace,
    State,
    Status,
    entries_of,
    named,
    raw,
)
from smartserver.wire.tls import fingerprint

Decode = Callable[[bytes], msgspec.Struct]
pack = msgspec.msgpack.encode
H = bytes.fromhex


def test_fields_at_the_end_may_be_left_out() -> None:
    assert messages.decode_request(H("94 a0 c400 00 90")) == Request("", b"", 0, [])
    assert messages.decode_reply(H("91 90")) == Reply([])
    assert messages.encode(Reply([])) == H("94 90 c0 96 000000000000 90")
    assert messages.encode(Reply([], advice=[Advice("x", raw({}))])) == H("95 90 c0 96 000000000000 90 91 92 a178 80")
    assert messages.decode_failure(H("91 92 a1 78 80")) == Failure(Fault("x", raw({})))
    assert messages.decode_progress(H("92 a1 78 05")) == Progress("x", 5)


NO_REQUESTS = {
    "field of a request": pack(["", b"", 0, [], 0, None, {}, "new"]),
    "field of a call": pack(["", b"", 0, [["verb", [], "new"]]]),
    "field of known": pack(["", b"", 0, [], 0, [b"", 1, "new"]]),
    "path not text": pack([b"path", b"", 0, []]),
    "id not binary": pack(["", "id", 0, []]),
    "age not whole": pack(["", b"", -0.5, []]),
    "map": pack({"path": ""}),
    "trailing byte": pack(["", b"", 0, []]) + b"\0",
    "cut short": pack(["", b"", 0, []])[:-1],
    "not UTF-8": H("94 a1 ff c400 00 90"),
    "never used": H("c1"),
    "empty": b"",
    "deep": b"\x91" * 100_000,
}


@pytest.mark.parametrize("wrong", NO_REQUESTS.values(), ids=NO_REQUESTS)
def test_request_is_refused(wrong: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=f"expected a request, got {len(wrong)} bytes that are none: "):
        messages.decode_request(wrong)


@pytest.mark.parametrize(
    ("decode", "payload", "value"),
    [
        (
            messages.decode_reply,
            [
                [[0, 5, None, "new"]],
                [b"i", 3, None, {}, {}, "", {}, 7, "new"],
                [1, 2, 3, 4, 5, 6, "new"],
                ["c"],
                [["packs", {"packs": 9}, "new"]],
                [[["disk", "sync", 1, 2, "new"]], {"file_syncs": 1}, "new"],
                "new",
            ],
            Reply(
                [Outcome(Status.DONE, msgspec.Raw(b"\x05"))],
                State(b"i", 3, None, {}, mark=7),
                capabilities=["c"],
                advice=[Advice("packs", raw({"packs": 9}))],
                trace=ServerTrace([ServerSpan("disk", "sync", 1, 2)], {"file_syncs": 1}),
            ),
        ),
        (
            messages.decode_failure,
            [["x", {"a": 1}, "new"], [], None, [], [], None, "new"],
            Failure(Fault("x", raw({"a": 1}))),
        ),
        (messages.decode_progress, ["x", 1, 2, "new"], Progress("x", 1, 2)),
    ],
)
def test_unknown_fields_of_an_answer_are_skipped(decode: Decode, payload: object, value: msgspec.Struct) -> None:
    decoded = decode(pack(payload))
    assert type(decoded) is type(value)
    for field in ("outcomes", "fault", "state", "capabilities", "advice", "trace", "phase", "done", "total"):
        assert getattr(decoded, field, None) == getattr(value, field, None)


@pytest.mark.parametrize(
    ("decode", "what"),
    [
        (messages.decode_reply, "a reply"),
        (messages.decode_failure, "an error"),
        (messages.decode_progress, "progress"),
    ],
)
def test_answer_that_is_none(decode: Decode, what: str) -> None:
    for payload in (b"", b"\xc1", pack("text"), pack([])):
        with pytest.raises(RemoteProtocolError, match=f"expected {what}, got {len(payload)} bytes that are none: "):
            decode(payload)


TOO_MANY = {
    "outcomes": (messages.decode_reply, "95 dd", MAX_CALLS),
    "refs": (messages.decode_reply, "95 90 94 c400 01 c0 df", MAX_ENTRIES),
    "maps": (messages.decode_reply, "95 90 95 c400 01 c0 80 df", MAX_MAPS),
    "settings": (messages.decode_reply, "95 90 97 c400 01 c0 80 80 a0 df", MAX_WORDS),
    "capabilities": (messages.decode_reply, "95 90 c0 90 dd", MAX_WORDS),
    "advice": (messages.decode_reply, "95 90 c0 90 90 dd", MAX_WORDS),
    "outcomes of an error": (messages.decode_failure, "95 92 a178 80 dd", MAX_CALLS),
    "refs of an error": (messages.decode_failure, "95 92 a178 80 90 94 c400 01 c0 df", MAX_ENTRIES),
    "capabilities of an error": (messages.decode_failure, "95 92 a178 80 90 c0 90 dd", MAX_WORDS),
}


@pytest.mark.parametrize(("decode", "before", "most"), TOO_MANY.values(), ids=TOO_MANY)
def test_an_answer_with_more_than_a_client_takes_is_refused(decode: Decode, before: str, most: int) -> None:
    """By the count that goes before them: nothing else is there."""
    with pytest.raises(RemoteProtocolError, match=rf"of length <= {most} "):
        decode(H(before) + (most + 1).to_bytes(4, "big"))
    with pytest.raises(RemoteProtocolError, match="truncated"):
        decode(H(before) + most.to_bytes(4, "big"))


def test_entries_of_maps_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(**maps: str) -> State:
        return State(b"i", 3, None, {}, {name: msgspec.Raw(H(entries)) for name, entries in maps.items()})

    assert entries_of(said(tags="82 c40161 c40131 c40162 c0", phases="80")) == {
        "tags": {b"a": b"1", b"b": None},
        "phases": {},
    }
    for entries in ("01", "81 01 c0", "81 c40161 01", "df 00100001"):
        with pytest.raises(RemoteProtocolError, match=r"expected entries of a map, got \d+ bytes that are none"):
            entries_of(said(tags=entries))
    monkeypatch.setattr(messages, "MAX_ENTRIES", 2)
    three = said(a="81 c40161 c0", b="80", c="82 c40161 c0 c40162 c0")
    with pytest.raises(RemoteProtocolError, match=r"expected at most 2 entries of maps, got 3 or more$"):
        entries_of(three)


@pytest.mark.parametrize("said", [Advice, Fault])
def test_arguments_by_name(said: type[Advice | Fault]) -> None:
    assert named(said("x", raw({"a": b"1", "b": [2, None]}))) == {"a": b"1", "b": [2, None]}
    longest = {"a": bytes(MAX_ARGUMENTS - len(H("81 a161 c6 00000000")))}
    assert named(said("x", raw(longest))) == longest
    with pytest.raises(
        RemoteProtocolError, match=f"at most {MAX_ARGUMENTS} bytes of arguments, got {MAX_ARGUMENTS + 1}"
    ):
        named(said("x", raw({"a": longest["a"] + b"0"})))


@pytest.mark.parametrize(
    "wrong", [H("90"), H("c0"), H("05"), H("81 01 02"), H("81 a1ff 01"), H("81 a161"), H("c1"), b""]
)
def test_arguments_that_are_none(wrong: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=f"expected arguments, got {len(wrong)} bytes that are none: "):
        named(Fault("x", msgspec.Raw(wrong)))


def test_frames_fit_their_fields() -> None:
    assert limits.MAX_FRAME < 1 << 32
    assert limits.PIECE % limits.MAX_FRAME == 0
    assert max(most for _, most in frames.SIZES.values()) == limits.MAX_FRAME
    assert set(frames.SIZES) == set(frames.FrameType)
    assert max(frames.FrameType) < frames.IGNORED_FROM


def test_order() -> None:
    assert limits.INITIAL_WINDOW < limits.RECEIVE_CHUNK <= limits.MAX_FRAME < limits.MAX_MESSAGE
    assert limits.PING_INTERVAL < limits.IDLE_TIMEOUT < limits.STALL_TIMEOUT < limits.KEEP_IDLE


def test_a_client_that_asks_one_thing_after_the_other_meets_no_bound_on_what_it_has_not_read() -> None:
    """A reply of any length counts as one; beside it only PONGs, one in `PING_INTERVAL`, may lie unread."""
    day = 86_400
    assert day / limits.PING_INTERVAL * (limits.MAX_PING + 9) < limits.UNREAD_BYTES
    assert limits.MAX_OPEN_REQUESTS * 2 * limits.INITIAL_WINDOW < limits.UNREAD_BYTES


def test_a_fingerprint_is_written_as_openssh_writes_those_of_keys() -> None:
    kind, _, digest = fingerprint(b"a certificate").partition(":")
    assert kind == "SHA256"
    assert "=" not in digest
    assert base64.b64decode(digest + "=") == hashlib.sha256(b"a certificate").digest()
