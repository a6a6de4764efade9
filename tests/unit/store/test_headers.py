"""A record's header read alone is what reading its whole segment gives."""

from __future__ import annotations

import pytest
from pack_samples import KINDS, Revision, blob, note

from smartserver.records.model import Parent
from smartserver.records.segment import decode_segment
from smartserver.records.varint import Malformed
from smartserver.store.headers import decode_header, header_size

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
    at = segment.frames_at - sum(header_size(entry, b"revision") for entry in segment.entries)
    for entry in segment.entries:
        assert decode_header(encoded[at:], b"revision", KINDS) == entry
        at += header_size(entry, b"revision")
    assert at == segment.frames_at


def test_a_header_cut_anywhere_is_refused() -> None:
    encoded = SEGMENT.segment()
    segment = decode_segment(encoded, 0, KINDS)
    at = segment.frames_at - sum(header_size(entry, b"revision") for entry in segment.entries)
    for entry in segment.entries:
        size = header_size(entry, b"revision")
        for cut in range(size):
            with pytest.raises(Malformed):
                decode_header(encoded[at : at + cut], b"revision", KINDS)
        at += size


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Malformed, match="kind 3, but the repository has 3"):
        decode_header(bytes((3, 0, 0, 0, 0, 0, 0)), b"revision", KINDS)
