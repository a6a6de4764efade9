"""verbs.repository_pull: pulls of less than whole revisions: which revisions, numbers, and what goes together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from builders import MAIN
from bzr_builders import TRUNK, BzrHistory
from verb_context import NotedContext, Project

from smartserver.errors import MissingRevision, NoSuchRevisionNumber, NoSuchTag, Unsupported
from smartserver.records.model import RefValue, Tip
from smartserver.store.model import ContentPlan, PullPlan, Trees, What
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import RepositoryTransaction
from smartserver.verbs.repository_pull import (
    ChosenField,
    InsideField,
    PullRequest,
    PullResult,
    TreesField,
    repository_pull,
)
from transports.memory import MemoryTransport

run = repository_pull.function


class Trunk:
    """A line of five, one merged into the fifth; `grafted` descends from a ghost first, then from the line."""

    def __init__(self) -> None:
        self.history = BzrHistory()
        self.line = self.history.line(4)
        self.side = self.history.commit({b"f": b"side"}, [self.line[0]])
        self.line.append(self.history.commit({b"f": b"merged"}, [self.line[3], self.side]))
        self.grafted = self.history.commit({b"f": b"grafted"}, [self.line[1]], [b"ghost"], ghost_first=True)
        self.later = self.history.commit({b"f": b"later"}, [self.grafted])
        self.repository = PackRepository(MemoryTransport(), "project")
        self.refs = {TRUNK: Tip(self.line[4], b"5"), b"grafted": Tip(self.later, b"9"), b"other": Tip(self.side)}
        self.refs[b"odd"] = Tip(self.line[2], b"9" * 400)
        self.history.push(self.repository, self.history.parents, self.refs)

    def context(self, inner: str = "") -> NotedContext:
        return NotedContext(self.repository.begin(b"", "user"), inner=inner)

    def asked(self, request: PullRequest, inner: str = "") -> tuple[PullResult, ContentPlan]:
        context = self.context(inner)
        result = run(context, request)
        (plan,) = context.plans
        assert isinstance(plan, ContentPlan)
        return result, plan

    def chosen(self, chosen: ChosenField | None = None, refs: list[bytes] | None = None, **more: object) -> list[bytes]:
        request = PullRequest(What.REVISIONS, refs=refs or [TRUNK], chosen=chosen, **more)  # type: ignore[arg-type]
        result, plan = self.asked(request)
        assert result == PullResult()
        assert plan.trees == Trees()
        return [self.repository.snapshot().revision(ordinal) for ordinal in plan.revisions]

    def tree(self, trees: TreesField, ref: bytes = TRUNK, inner: str = "", **more: object) -> Trees:
        request = PullRequest(What.TREE, refs=[ref], trees=trees, **more)  # type: ignore[arg-type]
        result, plan = self.asked(request, inner)
        assert result == PullResult(trees=list(plan.trees.of))
        return plan.trees


@pytest.fixture(scope="module")
def trunk() -> Trunk:
    return Trunk()


def test_all_revisions_where_nothing_is_said(trunk: Trunk) -> None:
    everything = trunk.chosen()
    assert everything[0] == trunk.line[4]
    assert set(everything) == {*trunk.line, trunk.side}
    assert trunk.chosen(haves=[trunk.line[3], trunk.side]) == [trunk.line[4]]
    assert trunk.chosen(refs=[b"none"], ids=[trunk.line[1]]) == [trunk.line[1], trunk.line[0]]


def test_chosen_revisions(trunk: Trunk) -> None:
    line = trunk.line
    assert trunk.chosen(ChosenField(limit=2, left_hand=True)) == [line[4], line[3]]
    assert trunk.chosen(ChosenField(left_hand=True, newest=3, oldest=2)) == [line[2], line[1]]
    assert trunk.chosen(ChosenField(left_hand=True, newest=line[2], oldest=line[1])) == [line[2], line[1]]
    assert trunk.chosen(ChosenField(left_hand=True, newest=-2, oldest=-3)) == [line[3], line[2]]
    assert trunk.chosen(ChosenField(left_hand=True, oldest=1)) == line[::-1]
    assert trunk.chosen(ChosenField(left_hand=True, oldest=4), haves=[line[3]]) == [line[4]]
    assert set(trunk.chosen(ChosenField(oldest=5))) == {line[4], trunk.side}
    assert trunk.chosen(ChosenField(newest=1, oldest=5)) == []
    request = PullRequest(What.REVISIONS, refs=[TRUNK], chosen=ChosenField(bare=True))
    assert trunk.asked(request)[1].bare
    request = PullRequest(What.REVISIONS, refs=[TRUNK], chosen=ChosenField(bare=True, ends=2))
    assert trunk.asked(request)[1].ends == 2


def test_numbers_of_what_has_tags(trunk: Trunk) -> None:
    """In the order of the tags' names, those of the first ref alone; the graph comes where counting is not enough."""

    def asked(chosen: ChosenField, refs: list[bytes], **tags: bytes) -> tuple[list[int], int]:
        context = trunk.context()
        for name, revision in tags.items():
            context.transaction.set_map("tags", "ids", TRUNK + b"\0" + name.encode(), revision)
        result = run(context, PullRequest(What.REVISIONS, refs=refs, chosen=chosen))
        (plan,) = context.plans
        assert isinstance(plan, ContentPlan)
        return result.numbers, len(plan.revisions)

    line = trunk.line
    graph = ChosenField(bare=True, numbers=True)
    assert asked(graph, [TRUNK], b=line[0], a=line[4], c=line[0]) == ([5, 1, 1], 0)
    assert asked(graph, [TRUNK]) == ([], 0)
    assert asked(graph, [TRUNK], b=line[2], a=trunk.side) == ([0, 3], 6)
    assert asked(graph, [TRUNK], b=line[2], a=b"ghost") == ([0, 3], 6)
    assert asked(graph, [b"none"], a=line[0]) == ([], 0)
    assert asked(ChosenField(bare=True), [TRUNK], a=line[0]) == ([], 6)
    # One that is named comes besides, if it is there.
    assert asked(ChosenField(1, tag=b"a", numbers=True), [TRUNK], a=line[3]) == ([4], 1)
    assert asked(ChosenField(1, tag=b"none", numbers=True), [TRUNK], a=line[3]) == ([4], 0)


