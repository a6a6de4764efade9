"""verbs.repository_read, vcs.bzr.reading, vcs.bzr.selector: which revisions, numbers and trees are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from builders import MAIN
from bzr_builders import TRUNK, BzrHistory
from verb_context import NotedContext, Project

from smartserver.errors import MissingRevision, NoSuchPart, Unsupported
from smartserver.records.model import RefValue, Tip
from smartserver.store.model import ContentPlan, PullPlan
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import Transaction
from smartserver.vcs.base import WrongContent
from smartserver.vcs.bzr.kinds import TEXT
from smartserver.vcs.bzr.left_hand import MAX_DIGITS
from smartserver.vcs.bzr.selector import (
    Called,
    History,
    Parts,
    ReadAnswer,
    RevisionsField,
    Tag,
    TreesField,
    decode_answer,
    encode,
)
from smartserver.verbs.repository_read import ReadRequest, ReadResult, repository_read
from transports.memory import MemoryTransport

run = repository_read.function

Pieces = list[tuple[int, list[tuple[int, bytes]]]]


def asking(
    chosen: RevisionsField | None = None,
    trees: TreesField | None = None,
    inside: tuple[RevisionsField | None, TreesField | None] | None = None,
    **more: Any,
) -> ReadRequest:
    return ReadRequest(encode(Parts(chosen, trees, inside)), **more)


def history(newest: Called, **more: Any) -> ReadRequest:
    return ReadRequest(encode(History(newest)), **more)


def sent(result: ReadResult, context: NotedContext) -> tuple[ReadAnswer, Pieces]:
    """What is said, and what is sent."""
    (plan,) = context.plans
    assert isinstance(plan, ContentPlan)
    assert result.segments == 0
    return decode_answer(result.said), [
        (ordinal, [place[:2] for place in places]) for ordinal, places in plan.pieces or ()
    ]


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
        self.refs[b"odd"] = Tip(self.line[2], b"9" * (MAX_DIGITS + 1))
        self.history.push(self.repository, self.history.parents, self.refs)

    def context(self, inner: str = "") -> NotedContext:
        return NotedContext(self.repository.begin(), inner=inner)

    def asked(self, request: ReadRequest, inner: str = "") -> tuple[ReadAnswer, Pieces]:
        context = self.context(inner)
        return sent(run(context, request), context)

    def chosen(self, chosen: RevisionsField | None = None, refs: list[bytes] | None = None, **more: Any) -> list[bytes]:
        said, pieces = self.asked(asking(chosen, refs=refs or [TRUNK], **more))
        assert said == ReadAnswer()
        return [self.repository.snapshot().revision(ordinal) for ordinal, _ in pieces]

    def tree(self, trees: TreesField, ref: bytes = TRUNK, **more: Any) -> list[bytes]:
        said, pieces = self.asked(asking(None, trees, refs=[ref], **more))
        assert said == ReadAnswer(said.ids)
        snapshot = self.repository.snapshot()
        assert [snapshot.revision(ordinal) for ordinal, _ in pieces] == list(dict.fromkeys(said.ids))
        return said.ids

    def texts(self, trees: TreesField, inner: str = "") -> set[bytes]:
        """The names of the files whose texts are sent."""
        _, pieces = self.asked(asking(None, trees, refs=[TRUNK]), inner)
        return {key.partition(b"-id")[0] for _, places in pieces for kind, key in places if kind == TEXT}


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
    assert trunk.chosen(RevisionsField(limit=2, left_hand=True)) == [line[4], line[3]]
    assert trunk.chosen(RevisionsField(left_hand=True, newest=3, oldest=2)) == [line[2], line[1]]
    assert trunk.chosen(RevisionsField(left_hand=True, newest=line[2], oldest=line[1])) == [line[2], line[1]]
    assert trunk.chosen(RevisionsField(left_hand=True, newest=-2, oldest=-3)) == [line[3], line[2]]
    assert trunk.chosen(RevisionsField(left_hand=True, oldest=1)) == line[::-1]
    assert trunk.chosen(RevisionsField(left_hand=True, oldest=4), haves=[line[3]]) == [line[4]]
    assert set(trunk.chosen(RevisionsField(oldest=5))) == {line[4], trunk.side}
    assert trunk.chosen(RevisionsField(newest=1, oldest=5)) == []
    _, pieces = trunk.asked(asking(RevisionsField(bare=True, ends=2), refs=[TRUNK]))
    assert [bool(places) for _, places in pieces] == [True, True, False, False, True, True]


def test_numbers_of_what_has_tags(trunk: Trunk) -> None:
    """In the order of the tags' names, those of the first ref alone; the graph comes where counting is not enough."""

    def asked(chosen: RevisionsField, refs: list[bytes], **tags: bytes) -> tuple[list[int], int]:
        context = trunk.context()
        for name, revision in tags.items():
            context.transaction.set_map("tags", "ids", TRUNK + b"\0" + name.encode(), revision)
        said, pieces = sent(run(context, asking(chosen, refs=refs)), context)
        return said.numbers, len(pieces)

    line = trunk.line
    graph = RevisionsField(bare=True, numbers=True)
    assert asked(graph, [TRUNK], b=line[0], a=line[4], c=line[0]) == ([5, 1, 1], 0)
    assert asked(graph, [TRUNK]) == ([], 0)
    assert asked(graph, [TRUNK], b=line[2], a=trunk.side) == ([0, 3], 6)
    assert asked(graph, [TRUNK], b=line[2], a=b"ghost") == ([0, 3], 6)
    assert asked(graph, [b"none"], a=line[0]) == ([], 0)
    assert asked(RevisionsField(bare=True), [TRUNK], a=line[0]) == ([], 6)
    # One that is named comes besides, if it is there.
    assert asked(RevisionsField(1, newest=Tag(b"a"), numbers=True), [TRUNK], a=line[3]) == ([4], 1)
    assert asked(RevisionsField(1, newest=Tag(b"none"), numbers=True), [TRUNK], a=line[3]) == ([4], 0)


