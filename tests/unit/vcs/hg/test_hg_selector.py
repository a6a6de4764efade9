from __future__ import annotations

import pytest

from smartserver.errors import Unsupported
from smartserver.vcs.hg.kinds import NULL
from smartserver.vcs.hg.selector import (
    BRANCH,
    GRAPH,
    MAX_NAMES,
    RevisionNames,
    decode,
    decode_found,
    encode,
    encode_found,
)

A, B = b"\xaa" * 20, b"\xbb" * 20


@pytest.mark.parametrize(
    "names", [RevisionNames([]), RevisionNames([b"tip"], is_all=False), RevisionNames([b"a b", BRANCH + b"default"])]
)
def test_names_come_out_as_they_went_in(names: RevisionNames) -> None:
    assert decode(encode(names)) == names


@pytest.mark.parametrize("selector", [b"", b"x", GRAPH, b"n" + b"\0" * MAX_NAMES])
def test_what_is_no_selector(selector: bytes) -> None:
    with pytest.raises(Unsupported, match="a selector of another release"):
        decode(selector)


def test_what_was_found() -> None:
    names = RevisionNames([b"one", BRANCH + b"b", b"two"])
    assert decode_found(names, encode_found([A, NULL, B])) == {b"one": A, b"two": B}
