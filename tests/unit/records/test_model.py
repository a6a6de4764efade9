"""records.model: what names a base, and a ref's shortest form."""

from __future__ import annotations

import pytest

from smartserver.records.model import BaseTag, Entry, Parent, Segment, Tip, encode_ref

OWN, FIRST, SECOND = b"own", b"first", b"second"


def entry(key: bytes, base: int, base_key: bytes = b"") -> Entry:
    return Entry(0, 0, key, b"", base, base_key, 0, 0, b"")


@pytest.mark.parametrize(
    ("base", "base_key", "named"),
    [
        (BaseTag.NONE, b"", b""),
        (BaseTag.FULL_KEY, b"elsewhere", b"elsewhere"),
        (BaseTag.entry(0), b"", OWN),
        (BaseTag.parent(0), b"", FIRST),
        (BaseTag.parent(1), b"", SECOND),
    ],
)
def test_base_of(base: int, base_key: bytes, named: bytes) -> None:
    entries = (entry(OWN, BaseTag.NONE), entry(b"record", base, base_key))
    segment = Segment(OWN, (Parent(FIRST), Parent(SECOND)), entries, 0, 0, ())
    assert segment.base_of(entries[1]) == named


def test_tags_are_those_of_the_format() -> None:
    assert [BaseTag.NONE, BaseTag.FULL_KEY, BaseTag.entry(0), BaseTag.parent(0), BaseTag.entry(1)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("tips", "encoded"),
    [
        ((), []),
        ((Tip(OWN),), [[OWN]]),
        ((Tip(OWN, b"7"),), [[OWN, b"7"]]),
        ((Tip(OWN, b"", True), Tip(FIRST)), [[OWN, b"", True], [FIRST]]),
    ],
)
def test_a_ref_is_written_without_what_is_empty(tips: tuple[Tip, ...], encoded: list[list[object]]) -> None:
    assert encode_ref(tips) == encoded
