"""verbs.branch_add_heads, and the rule in verbs.rules: what becomes of a ref with several heads."""

from __future__ import annotations

import pytest
from builders import MAIN
from verb_context import Project

from smartserver.errors import AccessDenied, DivergedBranches, MissingRevision, NewHeads, NoSuchBranch
from smartserver.records.model import Tip
from smartserver.store.transaction import Transaction
from smartserver.verbs.branch_add_heads import AddHeadsRequest, AddHeadsResult, NewHead, branch_add_heads
from smartserver.verbs.declare import Permission
from smartserver.verbs.rules import Growth, add_heads

TOPIC = b"refs/heads/topic"


@pytest.fixture(scope="module")
def project() -> Project:
    """A line of four, of which MAIN is at the second, and two sides of two that leave it at the first."""
    project = Project()
    line = project.history.line(4)
    one = project.history.line(2, line[0], "one")
    two = project.history.line(2, line[0], "two")
    project.push([*line, *one, *two], {MAIN: line[1]})
    return project


@pytest.fixture
def line(project: Project) -> list[bytes]:
    return list(project.history.parents)[:4]


@pytest.fixture
def one(project: Project) -> list[bytes]:
    return list(project.history.parents)[4:6]


@pytest.fixture
def two(project: Project) -> list[bytes]:
    return list(project.history.parents)[6:]


def tips(*revisions: bytes) -> tuple[Tip, ...]:
    return tuple([Tip(each) for each in sorted(revisions)])


def test_it_says_what_was_and_what_is_new(project: Project, line: list[bytes], one: list[bytes]) -> None:
    context = project.context()

    def run(*heads: bytes, growth: Growth = Growth.NONE) -> AddHeadsResult:
        return branch_add_heads.function(context, AddHeadsRequest(MAIN, [NewHead(each) for each in heads], growth))

    assert run(line[2]) == AddHeadsResult([line[1]], [line[2]])
    assert run(line[2]) == run(line[0]) == AddHeadsResult([line[2]], [])
    assert run(one[0], growth=Growth.ANY) == AddHeadsResult([line[2]], [one[0]])
    assert run(one[1]) == AddHeadsResult(sorted([line[2], one[0]]), [one[1]])
    assert context.transaction.ref(MAIN) == tips(line[2], one[1])
    assert {permission for permission, _ in context.asked} == {Permission.WRITE}


def test_two_who_each_add_a_head(project: Project, one: list[bytes], two: list[bytes], line: list[bytes]) -> None:
    context = project.context()
    with pytest.raises(NewHeads) as refused:
        add_heads(context, MAIN, tips(two[0], one[1]))
    assert (refused.value.ref, sorted(refused.value.heads)) == (MAIN, sorted([two[0], one[1]]))
    assert context.transaction.changes == {}
    assert context.asked == []


@pytest.mark.parametrize("growth", list(Growth))
def test_a_new_ref_has_one_head(project: Project, growth: Growth, one: list[bytes], two: list[bytes]) -> None:
    context = project.context()
    assert add_heads(context, TOPIC, tips(one[0], one[1]), growth) == (None, tips(one[1]))
    assert context.asked == [(Permission.CREATE, TOPIC)]
    context = project.context()
    if growth is Growth.NONE:
        with pytest.raises(NewHeads):
            add_heads(context, TOPIC, tips(one[0], two[0]), growth)
    else:
        assert add_heads(context, TOPIC, tips(one[0], two[0]), growth) == (None, tips(one[0], two[0]))
    with pytest.raises(NoSuchBranch):
        add_heads(project.context(), TOPIC, tips(one[0]), growth, create=False)


def test_all_that_is_there_is_covered(project: Project, line: list[bytes], one: list[bytes]) -> None:
    context = project.context()
    assert add_heads(context, MAIN, tips(line[1], one[0]), Growth.COVERED)[1] == tips(line[1], one[0])
    assert add_heads(context, MAIN, tips(line[2], one[1]), Growth.COVERED)[1] == tips(line[2], one[1])
    with pytest.raises(DivergedBranches) as diverged:
        add_heads(context, MAIN, tips(line[3]), Growth.COVERED)
    assert diverged.value.tip == one[1]


def test_attributes_and_whether_a_head_is_closed_stay(project: Project, line: list[bytes], one: list[bytes]) -> None:
    context = project.context()
    request = AddHeadsRequest(MAIN, [NewHead(one[1], b"note", True)], Growth.ANY)
    branch_add_heads.function(context, request)
    add_heads(context, MAIN, tips(line[3]))
    assert context.transaction.ref(MAIN) == tuple(
        sorted([Tip(line[3]), Tip(one[1], b"note", True)], key=lambda t: t.id)
    )


def test_anything_may_be_made_where_no_ref_was() -> None:
    empty = Project()
    line = empty.history.line(1)
    side = empty.history.line(1, line[0], "side")
    other = empty.history.line(1, line[0], "other")
    empty.push([*line, *side, *other], {})
    context = empty.context()
    for name in (MAIN, TOPIC):
        assert add_heads(context, name, tips(side[0], other[0]), create=False)[1] == tips(side[0], other[0])


def test_tips_that_others_replace(
    project: Project, line: list[bytes], one: list[bytes], two: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def superseded(gone: list[bytes], stays: list[bytes]) -> None:
        monkeypatch.setattr(Transaction, "superseded", lambda self, tips: (gone, stays))

    superseded([line[1]], [])
    context = project.context()
    assert add_heads(context, MAIN, tips(two[0])) == (tips(line[1]), tips(two[0]))
    with pytest.raises(NewHeads):
        add_heads(project.context(), MAIN, tips(one[0], two[0]))
    # It does not count, but it stays.
    superseded([], [line[1]])
    assert add_heads(project.context(), MAIN, tips(two[0]))[1] == tips(line[1], two[0])
    # Its ancestor is a head in its place.
    superseded([line[1]], [])
    assert add_heads(project.context(), MAIN, tips(line[0])) == (tips(line[1]), tips(line[0]))
    # Even one that is replaced must be there.
    superseded([bytes(20)], [])
    with pytest.raises(MissingRevision):
        add_heads(project.context(), MAIN, tips(bytes(20)))


def test_a_ref_without_a_tip_goes_with_its_entries(
    project: Project, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transaction, "superseded", lambda self, tips: (tips, ()))
    context = project.context()
    context.transaction.set_map("notes", "opaque", MAIN + b"\0x", b"y")
    assert add_heads(context, MAIN, tips(line[1])) == (tips(line[1]), ())
    assert context.transaction.ref(MAIN) is None
    assert dict(context.transaction.map("notes")) == {}
    assert add_heads(context, TOPIC, tips(line[1])) == (None, ())
    with pytest.raises(AccessDenied):
        add_heads(project.context(denied=[Permission.WRITE]), MAIN, tips(line[1]))
