"""client.repository: what becomes of a push, whatever the server holds and whatever was remembered of it: with maps and
settings, and to a branch below a repository, too."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import KINDS, MAIN, SETTINGS, SILENT, History, push
from history_sources import NEW, HistoryPlan, HistorySource
from simulated_joint import Joint

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.request import Answer, Outgoing
from smartserver.client.updates import NewRepository, Outcome, RefUpdate, UpdateOutcome
from smartserver.errors import (
    DivergedBranches,
    MissingBase,
    MissingParents,
    NoSuchRepository,
    NotDone,
    StaleEntry,
    WrongVcs,
)
from smartserver.records.bulk import BulkDecoder
from smartserver.records.model import HERE, Key, RevisionId
from smartserver.records.segment import encode_graph
from smartserver.records.system import system_of
from smartserver.server.context import state_of
from smartserver.store.transaction import Transaction
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.map_update import EntryChange, EntryOutcome, MapKind, MapUpdateRequest, Verdict
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from smartserver.wire.limits import BULK_ALLOWANCE, MAX_BULK_RATIO
from smartserver.wire.messages import RequestFlag

TOPIC, OTHER = b"refs/heads/topic", b"refs/heads/other"
PATH = "project"
DONE = Outcome.DONE


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


@pytest.fixture
def work(joint: Joint) -> Iterator[Work]:
    with joint.client() as client:
        work = Work(joint, client)
        done = work.push(RefUpdate(MAIN, work.line[3]), RefUpdate(TOPIC, work.side[0]))
        assert [each.outcome for each in done] == [DONE, DONE]
        yield work


# -- what was remembered is wrong


@pytest.mark.parametrize("vcs", ["bzr 2a", "git sha256"])
def test_a_repository_made_anew_for_another_system(work: Work, vcs: str) -> None:
    """The body met something else there: the first push says it as the second does."""
    work.joint.site.find(PATH).repository.delete(bytes(16), 0, "somebody")

    def other(transaction: Transaction) -> None:
        transaction.create(vcs, system_of(vcs).kinds, {})

    push(work.joint.site.find(PATH).repository, work.history, [], first=other)
    for _ in range(2):
        with pytest.raises(WrongVcs) as wrong:
            work.push(RefUpdate(MAIN, work.line[5]))
        assert wrong.value.vcs == vcs


def test_parents_that_are_nowhere(work: Work) -> None:
    """The client plans with less than its own history: no plan helps."""

    class Short(HistorySource):
        def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> HistoryPlan:
            plan = super().plan(tips, haves)
            return HistoryPlan(plan.history, plan.revisions[1:])

    before = work.joint.tree()
    with pytest.raises(MissingParents) as caught:
        work.remote.push(PushRequest([RefUpdate(MAIN, work.line[5])], Short(work.history), NEW))
    assert caught.value.revisions == [work.line[4]]
    assert work.joint.tree() == before


def on_a_foreign_base(work: Work) -> tuple[bytes, Key]:
    """A revision one record of which would be small on a base that the server has, but not among the ancestors."""
    foreign = work.history.key_at(work.side[0], "src/side.txt")
    text = work.history.objects[foreign].text + b"and more\n"
    tip = work.history.commit({**work.history.files(work.line[3]), "src/main.txt": text}, [work.line[3]])
    work.source.bases[b"src/main.txt"] = foreign
    return tip, foreign


def test_a_base_that_is_missing_each_time_ends_it(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HistoryPlan, "without_bases", lambda plan, keys: plan)
    tip, foreign = on_a_foreign_base(work)
    work.joint.network.take()
    with pytest.raises(MissingBase) as caught:
        work.push(RefUpdate(MAIN, tip))
    assert caught.value.keys == [foreign]
    assert work.joint.network.counts().rounds == 4


@pytest.fixture
def sent(work: Work, monkeypatch: pytest.MonkeyPatch) -> list[Outgoing]:
    """The requests that the client sent. A request that is sent again has a new body."""
    noted, request = list[Outgoing](), work.client.request

    def note(outgoing: Outgoing) -> Answer:
        noted.append(outgoing)
        return request(outgoing)

    monkeypatch.setattr(work.client, "request", note)
    return noted


def test_a_push_goes_as_a_bulk_stream_where_that_is_shorter(work: Work, sent: list[Outgoing]) -> None:
    alike = work.history.line(40, work.line[5], "alike")
    noise = [work.history.commit({"noise": random.Random(2).randbytes(9_000)}, [alike[-1]])]
    large = work.history.line(300, noise[-1], "much")
    much = work.history.commit({"noise": random.Random(3).randbytes(80_000)}, [large[-1]])
    bulk = RequestFlag.BULK
    for tip, flags in ((alike[-1], bulk), (noise[0], RequestFlag.NONE), (much, bulk | RequestFlag.GRAPH_FIRST)):
        missing = work.history.ancestors([tip]) - work.history.ancestors([work.joint.refs()[MAIN]])
        (done,) = work.remote.push(PushRequest([RefUpdate(MAIN, tip)], work.source, NEW, bulk=True)).refs
        assert done.outcome is DONE
        assert work.joint.refs()[MAIN] == tip
        assert sent[-1].flags & (bulk | RequestFlag.GRAPH_FIRST) == flags
        assert sent[-1].body is not None
        first, second = ([*zip(*sent[-1].body(), strict=True)] for _ in range(2))
        size = len(b"".join(first[0]))
        assert (b"".join(first[0]), sum(first[1])) == (b"".join(second[0]), sum(second[1])), "the same each time"
        plain = sum(len(work.history.segment(each)) for each in missing)
        assert size < plain if flags else size == plain


def test_what_is_there_many_times_over_goes_as_it_lies(work: Work, sent: list[Outgoing]) -> None:
    """A stream of it says more than one may, and is refused before it is kept."""
    picture = random.Random(4).randbytes(20_000)
    tip = work.history.commit({f"{n}/logo": b"%d " % n + picture for n in range(200)}, [work.line[3]])
    assert len(work.history.segment(tip)) > (2 * len(picture) + BULK_ALLOWANCE) * MAX_BULK_RATIO
    for _ in range(2):
        (done,) = work.remote.push(PushRequest([RefUpdate(MAIN, tip)], work.source, NEW, bulk=True)).refs
        assert done.error is None
    assert work.joint.refs()[MAIN] == tip
    assert [each.flags & RequestFlag.BULK for each in sent] == [RequestFlag.BULK, RequestFlag.NONE, RequestFlag.NONE]


def test_the_graph_in_a_bulk_stream_is_whole_before_a_segment_comes(work: Work, sent: list[Outgoing]) -> None:
    """So that a push that cannot succeed is refused while hardly more than that has been sent."""
    other = work.history.line(1, None, "elsewhere")
    tip = work.history.commit({"noise": random.Random(4).randbytes(80_000)}, other)
    (done,) = work.remote.push(PushRequest([RefUpdate(MAIN, tip)], work.source, NEW, bulk=True)).refs
    assert isinstance(done.error, DivergedBranches)
    (outgoing,) = sent
    assert outgoing.body is not None
    first, ended = next(iter(outgoing.body()))
    graph = encode_graph([work.history.announced(each) for each in (*other, tip)])
    assert (b"".join(BulkDecoder().feed(first)), ended) == (graph, 0)


# -- maps


def tags(*entries: EntryChange, of: bytes = MAIN, strict: bool = False) -> MapUpdateRequest:
    return MapUpdateRequest("tags", MapKind.IDS, list(entries), of, strict)


def test_strict_conflicts_and_what_comes_with_them(work: Work) -> None:
    strict = tags(EntryChange(b"v9", work.line[1]), EntryChange(b"v1", work.line[2]), strict=True)
    work.remote.push(PushRequest([], work.source, NEW, maps=[tags(EntryChange(b"v1", work.line[1]))]))
    (refused,) = work.remote.push(PushRequest([], work.source, NEW, maps=[strict])).maps
    assert (refused.entries, type(refused.error)) == ([], StaleEntry)
    for tip, atomic in ((work.line[4], False), (work.line[5], True)):
        done = work.remote.push(PushRequest([RefUpdate(MAIN, tip)], work.source, NEW, maps=[strict], atomic=atomic))
        assert isinstance(done.maps[0].error, StaleEntry)
        assert isinstance(done.refs[0].error, NotDone) if atomic else done.refs[0].outcome is DONE
    assert work.joint.refs()[MAIN] == work.line[4]
    assert work.remote.knowledge.map("tags", MAIN) == {b"v1": work.line[1]}


def test_a_repository_made_anew_takes_the_rest_at_the_second_try(work: Work) -> None:
    """The known state is of another repository: refs it has the tips of move, the others need their revisions."""
    work.joint.remote("other", work.client).push(PushRequest([RefUpdate(MAIN, work.line[5])], work.source, NEW))
    other = work.joint.site.find("other").repository.snapshot().state
    work.remote.knowledge.learn(state_of(other.changes_since(None)))
    work.joint.network.take()
    updates = [RefUpdate(b"refs/heads/a", work.line[0]), RefUpdate(b"refs/heads/b", work.line[4])]
    maps = [tags(EntryChange(b"v", b"x"), of=update.ref) for update in updates]
    pushed = work.remote.push(PushRequest(updates, work.source, NEW, maps=maps))
    assert [each.outcome for each in pushed.refs] == [DONE] * 2
    assert [each.entries for each in pushed.maps] == [[EntryOutcome(Verdict.DONE)]] * 2
    assert work.joint.network.counts().rounds == 2


# -- settings


def test_the_branch_that_head_named_goes_with_the_request_that_points_it_elsewhere(work: Work) -> None:
    work.joint.network.take()
    assert work.remote.knowledge.settings == SETTINGS == {"HEAD": MAIN}
    work.remote.ask(
        (repository_configure, ConfigureRequest({"HEAD": TOPIC})), (branch_delete, BranchDeleteRequest(MAIN))
    )
    assert work.joint.network.counts().rounds == 1
    assert work.remote.knowledge.settings == {"HEAD": TOPIC}
    assert work.joint.refs().keys() == {TOPIC}


def test_whoever_knew_the_settings_learns_of_a_change(work: Work) -> None:
    """Though only what changed is told: HEAD may name what is not there, or nothing, as git's may."""
    other = work.joint.remote(PATH, work.client)
    other.learn_refs()
    for settings in ({"HEAD": OTHER}, {"HEAD": OTHER, "description": b"of it"}, {"description": b"of it"}, {}):
        changes = {name: settings.get(name) for name in ("HEAD", "description")}
        work.client.call(repository_configure, ConfigureRequest(changes), PATH)
        for each in (work.remote, other):
            version = each.knowledge.known
            answer = each.ask((repository_configure, ConfigureRequest({})))
            assert version is not None
            assert answer.state is not None
            assert answer.state.since == version.version
            assert each.knowledge.settings == settings
    assert work.push(RefUpdate(MAIN, None))[0].outcome is DONE, "nothing is kept of it now"


