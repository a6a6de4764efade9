"""store.parts: large texts that many readers have begun."""

from __future__ import annotations

import hashlib
import weakref
from array import array
from collections.abc import Iterator

import pytest

from smartserver.records.browse import checked_items
from smartserver.records.check import TextProof
from smartserver.records.hunks import Buffer
from smartserver.records.model import Kind
from smartserver.store import parts
from smartserver.store.browse import ContentBody
from smartserver.store.parts import HELD, PART, PartedText, Source, cut

TEXT = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(3 * PART // 32)) + b"end"
KIND = Kind("page", "sha1-key", False)
KEY = b"sha1:" + hashlib.sha1(TEXT).hexdigest().encode()


def held_now() -> int:
    return sum(held for reader, held in parts._kept._held.items() if reader() is not None)


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

        return PartedText(begin, len(TEXT), proof())

    got = [b""] * 20
    for turn in zip(*(reader(number) for number in range(20)), strict=True):
        got = [before + part for before, part in zip(got, turn, strict=True)]
        assert held_now() <= HELD
    assert got == [TEXT] * 20
    assert max(opened) == decodings


def test_a_reader_that_stops_keeps_nothing_of_a_text_that_is_there_whole() -> None:
    """But what is kept for all readers."""
    text = array("B", TEXT)
    gone = weakref.ref(text)
    texts = [text]
    del text
    whole = PartedText(lambda: Source(cut(memoryview(texts.pop())), len(TEXT)), len(TEXT), None)
    body = ContentBody(checked_items(whole), 0)
    assert len(body.read(PART + 5)) <= PART + 5
    assert gone() is not None
    whole.drop()
    assert gone() is None


def test_one_that_goes_leaves_nothing() -> None:
    reader = PartedText(lambda: Source(cut(TEXT), 1), len(TEXT), None)
    next(reader)
    assert held_now() == 1
    del reader
    assert held_now() == 0


@pytest.mark.parametrize("damaged", [TEXT[:5] + b"?" + TEXT[6:], TEXT[:-1] + b"?"])
def test_a_damaged_one_has_no_end(damaged: bytes) -> None:
    came: list[Buffer] = []
    with pytest.raises(ValueError, match="hashes to"):
        came.extend(PartedText(lambda: Source(cut(damaged), 0), len(TEXT), proof()))
    assert sum(map(len, came)) < len(TEXT)