def test_no_number_is_below_one(trunk: Trunk) -> None:
    """What a tip's attributes say may be less than what can be counted."""
    context = trunk.context()
    context.transaction.set_ref(b"few", (Tip(trunk.line[4], b"2"),))
    context.transaction.set_map("tags", "ids", b"few\0a", trunk.line[0])
    result = run(context, asking(RevisionsField(bare=True, numbers=True), refs=[b"few"]))
    assert decode_answer(result.said).numbers == [0]


@pytest.mark.parametrize(
    ("number", "place"), [(1, 0), (3, 2), (5, 4), (-1, 4), (-2, 3), (-5, 0), (0, None), (6, None), (-6, None)]
)
def test_a_number(trunk: Trunk, number: int, place: int | None) -> None:
    if place is None:
        with pytest.raises(NoSuchPart, match=f"there is no revision {number} in the left-hand history"):
            trunk.tree(TreesField([number]))
    else:
        assert trunk.tree(TreesField([number])) == [trunk.line[place]]


def test_numbers_end_at_a_ghost(trunk: Trunk) -> None:
    """Whatever the client said of the tip: nothing of the history below the ghost is here."""
    assert trunk.tree(TreesField([2, 1, -2]), b"grafted") == [trunk.later, trunk.grafted, trunk.grafted]
    for number in (3, 9, -3):
        with pytest.raises(NoSuchPart):
            trunk.tree(TreesField([number]), b"grafted")


def test_numbers_of_a_tip_that_does_not_say_its_own(trunk: Trunk) -> None:
    assert trunk.tree(TreesField([1, 2]), b"other") == [trunk.line[0], trunk.side]
    assert trunk.tree(TreesField([1, 3]), b"none", ids=[trunk.line[2]]) == [trunk.line[0], trunk.line[2]]
    assert trunk.tree(TreesField([1, 3]), b"odd") == [trunk.line[0], trunk.line[2]]


