"""plugins.breezy.change: the difference between what a branch was and what it is to be."""

from __future__ import annotations

from typing import Any

import pytest

from smartserver.plugins.breezy.change import (
    OPTIONS_FILE,
    TAGS_FILE,
    TIP_FILE,
    changed_tags,
    files_of,
    is_linear,
    is_on_top,
    objection,
    options_change,
    tags_updates,
    tip_of,
)
from smartserver.plugins.breezy.place import BranchState
from smartserver.plugins.breezy.words import NotOnServer
from smartserver.verbs.fields import MAX_IDS, MAX_NAME
from smartserver.verbs.map_update import EntryChange, How

STATE = BranchState("p", "", b"r3", b"3", {"v1": b"r1", "v2": b"r2"}, b"nickname = a\n")


def test_files_and_back() -> None:
    files = files_of(STATE)
    assert files[TIP_FILE] == b"3 r3\n"
    assert tip_of(files[TIP_FILE]) == (3, b"r3")
    assert files[OPTIONS_FILE] == b"nickname = a\n"
    assert changed_tags(STATE.tags, files[TAGS_FILE]) == []
    assert files_of(BranchState("p", "")) == {TIP_FILE: b"0 null:\n", TAGS_FILE: b"", OPTIONS_FILE: b""}


def test_a_branch_keeps_a_revision() -> None:
    with pytest.raises(NotOnServer, match="cannot be empty"):
        tip_of(b"0 null:\n")


def test_tags_that_are_set_moved_and_removed() -> None:
    long = "x" * (MAX_NAME + 1)
    now = files_of(BranchState("p", "", b"r3", b"3", {"v1": b"r3", "new": b"r2", long: b"r1"}))[TAGS_FILE]
    assert sorted(changed_tags(STATE.tags, now), key=lambda each: each.key) == [
        EntryChange(b"new", b"r2", How.EQUAL, None),
        EntryChange(b"v1", b"r3", How.EQUAL, b"r1"),
        EntryChange(b"v2", None, How.EQUAL, b"r2"),
    ]


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("v1", ""),
        ("x" * MAX_NAME, ""),
        ("x" * (MAX_NAME + 1), f"has {MAX_NAME + 1} bytes, expected no more than {MAX_NAME}"),
        ("\udc80", "its name is not UTF-8"),
    ],
)
def test_names_of_tags(tag: str, why: str) -> None:
    assert why in objection(tag)
    assert bool(why) == bool(objection(tag))


def test_a_change_goes_with_what_it_was() -> None:
    update = options_change(b"b", b"a")
    assert update.strict
    assert update.entries == [EntryChange(b"", b"b", How.EQUAL, b"a")]
    assert options_change(b"", b"a").entries == [EntryChange(b"", None, How.EQUAL, b"a")]


def test_many_tags_are_several_calls() -> None:
    entries = [EntryChange(b"%d" % number, b"r") for number in range(MAX_IDS + 1)]
    assert [len(each.entries) for each in tags_updates(entries)] == [MAX_IDS, 1]
    assert tags_updates([]) == []


class Graph:
    """Parents by revision."""

    PARENTS = {b"r1": (b"null:",), b"r2": (b"r1",), b"side": (b"r1",), b"r3": (b"r2", b"side"), b"r4": (b"r3",)}

    def get_parent_map(self, revisions: list[bytes]) -> Any:
        return {each: self.PARENTS[each] for each in revisions if each in self.PARENTS}


def test_the_line_of_first_parents() -> None:
    graph = Graph()
    assert is_on_top(graph, b"r4", b"r1")
    assert is_on_top(graph, b"r4", b"r4")
    assert not is_on_top(graph, b"r4", b"side")
    assert not is_on_top(graph, b"r1", b"r4")
    assert is_linear(graph, b"r4", b"r3")
    assert is_linear(graph, b"r2", None)
    assert not is_linear(graph, b"r4", b"r2"), "something was merged"
    assert not is_linear(graph, b"r2", b"other")
