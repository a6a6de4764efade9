"""verbs.repository_read: a selector goes to the store or to the repository's system, whose plan says what is sent."""

from __future__ import annotations

import pytest
from builders import GIT, MAIN
from verb_context import Project

from smartserver.errors import MissingRevision, NoSuchPart
from smartserver.records.browse import LogSelector, encode_selector
from smartserver.records.content import ReadPlan, ReadScope, RepositoryView, as_graph
from smartserver.records.system import system_of
from smartserver.store.model import ContentPlan, PullPlan
from smartserver.verbs.repository_read import ReadRequest, ReadResult, repository_read

run = repository_read.function


def answer(system: object, stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
    """A system that knows two selectors: the history of the wants, and their graph."""
    if selector == b"history":
        return ReadPlan(b"said", heads=question.wants)
    ordinals = [each for each in map(stored.ordinal, question.wants) if each is not None]
    return ReadPlan(b"said", pieces=as_graph(stored.reached(ordinals, [])))


@pytest.fixture
def project() -> Project:
    project = Project()
    line = project.history.line(3)
    project.push(line, {MAIN: line[2]})
    return project


@pytest.fixture
def selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(system_of(GIT)), "read", answer, raising=False)


@pytest.mark.usefixtures("selectors")
def test_whole_revisions(project: Project) -> None:
    context = project.context()
    first = project.repository.snapshot().revision(0)
    result = run(context, ReadRequest(b"history", haves=[first], refs=[MAIN]))
    (plan,) = context.plans
    assert isinstance(plan, PullPlan)
    assert (result, plan.ranges, plan.bulk) == (ReadResult(b"said", 2), ((1, 3),), True)


@pytest.mark.usefixtures("selectors")
def test_a_graph(project: Project) -> None:
    context = project.context()
    result = run(context, ReadRequest(b"graph", refs=[], ids=[project.repository.snapshot().revision(1)]))
    (plan,) = context.plans
    assert isinstance(plan, ContentPlan)
    assert (result, [*(plan.pieces or ())]) == (ReadResult(b"said", 0), [(0, ()), (1, ())])


@pytest.mark.usefixtures("selectors")
def test_an_unknown_revision(project: Project) -> None:
    with pytest.raises(MissingRevision):
        run(project.context(), ReadRequest(b"history", refs=[], ids=[b"\1" * 20]))


def test_a_log_needs_no_selector_of_the_system(project: Project) -> None:
    context = project.context()
    assert run(context, ReadRequest(encode_selector(LogSelector()), refs=[MAIN])) == ReadResult()
    (plan,) = context.plans
    assert isinstance(plan, ContentPlan)
    assert plan.items is not None
    with pytest.raises(NoSuchPart):
        run(project.context(), ReadRequest(encode_selector(LogSelector("none"))))