def test_no_number_is_below_one(trunk: Trunk) -> None:
    """What a tip's attributes say may be less than what can be counted."""
    context = trunk.context()
    context.transaction.set_ref(b"few", (Tip(trunk.line[4], b"2"),))
    context.transaction.set_map("tags", "ids", b"few\0a", trunk.line[0])
    result = run(context, PullRequest(What.REVISIONS, refs=[b"few"], chosen=ChosenField(bare=True, numbers=True)))
    assert result.numbers == [0]


@pytest.mark.parametrize(
    ("number", "place"), [(1, 0), (3, 2), (5, 4), (-1, 4), (-2, 3), (-5, 0), (0, None), (6, None), (-6, None)]
)
def test_a_number(trunk: Trunk, number: int, place: int | None) -> None:
    if place is None:
        with pytest.raises(NoSuchRevisionNumber) as caught:
            trunk.tree(TreesField([number]))
        assert caught.value.number == number
    else:
        assert trunk.tree(TreesField([number])).of == (trunk.line[place],)


def test_numbers_end_at_a_ghost(trunk: Trunk) -> None:
    """What the tip's attributes say counts: the history below the ghost is elsewhere."""
    assert trunk.tree(TreesField([9, 8, -2]), b"grafted").of == (trunk.later, trunk.grafted, trunk.grafted)
    for number in (7, 1, -3):
        with pytest.raises(NoSuchRevisionNumber):
            trunk.tree(TreesField([number]), b"grafted")


def test_numbers_of_a_tip_that_does_not_say_its_own(trunk: Trunk) -> None:
    assert trunk.tree(TreesField([1, 2]), b"other").of == (trunk.line[0], trunk.side)
    assert trunk.tree(TreesField([1, 3]), b"none", ids=[trunk.line[2]]).of == (trunk.line[0], trunk.line[2])
    assert trunk.tree(TreesField([1, 3]), b"odd").of == (trunk.line[0], trunk.line[2])


