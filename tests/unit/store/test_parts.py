"""store.parts: large texts that many readers have begun."""

from __future__ import annotations

import hashlib
import weakref
from array import array
from collections.abc import Iterator

import pytest

from smartserver.records.browse import checked_items
from smartserver.records.charge import Charge, free
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


@pytest.mark.parametrize(("held", "decodings"), [(0, 1), (HELD // 20, 1), (HELD // 2, 2), (2 * HELD, 2)])
def test_readers_that_take_turns(held: int, decodings: int) -> None:
    """Each gets all of it, once, whether what it needs was kept meanwhile or not."""
    opened = [0] * 20
    charged: list[int] = []

    def reader(number: int) -> Iterator[Buffer]:
        def begin(charge: Charge) -> Source:
            charge(len(TEXT))
            opened[number] += 1
            return Source(cut(TEXT), held)

        return PartedText(begin, len(TEXT), proof(), charged.append)

    got = [b""] * 20
    for turn in zip(*(reader(number) for number in range(20)), strict=True):
        got = [before + part for before, part in zip(got, turn, strict=True)]
        assert held_now() <= HELD
    assert got == [TEXT] * 20
    assert (max(opened), sum(charged)) == (decodings, 20 * len(TEXT))


def test_who_needs_much_decodes_again_a_few_times_and_takes_nothing_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps 16 of 63 parts ahead, its share."""
    monkeypatch.setattr(parts, "HELD", 64 * PART)
    opened: list[int] = []

    def reader(held: int) -> Iterator[Buffer]:
        def begin(charge: Charge) -> Source:
            opened.append(held)
            return Source(cut(bytes(63 * PART)), held)

        return PartedText(begin, 63 * PART, None, free)

    for part, of_large in zip(reader(2 * PART), reader(100 * PART), strict=True):
        assert part == of_large
        assert held_now() <= 64 * PART
    assert sorted(opened) == [2 * PART] + [100 * PART] * 5


def test_a_reader_that_stops_keeps_nothing_of_a_text_that_is_there_whole() -> None:
    """But what is kept for all readers."""
    text = array("B", TEXT)
    gone = weakref.ref(text)
    texts = [text]
    del text
    whole = PartedText(lambda _: Source(cut(memoryview(texts.pop())), len(TEXT)), len(TEXT), None, free)
    body = ContentBody(checked_items(whole), 0)
    assert len(body.read(PART + 5)) <= PART + 5
    assert gone() is not None
    whole.drop()
    assert gone() is None


def test_one_that_goes_leaves_nothing() -> None:
    reader = PartedText(lambda _: Source(cut(TEXT), 1), len(TEXT), None, free)
    next(reader)
    assert held_now() == 1
    del reader
    assert held_now() == 0


@pytest.mark.parametrize("damaged", [TEXT[:5] + b"?" + TEXT[6:], TEXT[:-1] + b"?"])
def test_a_damaged_one_has_no_end(damaged: bytes) -> None:
    came: list[Buffer] = []
    with pytest.raises(ValueError, match="hashes to"):
        came.extend(PartedText(lambda _: Source(cut(damaged), 0), len(TEXT), proof(), free))
    assert sum(map(len, came)) < len(TEXT)
