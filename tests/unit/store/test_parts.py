"""store.parts: large texts that many readers have begun."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from smartserver.records.check import TextProof
from smartserver.records.hunks import Buffer
from smartserver.records.model import Kind
from smartserver.store import parts
from smartserver.store.parts import HELD, PART, Source, copied, cut, in_parts

TEXT = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(3 * PART // 32)) + b"end"
KIND = Kind("page", "sha1-key", False)
KEY = b"sha1:" + hashlib.sha1(TEXT).hexdigest().encode()


def proof(key: bytes = KEY) -> TextProof:
    return TextProof(KIND, key, b"", len(TEXT), b"")


@pytest.mark.parametrize(("held", "decodings"), [(0, 1), (HELD // 20, 1), (HELD // 2, 4), (2 * HELD, 4)])
def test_readers_that_take_turns(held: int, decodings: int) -> None:
    """Each gets all of it, once, whether what it needs was kept meanwhile or not."""
    opened = [0] * 20

    def reader(number: int) -> Iterator[Buffer]:
        def begin() -> Source:
            opened[number] += 1
            return Source(cut(TEXT), held)

        return in_parts(begin, len(TEXT), proof())

    got = [b""] * 20
    for turn in zip(*(reader(number) for number in range(20)), strict=True):
        got = [before + part for before, part in zip(got, turn, strict=True)]
        assert parts._sources.size <= HELD
    assert got == [TEXT] * 20
    assert max(opened) == decodings
    assert not len(parts._sources)


def test_parts_of_a_text_keep_no_more_of_it() -> None:
    found = list(copied(TEXT))
    assert b"".join(found) == TEXT
    assert all(type(part) is bytes and len(part) <= 2 * PART for part in found)


def test_one_that_goes_leaves_nothing() -> None:
    reader = in_parts(lambda: Source(cut(TEXT), 1), len(TEXT), None)
    next(reader)
    assert len(parts._sources) == 1
    del reader
    assert not len(parts._sources)


@pytest.mark.parametrize("damaged", [TEXT[:5] + b"?" + TEXT[6:], TEXT[:-1] + b"?"])
def test_a_damaged_one_has_no_end(damaged: bytes) -> None:
    came: list[Buffer] = []
    with pytest.raises(ValueError, match="hashes to"):
        came.extend(in_parts(lambda: Source(cut(damaged), 0), len(TEXT), proof()))
    assert sum(map(len, came)) < len(TEXT)
