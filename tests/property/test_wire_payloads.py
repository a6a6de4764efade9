"""Payloads: what was encoded is decoded, and no bytes raise anything but RemoteProtocolError."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from smartserver.wire import messages
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.messages import (
    Call,
    Counters,
    Failure,
    Fault,
    KnownRoot,
    Outcome,
    Progress,
    Reply,
    Request,
    State,
)

u32 = st.integers(0, 0xFFFFFFFF)
u63 = st.integers(0, (1 << 63) - 1)
names = st.binary(min_size=1, max_size=8)
words = st.text(max_size=8)
raw = st.one_of(words, u32, names, st.none(), st.lists(u32, max_size=3)).map(
    lambda value: msgspec.Raw(msgspec.msgpack.encode(value))
)
tips = st.lists(st.one_of(st.tuples(names), st.tuples(names, names, st.booleans())).map(list[object]), max_size=2)
calls = st.builds(Call, words, raw)
known = st.builds(KnownRoot, names, u63)
faults = st.builds(Fault, words, st.dictionaries(words, st.one_of(words, u32, names), max_size=2))
outcomes = st.lists(st.builds(Outcome, u32, raw, st.none() | faults), max_size=3)
states = st.builds(
    State,
    names,
    u63,
    st.none() | u63,
    st.dictionaries(names, st.none() | tips, max_size=3),
    st.dictionaries(words, st.dictionaries(names, st.none() | names, max_size=2), max_size=2),
    words,
    st.dictionaries(words, names, max_size=2),
)
counters = st.builds(Counters, u63, u32, u32, u63, u63, u32)
capabilities = st.lists(words, max_size=2)
requests = st.builds(
    Request,
    words,
    names,
    u32,
    st.lists(calls, max_size=3),
    u32,
    st.none() | known,
    st.dictionaries(words, raw, max_size=2),
)
replies = st.builds(Reply, outcomes, st.none() | states, counters, capabilities)
failures = st.builds(Failure, faults, outcomes, st.none() | states, counters, capabilities)
progress = st.builds(Progress, words, u63, u63)

Decode = Callable[[bytes], msgspec.Struct]
DECODERS: list[Decode] = [
    messages.decode_request,
    messages.decode_reply,
    messages.decode_failure,
    messages.decode_progress,
]
several = st.one_of(
    *(
        st.tuples(st.just(decode), strategy)
        for decode, strategy in zip(DECODERS, (requests, replies, failures, progress), strict=True)
    )
)


@given(several)
def test_there_and_back(drawn: tuple[Decode, msgspec.Struct]) -> None:
    decode, message = drawn
    payload = messages.encode(message)
    again = decode(payload)
    assert messages.encode(again) == payload
    assert type(again) is type(message)


@given(st.sampled_from(DECODERS), st.one_of(st.binary(max_size=200), u32.map(lambda depth: b"\x91" * (depth % 9999))))
def test_garbage(decode: Decode, payload: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode(payload)


@given(several, st.data())
def test_damage(drawn: tuple[Decode, msgspec.Struct], data: st.DataObject) -> None:
    decode, message = drawn
    payload = bytearray(messages.encode(message))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(RemoteProtocolError):
        decode(bytes(payload))