def test_many_numbers_cost_no_more_than_one(trunk: Trunk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may read may ask for 4,096 at once: each walked the whole line, and all refs."""
    walked: list[int] = []
    looked: list[Transaction] = []
    first_parent, refs = Snapshot.first_parent, Transaction.refs

    def noted(of: Snapshot, ordinal: int) -> int | None:
        walked.append(ordinal)
        return first_parent(of, ordinal)

    def seen(of: Transaction) -> Mapping[bytes, RefValue]:
        looked.append(of)
        return refs(of)

    monkeypatch.setattr(Snapshot, "first_parent", noted)
    monkeypatch.setattr(Transaction, "refs", seen)
    costs = []
    for numbers in ([1], [1, 2, 3, -1, -5] * 800):
        del walked[:], looked[:]
        trunk.tree(TreesField([*numbers]))
        costs.append((len(walked), len(looked)))
    assert costs == [(4, 2)] * 2


def test_a_number_needs_something_wanted(trunk: Trunk) -> None:
    with pytest.raises(NoSuchPart):
        trunk.tree(TreesField([-1]), b"none")


def test_which_trees(trunk: Trunk) -> None:
    line = trunk.line
    assert trunk.tree(TreesField([line[1], -1])) == [line[1], line[4]]
    assert trunk.texts(TreesField([-1])) == {b"f"}
    assert trunk.texts(TreesField([-1], inner=True), "f") == {b"f"}
    assert trunk.texts(TreesField([-1], inner=True), "src/é") == set()
    assert trunk.texts(TreesField([-1], inner=True, paths=[b"f"]), "src") == {b"f"}
    assert trunk.texts(TreesField([-1], inner=True)) == {b"f"}


def test_trees_bring_revisions_only_where_those_are_chosen(trunk: Trunk) -> None:
    said, pieces = trunk.asked(asking(RevisionsField(1), TreesField(each=True), refs=[TRUNK]))
    tip, before = [trunk.repository.snapshot().ordinal(each) for each in (trunk.line[4], trunk.line[3])]
    assert [ordinal for ordinal, _ in pieces] == [tip, tip, before]
    assert said == ReadAnswer()


def test_what_is_asked_instead_inside_a_branch(trunk: Trunk) -> None:
    inside = (RevisionsField(bare=True), TreesField([-1], inner=True, versions=True))
    request = asking(RevisionsField(1), inside=inside, refs=[TRUNK])
    said, pieces = trunk.asked(request)
    assert (len(pieces), said.ids) == (1, [])
    said, pieces = trunk.asked(request, "src")
    assert (len(pieces), said.ids) == (7, [trunk.line[4]])
    assert not any(places for _, places in pieces[:6])
    assert TEXT not in {kind for kind, _ in pieces[6][1]}


@pytest.mark.parametrize("newest", [2, -4, None, Tag(b"v2")])
def test_the_history_of_one_revision_by_what_it_is_called(trunk: Trunk, newest: Called | None) -> None:
    """None: its id."""
    two = trunk.line[1]
    context = trunk.context()
    context.transaction.set_map("tags", "ids", TRUNK + b"\0v2", two)
    result = run(context, history(newest or two, refs=[TRUNK], haves=[trunk.line[0]]))
    (plan,) = context.plans
    assert isinstance(plan, PullPlan)
    assert (decode_answer(result.said), result.segments, plan.bulk) == (ReadAnswer([two]), 1, True)
    snapshot = trunk.repository.snapshot()
    assert [snapshot.revision(each) for low, high in plan.ranges for each in range(low, high)] == [two]


def test_what_a_tag_names_of_other_things(trunk: Trunk) -> None:
    context = trunk.context()
    context.transaction.set_map("tags", "ids", TRUNK + b"\0v2", trunk.line[1])
    said, pieces = sent(run(context, asking(RevisionsField(newest=Tag(b"v2")), refs=[TRUNK])), context)
    assert (len(pieces), said) == (2, ReadAnswer())
    for refs in ([b"other"], [], None):  # A tag is one branch's.
        with pytest.raises(NoSuchPart, match="no tag named 'v2'"):
            run(context, history(Tag(b"v2"), refs=refs))
    context.transaction.set_map("tags", "ids", TRUNK + b"\0gone", b"ghost")
    with pytest.raises(MissingRevision, match="ghost"):
        run(context, history(Tag(b"gone"), refs=[TRUNK]))
    with pytest.raises(NoSuchPart):
        run(context, history(9, refs=[TRUNK]))


@pytest.mark.parametrize(
    "request_",
    [
        asking(ids=[b"unknown"], chosen=RevisionsField(), trees=TreesField()),
        asking(trees=TreesField([b"unknown"])),
        asking(trees=TreesField([b"ghost"])),
        asking(chosen=RevisionsField(newest=b"unknown")),
        asking(chosen=RevisionsField(oldest=b"ghost")),
        asking(ids=[b"unknown"]),
    ],
)
def test_ids_that_are_not_known(trunk: Trunk, request_: ReadRequest) -> None:
    with pytest.raises(MissingRevision):
        run(trunk.context(), request_)


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (b"", "truncated"),
        (b"\xc2", "Expected `array`"),
        (encode([2]), "Invalid value 2"),
        (encode([1, None, None, None, None]), "at most"),
        (encode([1, [-1]]), ">= 0"),
        (encode([1, None, [[b""]]]), "length >= 1"),
        (encode([1, None, [[0] * 4097]]), "length <= 4096"),
        (encode([0, b"r" * 1025]), "length <= 1024"),
        (encode([0]), "Expected `array` of"),
    ],
)
def test_what_is_no_selector(trunk: Trunk, selector: bytes, why: str) -> None:
    with pytest.raises(Unsupported, match=f"this selector of bzr 2a.*{why}"):
        run(trunk.context(), ReadRequest(selector))


def test_a_selector_of_another_system_is_refused() -> None:
    project = Project()
    line = project.history.line(1)
    project.push(line, {MAIN: line[0]})
    with pytest.raises(Unsupported, match="this selector of a git repository"):
        run(project.context(), asking())


@pytest.mark.parametrize("said", [b"nonsense", b"\x93\x90\x90" + b"\x91" * 200_000 + b"\xc0"])
def test_what_a_server_says_may_be_nonsense(said: bytes) -> None:
    """Also what is nested so deep that no decoder follows, in a field that is not known here."""
    with pytest.raises(WrongContent, match="what the server says"):
        decode_answer(said)
