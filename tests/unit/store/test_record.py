from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from smartserver.errors import CorruptFile, LimitExceeded, Unsupported
from smartserver.store import record as records
from smartserver.store.checkpoint import checkpoint_path, decode_checkpoint, encode_checkpoint, newest_first
from smartserver.store.record import (
    HEADER,
    MAGIC,
    VERSION,
    Beginning,
    Change,
    Entry,
    PackEntry,
    Record,
    decode_record,
    encode_record,
    hash_of,
)
from smartserver.store.state import DECLARED, REFS, Misfit, State, beginning

PACK = PackEntry(b"p" * 16, 100, b"h" * 16, 50, b"i" * 16, 1, 3)
MADE = Entry(
    b"r" * 16,
    "joe",
    b"answer",
    (Change(DECLARED, b"tags", None, b"ids"), Change(REFS, b"main", None, b"value")),
    PACK,
    Beginning(b"n" * 16, "git sha1", ()),
)


def first() -> State:
    return beginning(b"x" * 16, 0.005)[1]


def made(**what: object) -> bytes:
    fields = {"number": 2, "parent": first().hash, "time": 7, "entries": (MADE,), **what}
    return encode_record(Record(**fields))  # type: ignore[arg-type]


def after(*contents: bytes) -> State:
    state = first()
    for content in contents:
        state = state.after(decode_record(content, "log/x"), hash_of(content))
    return state


def foreign(*fields: object) -> bytes:
    """A record or a head as a later release may write it."""
    payload = msgspec.msgpack.encode(fields)
    return HEADER.pack(MAGIC, VERSION, 0, records._hash(payload)) + payload


@pytest.mark.parametrize(
    ("content", "decode"), [(made(), decode_record), (encode_checkpoint(after(made())), decode_checkpoint)]
)
def test_each_byte_counts(content: bytes, decode: Callable[[bytes, str], object]) -> None:
    for at in range(len(content)):
        flipped = bytearray(content)
        flipped[at] ^= 1
        with pytest.raises(CorruptFile) as caught:
            decode(bytes(flipped), "the/file")
        assert caught.value.path == "the/file"
    for at in range(len(content)):
        with pytest.raises(CorruptFile):
            decode(content[:at], "the/file")
    with pytest.raises(CorruptFile):
        decode(content + b"\0", "the/file")


def test_the_hash_comes_first() -> None:
    content = made()
    assert hash_of(content[:28]) == hash_of(content) == after(content).hash
    assert hash_of(made(time=8)) != hash_of(content)


def test_a_later_release_may_append_fields() -> None:
    kept = decode_record(foreign(2, first().hash, [], 7, [], [], [], [], b"", "more"), "log/2")
    assert kept == Record(number=2, parent=first().hash, time=7)


@pytest.mark.parametrize("rest", [(), ("another", "layout")])
def test_a_feature_of_a_later_release_is_named(rest: tuple[str, ...]) -> None:
    with pytest.raises(Unsupported, match="the repository feature 'trees'"):
        decode_record(foreign(2, first().hash, ["trees"], *rest), "log/2")


def test_features_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FEATURES", frozenset({"trees"}))
    content = made(features=("trees",))
    state = after(content, made(number=3, parent=hash_of(content), entries=(), features=("trees",)))
    assert state.features == ("trees",)
    checkpoint = encode_checkpoint(state)
    assert decode_checkpoint(checkpoint, "c").features == ("trees",)
    monkeypatch.undo()
    with pytest.raises(Unsupported, match="the repository feature 'trees'"):
        decode_checkpoint(checkpoint, "c")


def test_a_record_has_at_most_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(made())
    monkeypatch.setattr(records, "MAX_RECORD", size - 1)
    with pytest.raises(LimitExceeded, match=str(size)):
        made()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"number": 3}, "record 1 is"),
        ({"parent": b"o" * 16}, "follows 6f6f6f"),
        ({"entries": (Entry(b"", "", b"", (Change(REFS, b"main", None, b"v"),)),)}, "'refs' does not exist"),
        ({"joins": (records.Join((b"a" * 16,), PACK),)}, "side by side"),
    ],
)
def test_what_does_not_follow(what: dict[str, object], why: str) -> None:
    with pytest.raises(Misfit, match=why):
        after(made(**what))


def test_names_of_checkpoints() -> None:
    names = ["0000000007-" + "ab" * 16, "0000000012-" + "cd" * 16]
    others = ["7-" + "ab" * 16, "0000000007-AB", "0000000009", "x-" + "ab" * 16, "0000000012-" + "cd" * 16 + ".12ab"]
    assert newest_first([*names, *others]) == [(12, b"\xcd" * 16), (7, b"\xab" * 16)]
    assert checkpoint_path(12, b"\xcd" * 16) == f"checkpoints/{names[1]}"
    assert newest_first(["12345678901-" + "ab" * 16]) == [(12345678901, b"\xab" * 16)]
