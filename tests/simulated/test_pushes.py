"""client.repository: what becomes of a push, whatever the server holds and whatever was remembered of it."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import MAIN, History, push
from simulated_joint import NEW, HistoryPlan, HistorySource, Joint

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.request import Answer, Outgoing
from smartserver.client.updates import Outcome, RefUpdate, UpdateOutcome
from smartserver.errors import (
    BranchExists,
    DivergedBranches,
    HeadBranch,
    MissingBase,
    MissingParents,
    MissingRevision,
    NoSuchBranch,
    NoSuchRepository,
    NotDone,
    StaleLease,
    WrongVcs,
)
from smartserver.records.bulk import BulkDecoder
from smartserver.records.model import GraphNode, Key, Kind, Plan, RevisionId
from smartserver.records.segment import encode_graph
from smartserver.records.system import system_of
from smartserver.store.transaction import Transaction
from smartserver.verbs.rules import Create, Rule
from smartserver.wire.limits import BULK_ALLOWANCE, MAX_BULK_RATIO
from smartserver.wire.messages import RequestFlag

TOPIC, OTHER, TAG = b"refs/heads/topic", b"refs/heads/other", b"refs/tags/v1"
PATH = "project"
DONE, UNCHANGED, REFUSED = Outcome.DONE, Outcome.UNCHANGED, Outcome.REFUSED


@dataclass
class Work:
    """Somebody with a history, on a server where MAIN is at the fourth of six revisions and TOPIC at a side line."""

    joint: Joint
    client: Client
    history: History = field(default_factory=History)
    source: HistorySource = field(init=False)
    remote: RemoteRepository = field(init=False)
    line: list[bytes] = field(init=False)
    side: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.source = HistorySource(self.history)
        self.remote = self.joint.remote(PATH, self.client)
        self.line = self.history.line(6)
        self.side = self.history.line(2, self.line[1], "side")

    def push(self, *updates: RefUpdate, atomic: bool = False, check_only: bool = False) -> list[UpdateOutcome]:
        return self.remote.push(PushRequest(updates, self.source, NEW, atomic=atomic, check_only=check_only)).refs

    def refs(self, path: str = PATH) -> dict[bytes, bytes]:
        repository = self.joint.site.find(path).repository
        if not repository.exists():
            return {}
        return {name: value[0].id for name, value in repository.snapshot().view.refs().items()}


@pytest.fixture
def work(joint: Joint) -> Iterator[Work]:
    with joint.client() as client:
        work = Work(joint, client)
        done = work.push(RefUpdate(MAIN, work.line[3]), RefUpdate(TOPIC, work.side[0]))
        assert [each.outcome for each in done] == [DONE, DONE]
        yield work


# -- rules: (update, outcome, error); tips are given as places in the history


def at(work: Work, place: str) -> bytes:
    return (work.line if place[0] == "m" else work.side)[int(place[1:])]


RULES: list[tuple[str, bytes, str | None, Rule, Create, str | None, Outcome, type | None]] = [
    ("forward", MAIN, "m5", Rule.FF, Create.YES, None, DONE, None),
    ("forward to what is there", MAIN, "m3", Rule.FF, Create.YES, None, UNCHANGED, None),
    ("backward", MAIN, "m1", Rule.FF, Create.YES, None, REFUSED, DivergedBranches),
    ("aside", MAIN, "s1", Rule.FF, Create.YES, None, REFUSED, DivergedBranches),
    ("forced backward", MAIN, "m1", Rule.FORCE, Create.YES, None, DONE, None),
    ("forced aside", MAIN, "s1", Rule.FORCE, Create.YES, None, DONE, None),
    ("a new branch", OTHER, "m5", Rule.FF, Create.YES, None, DONE, None),
    ("a new branch at an old revision", OTHER, "m0", Rule.FF, Create.MUST, None, DONE, None),
    ("a branch that should exist", OTHER, "m5", Rule.FF, Create.NO, None, REFUSED, NoSuchBranch),
    ("a branch that exists and should", MAIN, "m5", Rule.FF, Create.NO, None, DONE, None),
    ("a branch that should not exist", MAIN, "m5", Rule.FF, Create.MUST, None, REFUSED, BranchExists),
    ("one that should not exist, but equal", MAIN, "m3", Rule.FF, Create.MUST, None, UNCHANGED, None),
    ("a new tag", TAG, "m2", Rule.NEW, Create.YES, None, DONE, None),
    ("a tag that is there", MAIN, "m3", Rule.NEW, Create.YES, None, UNCHANGED, None),
    ("a tag that would move", MAIN, "m5", Rule.NEW, Create.YES, None, REFUSED, BranchExists),
    ("a lease that holds", MAIN, "s1", Rule.LEASE, Create.YES, "m3", DONE, None),
    ("a lease that does not", MAIN, "m5", Rule.LEASE, Create.YES, "m2", REFUSED, StaleLease),
    ("a lease that does not, but equal", MAIN, "m3", Rule.LEASE, Create.YES, "m2", UNCHANGED, None),
    ("a lease of nothing, where nothing is", OTHER, "s1", Rule.LEASE, Create.YES, None, DONE, None),
    ("a lease of nothing, where something is", MAIN, "m5", Rule.LEASE, Create.YES, None, REFUSED, StaleLease),
    ("a lease of something, where nothing is", OTHER, "s1", Rule.LEASE, Create.YES, "m3", REFUSED, StaleLease),
    ("deleting", TOPIC, None, Rule.FF, Create.YES, None, DONE, None),
    ("deleting what is expected", TOPIC, None, Rule.FF, Create.YES, "s0", DONE, None),
    ("deleting what is not expected", TOPIC, None, Rule.FF, Create.YES, "s1", REFUSED, StaleLease),
    ("deleting nothing", OTHER, None, Rule.FF, Create.YES, None, UNCHANGED, None),
    ("deleting nothing that is expected", OTHER, None, Rule.FF, Create.YES, "s1", REFUSED, StaleLease),
    ("deleting HEAD's branch", MAIN, None, Rule.FF, Create.YES, None, REFUSED, HeadBranch),
]


@pytest.mark.parametrize(("ref", "tip", "rule", "create", "expected", "outcome", "error"), [row[1:] for row in RULES],
                         ids=[row[0] for row in RULES])  # fmt: skip
def test_rules(
    work: Work,
    ref: bytes,
    tip: str | None,
    rule: Rule,
    create: Create,
    expected: str | None,
    outcome: Outcome,
    error: type | None,
) -> None:
    before, files = work.refs(), work.joint.tree()
    target = None if tip is None else at(work, tip)
    lease = None if expected is None else at(work, expected)
    (done,) = work.push(RefUpdate(ref, target, rule, create, lease))
    assert (done.outcome, None if done.error is None else type(done.error)) == (outcome, error)
    after = dict(before)
    if outcome is DONE:
        after.pop(ref, None)
        if target is not None:
            after[ref] = target
        assert done.old == before.get(ref, b"")
    else:
        assert work.joint.tree() == files
    assert work.refs() == after
    # What the server said of it is remembered, also by the refused.
    known = {name: value[0].id for name, value in work.remote.knowledge.refs().items()}
    assert known == after


# -- several in one push


def test_each_has_its_verdict(work: Work) -> None:
    done = work.push(
        RefUpdate(MAIN, work.line[5]),
        RefUpdate(TOPIC, work.line[5]),
        RefUpdate(OTHER, None),
        RefUpdate(TAG, work.side[1], Rule.NEW),
        RefUpdate(b"refs/heads/absent", work.line[0], create=Create.NO),
    )
    assert [each.outcome for each in done] == [DONE, REFUSED, UNCHANGED, DONE, REFUSED]
    assert [type(each.error) for each in done if each.error] == [DivergedBranches, NoSuchBranch]
    assert work.refs() == {MAIN: work.line[5], TOPIC: work.side[0], TAG: work.side[1]}


def test_when_all_are_refused_nothing_changes(work: Work) -> None:
    before = work.joint.tree()
    done = work.push(RefUpdate(MAIN, work.side[1]), RefUpdate(TOPIC, work.line[5]))
    assert [type(each.error) for each in done] == [DivergedBranches, DivergedBranches]
    assert work.joint.tree() == before


def test_atomic_is_all_or_nothing(work: Work) -> None:
    before = work.joint.tree()
    updates = [RefUpdate(MAIN, work.line[5]), RefUpdate(TOPIC, work.line[5]), RefUpdate(OTHER, work.line[4])]
    done = work.push(*updates, atomic=True)
    assert [type(each.error) for each in done] == [NotDone, DivergedBranches, NotDone]
    assert work.joint.tree() == before
    done = work.push(updates[0], updates[2], atomic=True)
    assert [each.outcome for each in done] == [DONE, DONE]
    assert work.refs() == {MAIN: work.line[5], TOPIC: work.side[0], OTHER: work.line[4]}


def test_a_refused_first_push_makes_no_repository(work: Work) -> None:
    before = work.joint.tree()
    remote = work.joint.remote("new/deep/one", work.client)
    (done,) = remote.push(PushRequest([RefUpdate(MAIN, work.line[2], create=Create.NO)], work.source, NEW)).refs
    assert isinstance(done.error, NoSuchBranch)
    assert work.joint.tree() == before
    assert not remote.knowledge.met


def test_a_push_without_leave_to_create(work: Work) -> None:
    remote = work.joint.remote("new", work.client)
    with pytest.raises(NoSuchRepository):
        remote.push(PushRequest([RefUpdate(MAIN, work.line[2])], work.source))


def test_a_dry_run_says_what_would_be(work: Work) -> None:
    before = work.joint.tree()
    done = work.push(RefUpdate(MAIN, work.line[5]), RefUpdate(TOPIC, work.line[5]), check_only=True)
    assert [each.outcome for each in done] == [DONE, REFUSED]
    assert work.joint.tree() == before
    (done_anew,) = (
        work.joint.remote("new", work.client)
        .push(PushRequest([RefUpdate(MAIN, work.line[5])], work.source, NEW, check_only=True))
        .refs
    )
    assert done_anew.outcome is DONE
    assert work.joint.tree() == before


# -- what was remembered is wrong


def test_a_repository_made_anew(work: Work) -> None:
    """Everything remembered of it is wrong: the refusal says what is there, and one more trip does."""
    work.joint.site.find(PATH).repository.delete(bytes(16), 0, "somebody")
    other = work.joint.remote(PATH, work.client)
    other.push(PushRequest([RefUpdate(OTHER, work.line[0])], work.source, NEW))
    work.joint.network.take()
    (done,) = work.push(RefUpdate(MAIN, work.line[5]))
    assert done.outcome is DONE
    assert work.joint.network.counts().rounds == 2
    assert work.source.planned[-2:] == [2, 5]
    assert work.refs() == {MAIN: work.line[5], OTHER: work.line[0]}
    assert set(work.remote.knowledge.tips()) == {work.line[5], work.line[0]}


@pytest.mark.parametrize("vcs", ["bzr 2a", "git sha256"])
def test_a_repository_made_anew_for_another_system(work: Work, vcs: str) -> None:
    """What the body met there is not what is wrong: the first push says it as the second does."""
    work.joint.site.find(PATH).repository.delete(bytes(16), 0, "somebody")

    def other(transaction: Transaction) -> None:
        transaction.create(vcs, system_of(vcs).kinds, {})

    push(work.joint.site.find(PATH).repository, work.history, [], first=other)
    for _ in range(2):
        with pytest.raises(WrongVcs) as wrong:
            work.push(RefUpdate(MAIN, work.line[5]))
        assert wrong.value.vcs == vcs


def test_a_repository_made_anew_where_something_can_be_done(work: Work) -> None:
    """The answer is no refusal, for one of the refs needs nothing; the other is planned again."""
    work.joint.site.find(PATH).repository.delete(bytes(16), 0, "somebody")
    other = work.joint.remote(PATH, work.client)
    other.push(PushRequest([RefUpdate(OTHER, work.line[0])], work.source, NEW))
    work.joint.network.take()
    tag, same = work.push(RefUpdate(TAG, work.line[3]), RefUpdate(OTHER, work.line[0]))
    assert (tag.outcome, same.outcome) == (DONE, UNCHANGED)
    assert work.joint.network.counts().rounds == 2
    assert work.refs() == {TAG: work.line[3], OTHER: work.line[0]}


def test_a_repository_that_is_gone_is_made_again(work: Work) -> None:
    work.joint.site.find(PATH).repository.delete(bytes(16), 0, "somebody")
    work.joint.network.take()
    (done,) = work.push(RefUpdate(MAIN, work.line[5]))
    assert done.outcome is DONE
    assert work.joint.network.counts().rounds == 2
    assert work.refs() == {MAIN: work.line[5]}


def test_parents_that_are_nowhere(work: Work) -> None:
    """What the client plans with is short of its own history: no plan helps."""

    class Short(HistorySource):
        def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> HistoryPlan:
            plan = super().plan(tips, haves)
            return HistoryPlan(plan.history, plan.revisions[1:])

    before = work.joint.tree()
    with pytest.raises(MissingParents) as caught:
        work.remote.push(PushRequest([RefUpdate(MAIN, work.line[5])], Short(work.history), NEW))
    assert caught.value.revisions == [work.line[4]]
    assert work.joint.tree() == before


def test_a_tip_that_is_nowhere(work: Work) -> None:
    """The server restored an older state: its refs are below what was remembered."""
    before = len(work.source.planned)
    (done,) = work.push(RefUpdate(OTHER, b"n" * 20))
    assert isinstance(done.error, MissingRevision)
    assert len(work.source.planned) == before + 1  # What the refusal says is what was planned with.


def on_a_foreign_base(work: Work) -> tuple[bytes, Key]:
    """A revision one record of which would be small on a base that the server has, but not among the ancestors."""
    foreign = work.history.key_at(work.side[0], "src/side.txt")
    text = work.history.objects[foreign].text + b"and more\n"
    tip = work.history.commit({**work.history.files(work.line[3]), "src/main.txt": text}, [work.line[3]])
    work.source.bases[b"src/main.txt"] = foreign
    return tip, foreign


def test_a_missing_base(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent again without."""
    unusable: list[set[Key]] = []
    without = HistoryPlan.without_bases

    def noted(plan: HistoryPlan, keys: Collection[Key]) -> HistoryPlan:
        unusable.append(set(keys))
        return without(plan, keys)

    monkeypatch.setattr(HistoryPlan, "without_bases", noted)
    tip, foreign = on_a_foreign_base(work)
    assert work.push(RefUpdate(MAIN, tip))[0].outcome is DONE
    assert unusable == [{foreign}]
    assert work.refs()[MAIN] == tip


