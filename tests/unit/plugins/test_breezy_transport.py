"""plugins.breezy.transport: a branch's name as a path, and what is at and below one."""

from __future__ import annotations

from smartserver.plugins.breezy.transport import below, path_of
from smartserver.records.model import HERE


def test_a_branchs_name_is_the_path_below_its_repository() -> None:
    assert [path_of(ref) for ref in (HERE, b"trunk", "a/ü".encode())] == ["", "trunk", "a/ü"]


def test_what_is_at_and_below_a_path_is_seen_from_there() -> None:
    paths = ["b/c", "b", "", "bc", "b/a/d"]
    assert below(paths, "") == ["", "b", "b/a/d", "b/c", "bc"]
    assert below(paths, "b") == ["", "a/d", "c"]
    assert below(paths, "none") == []