# -- a branch below a repository: its URL alone finds both


def push_below(work: Work, path: str, tip: bytes, folder: Path, new: NewRepository | None = None) -> Knowledge:
    """Push to the branch at a path as a new command does; what is known of it then."""
    knowledge = Knowledge(str(folder), f"hpss://h/{path}", path)
    remote = RemoteRepository(work.client, path, knowledge, below=True)
    assert remote.push(PushRequest([RefUpdate(HERE, tip)], work.source, new)).refs[0].outcome is DONE
    return knowledge


BELOW = NewRepository(SILENT, KINDS)
"""A new repository of a system whose branches may lie below each other."""


def test_a_repository_that_is_deleted_and_made_at_another_prefix(work: Work, tmp_path: Path) -> None:
    push_below(work, "above", work.line[0], tmp_path, BELOW)
    assert push_below(work, "above/a/trunk", work.line[3], tmp_path, BELOW).at == "above"
    work.joint.site.find("above").repository.delete(bytes(16), 0, "somebody")
    work.joint.network.take()
    with pytest.raises(NoSuchRepository):
        push_below(work, "above/a/trunk", work.line[4], tmp_path)
    assert push_below(work, "above/a/trunk", work.line[4], tmp_path, BELOW).at == "above/a/trunk"
    assert work.joint.network.counts().rounds <= 3


def test_one_that_is_made_above_meanwhile(work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the commit somebody makes a repository of which this is a branch."""
    site = work.joint.site
    find, made = site.find_below, list[bool]()

    def find_late(self: object, path: str, may_read: object) -> object:
        found = find(path)
        if not made:
            made.append(True)
            with work.joint.client() as client:
                remote = RemoteRepository(client, "group", Knowledge(None, "hpss://h/group", "group"), below=True)
                remote.push(PushRequest([RefUpdate(HERE, work.line[1])], work.source, BELOW))
        return found

    monkeypatch.setattr(type(site), "find_below", find_late)
    push_below(work, "group/trunk", work.line[3], tmp_path, BELOW)
    assert work.joint.refs("group") == {HERE: work.line[1], b"trunk": work.line[3]}
