"""vcs.git.content: revisions by the begin of their id."""

from __future__ import annotations

import pytest
from git_samples import StoredObjects

from smartserver.errors import NoSuchPart
from smartserver.vcs.git.content import find_by_prefix


@pytest.fixture
def stored() -> StoredObjects:
    stored = StoredObjects()
    stored.order = [bytes.fromhex(each) for each in ("ab12cd", "ab12ef", "ab34cd", "cd")]
    return stored


@pytest.mark.parametrize(("digits", "whole"), [("ab12c", "ab12cd"), ("ab3", "ab34cd"), ("ab12ef", "ab12ef")])
def test_the_one_that_begins_so(stored: StoredObjects, digits: str, whole: str) -> None:
    assert find_by_prefix(stored, digits) == bytes.fromhex(whole)


def test_a_whole_id_is_itself_though_others_begin_so(stored: StoredObjects) -> None:
    stored.order.append(bytes.fromhex("cdef"))
    assert find_by_prefix(stored, "cd") == bytes.fromhex("cd")


@pytest.mark.parametrize("digits", ["ab1", "ab12", "a"])
def test_several(stored: StoredObjects, digits: str) -> None:
    with pytest.raises(NoSuchPart, match=f"ambiguous id {digits}: ab12cd and ab(12ef|34cd) begin so"):
        find_by_prefix(stored, digits)


@pytest.mark.parametrize("digits", ["ab12ce", "ee", "ab12cde", "ab12cd00"])
def test_none(stored: StoredObjects, digits: str) -> None:
    assert find_by_prefix(stored, digits) is None