def test_a_base_that_is_missing_each_time_ends_it(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HistoryPlan, "without_bases", lambda plan, keys: plan)
    tip, foreign = on_a_foreign_base(work)
    work.joint.network.take()
    with pytest.raises(MissingBase) as caught:
        work.push(RefUpdate(MAIN, tip))
    assert caught.value.keys == [foreign]
    assert work.joint.network.counts().rounds == 4


def test_what_is_there_already_is_settled_by_the_refusal(work: Work, tmp_path: Path) -> None:
    """Somebody without memory of the server pushes what it has, and much of it: it needs no second upload."""
    big = work.history.commit({f"f{number}": str(number).encode() * 40_000 for number in range(4)}, [work.line[5]])
    work.push(RefUpdate(MAIN, big))
    tip = big
    for number in range(20):
        tip = work.history.commit({"noise": bytes([number]) * 9000, "n": b"%d" % number}, [tip])
    work.push(RefUpdate(MAIN, tip))
    known = Knowledge(str(tmp_path), "hpss://x/")
    newcomer = work.joint.remote(PATH, work.client, known)
    work.joint.network.take()

    class Noisy(HistorySource):
        def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:  # type: ignore[override]
            return Padded(super().plan(tips, haves))

    (done,) = newcomer.push(PushRequest([RefUpdate(MAIN, tip)], Noisy(work.history), NEW)).refs
    assert done.outcome is UNCHANGED
    assert work.joint.network.counts().rounds == 1
    assert Knowledge(str(tmp_path), "hpss://x/").ref(MAIN) == known.ref(MAIN) is not None


