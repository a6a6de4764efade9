"""verbs.repository_pull, repository_read: which refs a pull wants and what it answers; a selector goes to the store or
the repository's system, whose plan says what is sent."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN
from verb_context import Project

from smartserver.errors import LimitExceeded, MissingRevision, NoSuchPart
from smartserver.records.browse import LogSelector, encode_selector
from smartserver.records.content import ReadPlan, ReadScope, RepositoryView, as_graph
from smartserver.records.system import system_of
from smartserver.store.model import ContentPlan, PullPlan
from smartserver.store.transaction import Transaction
from smartserver.verbs.repository_pull import MAX_PREFIXES, PullRequest, PullResult, repository_pull
from smartserver.verbs.repository_read import ReadRequest, ReadResult, repository_read

TOPIC = b"refs/heads/topic"
TAG = b"refs/tags/v1"
run = repository_pull.function


class Tagged(Project):
    """Four in a row, MAIN at the third, an annotated tag on the second, TOPIC beside the fourth, a tag on TOPIC."""

    def __init__(self) -> None:
        super().__init__()
        self.line = self.history.line(4)
        self.side = self.history.line(1, self.line[0], "side")[0]
        self.label = self.history.tag(self.line[1])
        self.side_label = self.history.tag(self.side, "v2")
        revisions = [*self.line, self.side, self.label, self.side_label]
        refs: dict[bytes, bytes | None] = {
            MAIN: self.line[2],
            TOPIC: self.side,
            TAG: self.label,
            b"refs/tags/v2": self.side_label,
            b"refs/tags/light": self.line[0],
        }
        self.push(revisions, refs)

    def pulled(self, request: PullRequest) -> set[bytes]:
        """The revisions that come."""
        context = self.context()
        result = run(context, request)
        (plan,) = context.plans
        assert isinstance(plan, PullPlan)
        assert (result.segments, result.size) == (plan.segments, plan.size)
        graph = self.repository.snapshot().graph
        found = [graph.revision(each) for first, last in plan.ranges for each in range(first, last)]
        assert len(found) == plan.segments
        assert plan.size == sum(len(self.history.segment(each)) for each in found)
        return set(found)


@pytest.fixture(scope="module")
def project() -> Tagged:
    return Tagged()


@pytest.mark.parametrize(
    ("patterns", "line", "others"),
    [
        (None, 3, {"side", "label", "side_label"}),
        ([], 0, set()),
        ([MAIN], 3, set()),
        ([b"HEAD"], 3, set()),
        ([TOPIC], 1, {"side"}),
        ([b"refs/heads/"], 3, {"side"}),
        ([b"refs/heads/to*"], 1, {"side"}),
        ([b"refs/tags/v1"], 2, {"label"}),
        ([b"refs/tags/*", MAIN], 3, {"label", "side", "side_label"}),
        ([b"refs/heads/absent"], 0, set()),
        ([b"refs/heads/absent", TAG], 2, {"label"}),
        ([b"refs/heads/m"], 0, set()),
        ([b"\xff\xfe"], 0, set()),
    ],
)
def test_the_refs_that_patterns_name(
    project: Tagged, patterns: list[bytes] | None, line: int, others: set[str]
) -> None:
    expected = {*project.line[:line], *(getattr(project, name) for name in others)}
    assert project.pulled(PullRequest(refs=patterns)) == expected


def test_prefixes_are_few(project: Tagged) -> None:
    """Each ref is compared with each; exact names cost nothing."""
    prefixes = [b"refs/heads/%d/" % number for number in range(MAX_PREFIXES)]
    assert project.pulled(PullRequest(refs=[*prefixes, MAIN, *[b"x%d" % number for number in range(1000)]]))
    with pytest.raises(LimitExceeded) as caught:
        project.pulled(PullRequest(refs=[*prefixes, b"refs/heads/x/"]))
    assert (caught.value.value, caught.value.limit) == (MAX_PREFIXES + 1, MAX_PREFIXES)


def test_ids_are_wanted_besides(project: Tagged) -> None:
    assert project.pulled(PullRequest(refs=[TOPIC], ids=[project.line[3]])) == {*project.line, project.side}
    with pytest.raises(MissingRevision):
        run(project.context(), PullRequest(ids=[bytes(20)]))


def test_what_maps_of_ids_name_is_wanted_if_it_is_stored() -> None:
    project = Tagged()

    def tag(transaction: Transaction) -> None:
        transaction.set_map("tags", "ids", MAIN + b"\0v1", project.side)
        transaction.set_map("tags", "ids", MAIN + b"\0v2", bytes(20))
        transaction.set_map("notes", "opaque", MAIN + b"\0v3", project.line[3])

    project.push([], {}, tag)
    assert project.pulled(PullRequest(refs=[MAIN])) == {*project.line[:3]}
    assert project.pulled(PullRequest(refs=[MAIN], tagged=True)) == {*project.line[:3], project.side}
    assert project.pulled(PullRequest([project.side], [], tagged=True)) == set()


def test_a_setting_that_names_nothing_wants_nothing() -> None:
    project = Project()
    line = project.history.line(1)
    head = {"HEAD": b"refs/heads/unborn"}
    project.push(line, {MAIN: line[0]}, lambda transaction: transaction.create(GIT, KINDS, head))
    context = project.context()
    assert run(context, PullRequest(refs=[b"HEAD"])) == PullResult(0, 0, b"")


def test_what_follows(project: Tagged) -> None:
    """A tag comes with what it is on, whether that comes too or is had; one on something else does not."""
    tags = [b"refs/tags/"]
    assert project.pulled(PullRequest(refs=[MAIN], follow=tags)) == {*project.line[:3], project.label}
    had = PullRequest(refs=[MAIN], haves=[project.line[2]], follow=tags)
    assert project.pulled(had) == {project.label}
    assert project.pulled(PullRequest(refs=[], follow=tags)) == set()
    assert project.pulled(PullRequest(refs=[TOPIC], follow=[TAG])) == {project.line[0], project.side}
    # Both kinds of tag on TOPIC's line; the light one is on what comes anyway.
    both = {project.line[0], project.side, project.side_label}
    assert project.pulled(PullRequest(refs=[TOPIC], follow=tags)) == both


def test_whole_revisions_as_a_bulk_stream(project: Tagged) -> None:
    context = project.context()
    result = run(context, PullRequest(refs=[MAIN], bulk=True))
    (plan,) = context.plans
    assert isinstance(plan, PullPlan)
    assert plan.bulk
    assert result == run(project.context(), PullRequest(refs=[MAIN]))


def test_what_is_had_does_not_come(project: Tagged) -> None:
    assert project.pulled(PullRequest(refs=[MAIN], haves=[project.line[1]])) == {project.line[2]}
    shallow = PullRequest(refs=[MAIN], haves=[project.line[1]], absent=[project.line[0], bytes(20)])
    assert project.pulled(shallow) == {project.line[0], project.line[2]}


@pytest.mark.parametrize(
    ("here", "bits"),
    [([], b""), ([1], b"\x01"), ([0], b"\x00"), ([0, 1, 1], b"\x06"), ([1] * 8, b"\xff"), ([0] * 8 + [1], b"\x00\x01")],
)
def test_a_bit_for_each_have(project: Tagged, here: list[int], bits: bytes) -> None:
    haves = [project.line[0] if each else bytes([number]) * 20 for number, each in enumerate(here)]
    assert run(project.context(), PullRequest(haves=haves)).common == bits


def test_refs_alone_bring_nothing(project: Tagged) -> None:
    context = project.context()
    assert run(context, PullRequest(refs=[])) == PullResult()
    assert not any(context.plans)


read = repository_read.function


def answer(system: object, stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
    """A system that knows two selectors: the history of the wants, and their graph."""
    if selector == b"history":
        return ReadPlan(b"said", heads=question.wants)
    ordinals = [each for each in map(stored.ordinal, question.wants) if each is not None]
    return ReadPlan(b"said", pieces=as_graph(stored.reached(ordinals, [])))


@pytest.fixture
def stored() -> Project:
    project = Project()
    line = project.history.line(3)
    project.push(line, {MAIN: line[2]})
    return project


@pytest.fixture
def selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(system_of(GIT)), "read", answer, raising=False)


@pytest.mark.usefixtures("selectors")
def test_whole_revisions(stored: Project) -> None:
    context = stored.context()
    first = stored.repository.snapshot().revision(0)
    result = read(context, ReadRequest(b"history", haves=[first], refs=[MAIN]))
    (plan,) = context.plans
    assert isinstance(plan, PullPlan)
    assert (result, plan.ranges, plan.bulk) == (ReadResult(b"said", 2), ((1, 3),), True)


@pytest.mark.usefixtures("selectors")
def test_a_graph(stored: Project) -> None:
    context = stored.context()
    result = read(context, ReadRequest(b"graph", refs=[], ids=[stored.repository.snapshot().revision(1)]))
    (plan,) = context.plans
    assert isinstance(plan, ContentPlan)
    assert (result, [*(plan.pieces or ())]) == (ReadResult(b"said", 0), [(0, ()), (1, ())])


@pytest.mark.usefixtures("selectors")
def test_an_unknown_revision(stored: Project) -> None:
    with pytest.raises(MissingRevision):
        read(stored.context(), ReadRequest(b"history", refs=[], ids=[b"\1" * 20]))


def test_a_log_needs_no_selector_of_the_system(stored: Project) -> None:
    context = stored.context()
    assert read(context, ReadRequest(encode_selector(LogSelector()), refs=[MAIN])) == ReadResult()
    (plan,) = context.plans
    assert isinstance(plan, ContentPlan)
    assert plan.items is not None
    with pytest.raises(NoSuchPart):
        read(stored.context(), ReadRequest(encode_selector(LogSelector("none"))))
