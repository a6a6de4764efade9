"""plugins.breezy.content, plugins.breezy.stores: a revision has the parents that the graph says."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from bzr_samples import FIRST, SECOND, SECOND_PARENTS

from smartserver.client.content import Part
from smartserver.plugins.breezy.content import Content
from smartserver.plugins.breezy.selection import Selection
from smartserver.plugins.breezy.stores import Store
from smartserver.records.model import Parent, Record
from smartserver.vcs.base import WrongContent
from smartserver.vcs.bzr.kinds import INVENTORY, REVISION, SIGNATURE
from smartserver.vcs.bzr.selector import RevisionsField
from smartserver.verbs.repository_read import ReadResult

ONE, TWO = FIRST[0].key, SECOND[0].key


def read(*parts: Part) -> Content:
    """What came of a server that sends just this."""
    knowledge = SimpleNamespace(inner="", branch=b".", named=b".", ref=lambda name: None)
    answer = SimpleNamespace(stats=None, parts=parts, result=ReadResult())
    remote: Any = SimpleNamespace(knowledge=knowledge, read=lambda *arguments, **options: answer)
    content = Content(remote, Selection(RevisionsField()))
    content.begin()
    return content


def store(kind: int, content: Content) -> Store:
    return Store(kind, "revisions", content, nullcontext, lambda: None, asks=False)


def test_the_graph_says_what_the_parents_are() -> None:
    content = read(Part(TWO, SECOND_PARENTS, SECOND[:2]), Part(ONE, (), FIRST[:2]))
    expected = tuple([(parent.id,) for parent in SECOND_PARENTS])
    for kind in (REVISION, INVENTORY):
        (found,) = store(kind, content).get_record_stream([(TWO,)], "unordered", True)
        assert found.parents == expected
    # Of an inventory Breezy's index may say otherwise; of a revision nothing else does.
    for kind, parents in ((REVISION, expected), (INVENTORY, ((b"other",),))):
        content.records[kind, TWO] = Record(kind, TWO, b"other", content.records[kind, TWO].text)
        (found,) = store(kind, content).get_record_stream([(TWO,)], "unordered", True)
        assert found.parents == parents


@pytest.mark.parametrize(
    ("part", "named", "why"),
    [
        (Part(TWO, (Parent(ONE),), SECOND[:1]), TWO, "names another revision, or other parents than the graph"),
        (Part(TWO, (), SECOND[:1]), TWO, "names another revision, or other parents than the graph"),
        (
            Part(ONE, (), (Record(REVISION, ONE, b"joe@example.org-0", FIRST[0].text),)),
            ONE,
            "names another revision, or other parents than the graph",
        ),
        (Part(ONE, (), (Record(REVISION, ONE, b"", b"no revision"),)), ONE, "cannot be read as a revision"),
        (Part(ONE, (), SECOND[:1]), TWO, f"it came with the revision {ONE.decode()}"),
        (Part(ONE, (), SECOND[1:2]), TWO, f"it came with the revision {ONE.decode()}"),
        (Part(ONE, (), (Record(SIGNATURE, TWO, b"", b"signed"),)), TWO, f"it came with the revision {ONE.decode()}"),
    ],
)
def test_a_revision_that_is_not_as_the_graph_says(part: Part, named: bytes, why: str) -> None:
    with pytest.raises(WrongContent, match=why) as wrong:
        read(part)
    assert wrong.value.key == named


@pytest.mark.parametrize("later", [(), (Parent(ONE),), (Parent(b"other"), *SECOND_PARENTS)])
def test_a_graph_that_changes_its_mind(later: tuple[Parent, ...]) -> None:
    """Whether the record came before or comes after."""
    whole, bare = Part(TWO, SECOND_PARENTS, SECOND[:1]), Part(TWO, later, ())
    assert read(whole, Part(TWO, SECOND_PARENTS, ())).parents[TWO] == tuple([each.id for each in SECOND_PARENTS])
    for parts in ((whole, bare), (bare, whole)):
        with pytest.raises(WrongContent, match="names other parents than it did before") as wrong:
            read(*parts)
        assert wrong.value.key == TWO
