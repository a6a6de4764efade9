"""verbs.rules: each rule on each state of the ref, and which permissions a move asks for."""

from __future__ import annotations

import pytest
from builders import KINDS, MAIN, SILENT
from verb_context import NotedContext, Project

from smartserver.errors import (
    BranchExists,
    DivergedBranches,
    MissingRevision,
    NoSuchBranch,
    SmartServerError,
    StaleLease,
)
from smartserver.records.model import Tip
from smartserver.verbs.declare import Permission
from smartserver.verbs.rules import Create, Rule, move

TOPIC = b"refs/heads/topic"
OLD, MIDDLE, NEW, SIDE = range(4)
"""MAIN is at the middle one of three in a row; another line leaves at the first."""

CREATE, FORCE, WRITE = Permission.CREATE, Permission.FORCE, Permission.WRITE


@pytest.fixture(scope="module")
def project() -> Project:
    project = Project()
    line = project.history.line(3)
    side = project.history.line(1, line[0], "side")
    project.push([*line, *side], {MAIN: line[1]})
    return project


@pytest.fixture(scope="module")
def tips(project: Project) -> list[bytes]:
    return list(project.history.parents)


@pytest.fixture
def context(project: Project) -> NotedContext:
    return project.context()


def refused(
    rule: Rule, create: Create, to: int, name: bytes, actual: bytes, expected: bytes
) -> SmartServerError | None:
    """The table of the rules, said in another way than the code says it: what a move is refused with."""
    if actual and to == MIDDLE:
        return None
    if rule is Rule.LEASE and expected != actual:
        return StaleLease(name, expected, actual)
    if not actual:
        return NoSuchBranch(name) if create is Create.NO else None
    if Create.MUST is create or rule is Rule.NEW:
        return BranchExists(name, actual)
    return DivergedBranches(name, actual, behind=to == OLD) if rule is Rule.FF and to != NEW else None


@pytest.mark.parametrize("lease", [True, False], ids=["expected", "unexpected"])
@pytest.mark.parametrize("absent", [True, False], ids=["absent", "present"])
@pytest.mark.parametrize("to", [OLD, MIDDLE, NEW, SIDE], ids=["back", "equal", "forward", "aside"])
@pytest.mark.parametrize("create", list(Create))
@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_on_every_state(
    context: NotedContext, tips: list[bytes], rule: Rule, create: Create, to: int, absent: bool, lease: bool
) -> None:
    name = TOPIC if absent else MAIN
    actual = b"" if absent else tips[MIDDLE]
    expected = actual if lease else tips[SIDE]
    error = refused(rule, create, to, name, actual, expected)
    if error is not None:
        with pytest.raises(type(error)) as caught:
            move(context, name, Tip(tips[to]), rule, create, expected)
        assert caught.value.wire_arguments() == error.wire_arguments()
        assert context.transaction.changes == {}
        assert context.asked == []
        return
    old = move(context, name, Tip(tips[to]), rule, create, expected)
    assert old == (None if absent else (Tip(tips[MIDDLE]),))
    assert context.transaction.ref(name) == (Tip(tips[to]),)
    if absent:
        assert context.asked == [(CREATE, name)]
    elif to in (OLD, SIDE):
        assert context.asked == [(FORCE, name)]
    else:
        assert context.asked == ([(WRITE, name)] if to == NEW else [])


def test_an_annotated_tag_moves_forward_with_its_target() -> None:
    """The tag moves as in git, outside `refs/tags/`, which git's client asks to leave alone."""
    project = Project()
    line = project.history.line(2)
    side = project.history.line(1, line[0], "side")
    first, second, aside = [project.history.tag(target) for target in (line[0], line[1], side[0])]
    outer = project.history.tag(first, "outer")
    name, nested = b"refs/x/tag", b"refs/x/nested"
    project.push([*line, *side, first, second, aside, outer], {name: first, nested: outer})
    for start in (name, nested):
        for to in (second, line[1], line[0]):
            context = project.context(denied=[FORCE])
            assert move(context, start, Tip(to))
        context = project.context()
        move(context, start, Tip(second), Rule.FORCE)
    project.push([], {name: second})
    for to in (first, line[0], aside):
        with pytest.raises(DivergedBranches):
            move(project.context(), name, Tip(to))


def test_a_ref_moved_before_in_the_request_counts_where_it_is_now(context: NotedContext, tips: list[bytes]) -> None:
    move(context, MAIN, Tip(tips[NEW]))
    with pytest.raises(DivergedBranches):
        move(context, MAIN, Tip(tips[MIDDLE]))
    assert move(context, MAIN, Tip(tips[NEW]), create=Create.MUST) == (Tip(tips[NEW]),)


def test_another_value_of_the_same_tip_is_a_move(context: NotedContext, tips: list[bytes]) -> None:
    """Attributes belong to the value: equal means both."""
    with pytest.raises(BranchExists):
        move(context, MAIN, Tip(tips[MIDDLE], b"other"), create=Create.MUST)
    assert move(context, MAIN, Tip(tips[MIDDLE], b"other")) == (Tip(tips[MIDDLE]),)
    assert context.asked == [(WRITE, MAIN)]


def test_a_tag_that_is_there_may_get_attributes(context: NotedContext, tips: list[bytes]) -> None:
    """A client of an earlier release made it without."""
    assert move(context, MAIN, Tip(tips[MIDDLE], b"other"), Rule.NEW) == (Tip(tips[MIDDLE]),)
    assert context.transaction.ref(MAIN) == (Tip(tips[MIDDLE], b"other"),)


@pytest.mark.parametrize("name", [MAIN, TOPIC])
def test_a_tip_that_is_nowhere(context: NotedContext, name: bytes) -> None:
    with pytest.raises(MissingRevision) as missing:
        move(context, name, Tip(bytes(20)), Rule.FORCE)
    assert missing.value.revision == bytes(20)


@pytest.mark.parametrize("name", [MAIN + b"/below", b"refs/heads"])
def test_a_ref_lies_below_another_where_no_client_keeps_them_in_files(name: bytes) -> None:
    """Where one does, `test_repository_create_configure` has the refusal."""
    other = Project()
    line = other.history.line(1)
    other.push(line, {MAIN: line[0]}, lambda transaction: transaction.create(SILENT, KINDS, {}))
    assert move(other.context(), name, Tip(line[0])) is None


def test_a_tip_that_comes_with_the_request(project: Project, tips: list[bytes]) -> None:
    coming = project.history.line(2, tips[MIDDLE], "coming")
    context = project.context(coming)
    assert move(context, MAIN, Tip(coming[1])) == (Tip(tips[MIDDLE]),)
    assert context.asked == [(WRITE, MAIN)]


def test_a_ref_of_several_tips_moves_on_from_all_of_them(project: Project, tips: list[bytes]) -> None:
    both = (Tip(tips[NEW]), Tip(tips[SIDE]))
    merge = project.history.commit({"a": b"b"}, [tips[NEW], tips[SIDE]], "merge")
    context = project.context([merge])
    context.transaction.set_ref(TOPIC, both)
    with pytest.raises(DivergedBranches):
        move(context, TOPIC, Tip(tips[NEW]))
    assert move(context, TOPIC, Tip(merge)) == tuple(sorted(both, key=lambda tip: tip.id))
