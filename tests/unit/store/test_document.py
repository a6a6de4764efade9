from __future__ import annotations

from hashlib import blake2b

import msgspec
import pytest
from root_cases import KINDS, NOW, new_root, pack, tip

from smartserver.errors import CorruptFile, LimitExceeded, Unsupported
from smartserver.records.model import Tip
from smartserver.store.document import (
    MAX_ROOT,
    Root,
    check_writable,
    decode_root,
    decode_value,
    empty_root,
    encode_root,
    encode_value,
)
from transports.memory import MemoryTransport


def wrapped(payload: object) -> bytes:
    inner = msgspec.msgpack.encode(payload)
    return msgspec.msgpack.encode([inner, blake2b(inner, digest_size=16).digest()])


def small() -> Root:
    root, _ = new_root(MemoryTransport(), {b"refs/heads/main": tip(1)})
    return msgspec.structs.replace(root, packs=(pack(1), pack(2)))


def test_a_root_comes_back_equal() -> None:
    root = small()
    assert decode_root(encode_root(root)) == root


def test_equal_roots_have_equal_bytes() -> None:
    assert encode_root(decode_root(encode_root(small()))) == encode_root(small())


def test_the_document_is_an_array_in_an_array_with_its_check() -> None:
    payload, check = msgspec.msgpack.decode(encode_root(small()))
    assert check == blake2b(payload, digest_size=16).digest()
    fields = msgspec.msgpack.decode(payload)
    assert fields[:7] == [b"i" * 16, 1, 0, [], [], "git sha1", [{"name": "object", "check": "git-sha1", "base": True}]]
    assert fields[7][0] == [b"\1" * 16, 1001, b"\1" * 16, 100, b"\1" * 16, 1, 3]
    assert fields[8:10] == [{"HEAD": b"refs/heads/main"}, 1]
    value = msgspec.msgpack.encode([[(1).to_bytes(20, "big")]])
    assert fields[10] == {"dropped": ["opaque", {}, None], "refs": ["ids", {b"refs/heads/main": value}, None]}
    assert fields[16:] == [False, 0]


def test_every_flipped_byte_is_noticed() -> None:
    content = encode_root(small())
    for at in range(len(content)):
        for bit in (1, 0x80):
            damaged = bytearray(content)
            damaged[at] ^= bit
            with pytest.raises(CorruptFile) as raised:
                decode_root(bytes(damaged))
            assert raised.value.path == "root"


@pytest.mark.parametrize("content", [b"", b"\x92", b"\xc0", b"not msgpack at all", b"\0" * 100])
def test_garbage_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptFile):
        decode_root(content)


def test_every_truncation_is_corrupt() -> None:
    content = encode_root(small())
    for length in range(len(content)):
        with pytest.raises(CorruptFile):
            decode_root(content[:length])
    with pytest.raises(CorruptFile):
        decode_root(content + b"\0")


def test_a_root_over_64_kib_is_neither_written_nor_read() -> None:
    large = msgspec.structs.replace(small(), settings={"HEAD": b"x" * MAX_ROOT})
    with pytest.raises(LimitExceeded, match="65536"):
        encode_root(large)
    with pytest.raises(CorruptFile, match="expected no more than 65536"):
        decode_root(b"\x92" + b"\0" * MAX_ROOT)


def test_fields_that_later_releases_append_are_skipped() -> None:
    payload, _ = msgspec.msgpack.decode(encode_root(small()))
    fields = msgspec.msgpack.decode(payload)
    assert decode_root(wrapped([*fields, {"new": 1}, 7])) == small()


def test_an_unknown_read_feature_is_refused_whatever_follows_the_head() -> None:
    for rest in (
        [],
        ["git sha1", 7, 7, 7],
        msgspec.msgpack.decode(msgspec.msgpack.decode(encode_root(small()))[0])[5:],
    ):
        with pytest.raises(Unsupported, match="'packs-in-the-sky'"):
            decode_root(wrapped([b"i" * 16, 1, 0, ["packs-in-the-sky"], [], *rest]))


def test_a_wrong_field_is_damage() -> None:
    with pytest.raises(CorruptFile, match=r"\$\[0\]"):
        decode_root(wrapped([b"short", 1, 0, [], [], "git sha1", []]))
    with pytest.raises(CorruptFile, match="length"):
        decode_root(wrapped([b"i" * 16, 1, 0, [], []]))


def test_an_unknown_write_feature_is_refused_on_write_only() -> None:
    root = msgspec.structs.replace(small(), write_features=("signed-roots",))
    assert decode_root(encode_root(root)) == root
    with pytest.raises(Unsupported, match="'signed-roots'"):
        check_writable(root)
    check_writable(small())


def test_the_value_of_a_ref_comes_back_sorted() -> None:
    value = (Tip(b"b", b"", True), Tip(b"a", b"7"), Tip(b"c"))
    assert decode_value(encode_value(value)) == (Tip(b"a", b"7"), Tip(b"b", b"", True), Tip(b"c"))
    assert len(encode_value((Tip(b"x" * 20),))) == 24


def test_a_ref_has_tips() -> None:
    with pytest.raises(ValueError, match="without tips"):
        encode_value(())
    for content in (b"\x90", b"\xc0", b""):
        with pytest.raises(CorruptFile, match="the value of a ref"):
            decode_value(content)


def test_an_empty_root_over_a_tombstone_begins_another_log() -> None:
    tombstone = msgspec.structs.replace(small(), deleted=True)
    fresh = empty_root(b"j" * 16, "hg", KINDS, now=NOW)
    over = empty_root(b"j" * 16, "hg", KINDS, now=NOW, over=tombstone)
    assert (fresh.version, fresh.log_since) == (0, 0)
    assert (over.version, over.log, over.deleted, over.packs) == (0, (), False, ())
    assert over.log_since == NOW * 1000
