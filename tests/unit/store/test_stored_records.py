"""A record's header read alone is what reading its whole segment gives."""

from __future__ import annotations

import itertools

import pytest
from pack_samples import KINDS, Revision, blob, note

from smartserver.records.model import Parent
from smartserver.records.segment import decode_segment
from smartserver.records.varint import Malformed
from smartserver.store.stored_records import decode_header

BASE = blob(b"the text of a base, long enough to be one\n" * 4)
CHANGED = blob(BASE.text + b"and a line\n")
OWN = note(b"revision", b"the revision's own record\n" * 3)
SEGMENT = Revision(
    b"revision",
    (Parent(b"parent"),),
    (
        (OWN, None),
        (BASE, None),
        (CHANGED, BASE),
        (note(b"k" * 200, b"x" * 70_000), note(b"elsewhere", b"x" * 69_000)),
        (note(b"empty", b""), None),
        (note(b"signature", b"signed", 2), None),
    ),
)


def test_each_header_of_a_segment() -> None:
    encoded = SEGMENT.segment()
    segment = decode_segment(encoded, 0, KINDS)
    for entry, at in zip(segment.entries, segment.headers, strict=True):
        assert decode_header(encoded[at:], b"revision", KINDS) == entry
    farther = decode_segment(b"before" + encoded, len(b"before"), KINDS)
    assert farther.headers == segment.headers


def test_a_header_cut_anywhere_is_refused() -> None:
    encoded = SEGMENT.segment()
    segment = decode_segment(encoded, 0, KINDS)
    for at, end in itertools.pairwise([*segment.headers, segment.frames_at]):
        for cut in range(at, end):
            with pytest.raises(Malformed):
                decode_header(encoded[at:cut], b"revision", KINDS)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Malformed, match="kind 3, but the repository has 3"):
        decode_header(bytes((3, 0, 0, 0, 0, 0, 0)), b"revision", KINDS)