@dataclass
class Padded:
    """A plan that looks larger than what is sent without its graph."""

    inner: HistoryPlan

    @property
    def graph(self) -> Sequence[GraphNode]:
        return self.inner.graph

    def segments(self) -> Iterator[bytes]:
        yield from self.inner.segments()
        yield bytes(70_000)  # Is never read: the graph alone is refused.

    def without_bases(self, keys: Collection[Key]) -> Padded:
        return self


def test_a_repository_of_another_system(work: Work) -> None:
    hg = type(NEW)("hg", (Kind("revision", "blake2b-128", True),), {})
    remote = work.joint.remote(PATH, work.client)
    with pytest.raises(WrongVcs) as caught:
        remote.push(PushRequest([RefUpdate(MAIN, work.line[5])], work.source, hg))
    assert (caught.value.vcs, caught.value.asked) == ("git sha1", "hg")
    assert not remote.knowledge.met


def test_a_large_push_announces_its_graph(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[RequestFlag] = []
    request = work.client.request

    def noted(outgoing: Outgoing) -> Answer:
        sent.append(outgoing.flags)
        return request(outgoing)

    monkeypatch.setattr(work.client, "request", noted)
    small = work.history.commit({"noise": bytes(range(256)) * 20}, [work.line[5]])
    large = work.history.commit({"noise": random.Random(1).randbytes(80_000)}, [small])
    work.push(RefUpdate(MAIN, small))
    work.push(RefUpdate(MAIN, large))
    assert [bool(flags & RequestFlag.GRAPH_FIRST) for flags in sent] == [False, True]
    assert work.refs()[MAIN] == large


def test_a_push_goes_as_a_bulk_stream_where_that_is_shorter(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[RequestFlag, int]] = []
    request = work.client.request

    def noted(outgoing: Outgoing) -> Answer:
        assert outgoing.body is not None
        # A body is made anew for each sending, and is the same each time.
        first, second = list(outgoing.body()), list(outgoing.body())
        assert b"".join([piece for piece, _ in first]) == b"".join([piece for piece, _ in second])
        assert sum(ended for _, ended in first) == sum(ended for _, ended in second)
        sent.append((outgoing.flags, sum(len(piece) for piece, _ in first)))
        return request(outgoing)

    monkeypatch.setattr(work.client, "request", noted)
    alike = work.history.line(40, work.line[5], "alike")
    noise = [work.history.commit({"noise": random.Random(2).randbytes(9_000)}, [alike[-1]])]
    large = work.history.line(300, noise[-1], "much")
    much = work.history.commit({"noise": random.Random(3).randbytes(80_000)}, [large[-1]])
    bulk = RequestFlag.BULK
    for tip, flags in ((alike[-1], bulk), (noise[0], RequestFlag.NONE), (much, bulk | RequestFlag.GRAPH_FIRST)):
        missing = work.history.ancestors([tip]) - work.history.ancestors([work.refs()[MAIN]])
        (done,) = work.remote.push(PushRequest([RefUpdate(MAIN, tip)], work.source, NEW, bulk=True)).refs
        assert done.outcome is DONE
        assert work.refs()[MAIN] == tip
        assert sent[-1][0] & (bulk | RequestFlag.GRAPH_FIRST) == flags
        plain = sum(len(work.history.segment(each)) for each in missing)
        assert sent[-1][1] < plain if flags else sent[-1][1] == plain


def test_what_is_there_many_times_over_goes_as_it_lies(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of it says more than one may, and is refused before it is kept."""
    flags: list[RequestFlag] = []
    request = work.client.request

    def noted(outgoing: Outgoing) -> Answer:
        flags.append(outgoing.flags & RequestFlag.BULK)
        return request(outgoing)

    monkeypatch.setattr(work.client, "request", noted)
    picture = random.Random(4).randbytes(20_000)
    tip = work.history.commit({f"{n}/logo": b"%d " % n + picture for n in range(200)}, [work.line[3]])
    assert len(work.history.segment(tip)) > (2 * len(picture) + BULK_ALLOWANCE) * MAX_BULK_RATIO
    for _ in range(2):
        (done,) = work.remote.push(PushRequest([RefUpdate(MAIN, tip)], work.source, NEW, bulk=True)).refs
        assert done.error is None
    assert work.refs()[MAIN] == tip
    assert flags == [RequestFlag.BULK, RequestFlag.NONE, RequestFlag.NONE]


def test_the_graph_in_a_bulk_stream_is_whole_before_a_segment_comes(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a push that cannot succeed is refused while hardly more than that has been sent."""
    graphs: list[bytes] = []
    request = work.client.request

    def noted(outgoing: Outgoing) -> Answer:
        assert outgoing.body is not None
        decoder = BulkDecoder()
        first, ended = next(iter(outgoing.body()))
        assert ended == 0
        graphs.append(b"".join(decoder.feed(first)))
        return request(outgoing)

    monkeypatch.setattr(work.client, "request", noted)
    other = work.history.line(1, None, "elsewhere")
    tip = work.history.commit({"noise": random.Random(4).randbytes(80_000)}, other)
    (done,) = work.remote.push(PushRequest([RefUpdate(MAIN, tip)], work.source, NEW, bulk=True)).refs
    assert isinstance(done.error, DivergedBranches)
    assert graphs == [encode_graph([work.history.announced(each) for each in (*other, tip)])]


# -- pulls


@pytest.mark.parametrize("noise", [0, 400_000])
def test_a_pull_as_a_bulk_stream_is_the_same_segments(work: Work, noise: int) -> None:
    tip = work.history.commit({"noise": random.Random(5).randbytes(noise)}, [work.line[5]])
    work.push(RefUpdate(MAIN, tip))
    remote = work.joint.remote(PATH, work.client)
    plain = remote.pull(refs=[MAIN])
    segments = b"".join(plain.body)
    bulk = remote.pull(refs=[MAIN], bulk=True)
    assert b"".join(bulk.body) == segments
    assert bulk.result == plain.result
    assert bulk.result.size == len(segments)
    assert list(remote.pull([tip], refs=[MAIN], bulk=True).body) == []


def test_pulling_names_ids_and_what_follows(work: Work) -> None:
    tag = work.history.tag(work.line[2])
    work.push(RefUpdate(TAG, tag, Rule.NEW))
    remote = work.joint.remote(PATH, work.client)
    pulled = remote.pull(refs=[b"HEAD"], follow=[b"refs/tags/"])
    assert b"".join(pulled.body) == b"".join(map(work.history.segment, [*work.line[:4], tag]))
    pulled = remote.pull([work.line[3]], refs=[], ids=[work.side[0]])
    assert b"".join(pulled.body) == work.history.segment(work.side[0])
    assert pulled.result.common == b"\x01"
    with pytest.raises(MissingRevision):
        remote.pull(ids=[b"n" * 20])
    assert remote.knowledge.ref(TAG) is not None