def test_many_numbers_cost_no_more_than_one(trunk: Trunk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may read may ask for 4,096 at once: each walked the whole line, and all refs."""
    walked: list[int] = []
    looked: list[RepositoryTransaction] = []
    first_parent, refs = Snapshot.first_parent, RepositoryTransaction.refs

    def noted(of: Snapshot, ordinal: int) -> int | None:
        walked.append(ordinal)
        return first_parent(of, ordinal)

    def seen(of: RepositoryTransaction) -> Mapping[bytes, RefValue]:
        looked.append(of)
        return refs(of)

    monkeypatch.setattr(Snapshot, "first_parent", noted)
    monkeypatch.setattr(RepositoryTransaction, "refs", seen)
    costs = []
    for numbers in ([1], [1, 2, 3, -1, -5] * 800):
        del walked[:], looked[:]
        trunk.tree(TreesField([*numbers]))
        costs.append((len(walked), len(looked)))
    assert costs == [(4, 2)] * 2


def test_a_number_needs_something_wanted(trunk: Trunk) -> None:
    with pytest.raises(NoSuchRevisionNumber):
        trunk.tree(TreesField([-1]), b"none")


def test_which_trees(trunk: Trunk) -> None:
    line = trunk.line
    assert trunk.tree(TreesField([line[1], -1])) == Trees((line[1], line[4]))
    given = TreesField([-1], True, [b"src"], texts=False, versions=True, changed=True, had=[b"h"], files=[b"f"])
    assert trunk.tree(given) == Trees((line[4],), True, (b"src",), False, True, True, (b"h",), (b"f",))
    assert trunk.tree(TreesField([-1], inner=True), inner="src/é").paths == ("src/é".encode(),)
    assert trunk.tree(TreesField([-1], inner=True, paths=[b"f"]), inner="src").paths == (b"f", b"src")
    assert trunk.tree(TreesField([-1], inner=True)).paths == (b"",)


def test_trees_bring_revisions_only_where_those_are_chosen(trunk: Trunk) -> None:
    request = PullRequest(What.TREE, refs=[TRUNK], trees=TreesField([-1]))
    assert trunk.asked(request)[1].revisions == ()
    both = PullRequest(What.TREE, refs=[TRUNK], chosen=ChosenField(1), trees=TreesField(each=True))
    result, plan = trunk.asked(both)
    assert len(plan.revisions) == 1
    assert result.trees == []


def test_what_is_asked_instead_inside_a_branch(trunk: Trunk) -> None:
    inside = InsideField(ChosenField(bare=True), TreesField([-1], inner=True, versions=True))
    request = PullRequest(What.REVISIONS, refs=[TRUNK], chosen=ChosenField(1), inside=inside)
    result, plan = trunk.asked(request)
    assert (len(plan.revisions), plan.trees, result.trees) == (1, Trees(), [])
    result, plan = trunk.asked(request, "src")
    assert (len(plan.revisions), plan.bare, plan.trees.paths, plan.trees.versions) == (6, True, (b"src",), True)
    assert result.trees == [trunk.line[4]]


@pytest.mark.parametrize("named", [2, -4, "the id", "a tag"])
def test_the_history_of_one_revision_by_what_it_is_called(trunk: Trunk, named: int | str) -> None:
    two = trunk.line[1]
    if named == "a tag":
        chosen = ChosenField(tag=b"v2")
    else:
        chosen = ChosenField(newest=two if isinstance(named, str) else named)
    context = trunk.context()
    context.transaction.set_map("tags", "ids", TRUNK + b"\0v2", two)
    result = run(context, PullRequest(What.HISTORY, refs=[TRUNK], haves=[trunk.line[0]], chosen=chosen, bulk=True))
    (plan,) = context.plans
    assert isinstance(plan, PullPlan)
    assert (result.newest, result.segments, plan.bulk) == (two, 1, True)
    snapshot = trunk.repository.snapshot()
    assert [snapshot.revision(each) for low, high in plan.ranges for each in range(low, high)] == [two]


def test_what_a_tag_names_of_other_things(trunk: Trunk) -> None:
    context = trunk.context()
    context.transaction.set_map("tags", "ids", TRUNK + b"\0v2", trunk.line[1])
    result = run(context, PullRequest(What.REVISIONS, refs=[TRUNK], chosen=ChosenField(tag=b"v2")))
    (plan,) = context.plans
    assert isinstance(plan, ContentPlan)
    assert (len(plan.revisions), result.newest) == (2, b"")
    for refs in ([b"other"], [], None):  # A tag is one branch's.
        with pytest.raises(NoSuchTag, match="no tag named 'v2'"):
            run(context, PullRequest(What.HISTORY, refs=refs, chosen=ChosenField(tag=b"v2")))
    context.transaction.set_map("tags", "ids", TRUNK + b"\0gone", b"ghost")
    with pytest.raises(MissingRevision, match="ghost"):
        run(context, PullRequest(What.HISTORY, refs=[TRUNK], chosen=ChosenField(tag=b"gone")))
    with pytest.raises(NoSuchRevisionNumber):
        run(context, PullRequest(What.HISTORY, refs=[TRUNK], chosen=ChosenField(newest=9)))


def test_who_changed_what_is_there_last(trunk: Trunk) -> None:
    assert trunk.tree(TreesField([-1], bringers=True)).bringers
    assert not trunk.tree(TreesField([-1])).bringers


@pytest.mark.parametrize(
    "request_",
    [
        PullRequest(What.TREE, ids=[b"unknown"], chosen=ChosenField(), trees=TreesField()),
        PullRequest(What.TREE, trees=TreesField([b"unknown"])),
        PullRequest(What.TREE, trees=TreesField([b"ghost"])),
        PullRequest(What.REVISIONS, chosen=ChosenField(newest=b"unknown")),
        PullRequest(What.REVISIONS, chosen=ChosenField(oldest=b"ghost")),
        PullRequest(What.REVISIONS, ids=[b"unknown"]),
    ],
)
def test_ids_that_are_not_known(trunk: Trunk, request_: PullRequest) -> None:
    with pytest.raises(MissingRevision):
        run(trunk.context(), request_)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (PullRequest(What.TREE), "tree without trees"),
        (PullRequest(What.REVISIONS, trees=TreesField()), "revisions with trees"),
        (PullRequest(What.HISTORY, trees=TreesField()), "history with trees"),
        (PullRequest(What.REFS, trees=TreesField()), "refs with trees"),
        (PullRequest(What.HISTORY, chosen=ChosenField()), "history with revisions chosen"),
        (PullRequest(What.HISTORY, chosen=ChosenField(1, newest=1)), "history with revisions chosen"),
        (PullRequest(What.HISTORY, chosen=ChosenField(newest=1, oldest=1)), "history with revisions chosen"),
        (PullRequest(What.REVISIONS, chosen=ChosenField(newest=1, tag=b"v1")), "a newest revision and a tag"),
        (
            PullRequest(What.REVISIONS, inside=InsideField(ChosenField(newest=1, tag=b"v1"))),
            "a newest revision and a tag",
        ),
        (PullRequest(What.REFS, chosen=ChosenField(newest=1)), "refs with revisions chosen"),
        (PullRequest(What.REFS, chosen=ChosenField()), "refs with revisions chosen"),
        (PullRequest(What.HISTORY, inside=InsideField()), "history from inside"),
    ],
)
def test_what_does_not_go_together(trunk: Trunk, request_: PullRequest, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        run(trunk.context(), request_)


@pytest.mark.parametrize(
    "request_",
    [
        PullRequest(What.REVISIONS),
        PullRequest(What.REVISIONS, chosen=ChosenField(newest=1)),
        PullRequest(What.TREE, trees=TreesField([-99])),
    ],
)
def test_of_git_nothing_but_whole_revisions(request_: PullRequest) -> None:
    project = Project()
    line = project.history.line(1)
    project.push(line, {MAIN: line[0]})
    with pytest.raises(Unsupported, match=r"reading parts of a repository of git sha1.*bzr 2a"):
        run(project.context(), request_)
