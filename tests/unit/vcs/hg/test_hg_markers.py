"""vcs.hg.markers: Mercurial's own encoding of markers, and which of them matter to which changesets."""

from __future__ import annotations

import math
import struct

import pytest
from mercurial import obsolete

from smartserver.errors import Unsupported
from smartserver.vcs.hg.kinds import NULL
from smartserver.vcs.hg.markers import (
    Marker,
    decode_selector,
    encode_selector,
    key_of,
    parse,
    relevant,
)

A, B, C, D, E = (bytes([n]) * 20 for n in (0xA1, 0xB2, 0xC3, 0xD4, 0xE5))


def marker(
    predecessor: bytes, *successors: bytes, parents: tuple[bytes, ...] | None = None, flags: int = 0, user: bytes = b"u"
) -> bytes:
    """A marker as Mercurial encodes it."""
    made = (predecessor, successors, flags, ((b"operation", b"amend"), (b"user", user)), (1.5, 3600), parents)
    return b"".join(obsolete.encodemarkers([made], False, 1))


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (marker(A, B), Marker(A, (B,), ())),
        (marker(A, B, C), Marker(A, (B, C), ())),
        (marker(A), Marker(A, (), ())),
        (marker(A, parents=(B, C)), Marker(A, (), (B, C))),
        (marker(A, parents=()), Marker(A, (), ())),
        (marker(A, B, parents=(C,), flags=1), Marker(A, (B,), (C,))),
    ],
)
def test_what_a_marker_says(encoded: bytes, expected: Marker) -> None:
    assert parse(encoded) == expected
    assert key_of(encoded).startswith(A.hex().encode())
    assert len(key_of(encoded)) == 2 * (20 + 8)


def test_what_is_no_marker() -> None:
    whole = marker(A, B, parents=(C,))
    long = b"".join(obsolete.encodemarkers([(A + bytes(12), (), 2, (), (0.0, 0), None)], False, 1))
    nan = whole[:4] + struct.pack(">d", math.nan) + whole[12:]
    for wrong in (*(whole[:end] for end in range(len(whole))), whole + b"x", long, marker(A, A), marker(A, NULL), nan):
        with pytest.raises(ValueError, match="marker"):
            parse(wrong)


def test_two_markers_of_one_changeset_have_two_keys() -> None:
    assert key_of(marker(A, B)) != key_of(marker(A, B, user=b"v"))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({D}, "ABCD"),  # The chain that leads to a successor.
        ({C}, "ABC"),
        ({A}, ""),  # Of what is replaced the marker does not matter.
        ({E}, "E"),  # A marker without successors matters to the changeset and its parents.
        ({B, E}, "ABE"),
    ],
)
def test_what_matters(wanted: set[bytes], expected: str) -> None:
    named = {"AB": marker(A, B), "BC": marker(B, C), "CD": marker(C, D), "E": marker(b"f" * 20, parents=(E,))}
    entries = {key_of(each): each for each in named.values()}
    found = relevant(entries, lambda node: node in wanted)
    chain = [pair for pair in ("AB", "BC", "CD") if pair in expected]
    assert found == {key_of(named[name]) for name in [*chain, *(["E"] if "E" in expected else [])]}


def test_a_changeset_without_successors_matters_to_itself() -> None:
    made = marker(A)
    assert relevant({key_of(made): made}, lambda node: node == A) == {key_of(made)}


def test_the_selector() -> None:
    known = (bytes(range(16)), 300, 65535)
    assert decode_selector(encode_selector(known, b"hname")) == (known, b"hname")
    assert decode_selector(encode_selector(None, b"")) == ((bytes(16), 0, 0), b"")
    with pytest.raises(Unsupported):
        decode_selector(b"o123")
