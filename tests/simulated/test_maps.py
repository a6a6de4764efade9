"""Maps on a link: changed with a push in its one round trip, each entry's outcome told, known to whoever comes next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import KINDS, MAIN, SILENT, History
from history_sources import HistorySource
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, PushOutcome, RefUpdate
from smartserver.errors import NotDone, StaleEntry
from smartserver.records.model import HERE
from smartserver.server.context import state_of
from smartserver.verbs.map_update import EntryChange, EntryOutcome, How, MapKind, MapUpdateRequest, Verdict
from smartserver.verbs.server_ping import PingRequest, server_ping

NEW = NewRepository(SILENT, KINDS)
SIDE = b"refs/heads/side"
DONE, UNCHANGED, CONFLICT = (EntryOutcome(verdict) for verdict in Verdict)


class Work:
    """A served repository of a line of eight, and clients that know it."""

    def __init__(self, network: SimulatedNetwork, client: Client, joint: Joint, folder: Path) -> None:
        self.network, self.client, self.joint, self.folder = network, client, joint, folder
        self.history = History()
        self.line = self.history.line(8)
        self.source = HistorySource(self.history)
        client.call(server_ping, PingRequest())
        network.take()

    def remote(self, user: str = "joe", path: str = "project", *, below: bool = False) -> RemoteRepository:
        knowledge = Knowledge(str(self.folder / user), f"hpss://h/{path}", path if below else None)
        return RemoteRepository(self.client, path, knowledge, below=below)

    def push(
        self, refs: list[RefUpdate], maps: list[MapUpdateRequest], user: str = "joe", *, atomic: bool = False
    ) -> PushOutcome:
        return self.remote(user).push(PushRequest(refs, self.source, NEW, maps=maps, atomic=atomic))


@pytest.fixture
def work(network: SimulatedNetwork, tmp_path: Path) -> Iterator[Work]:
    joint = Joint(network)
    with joint.client() as client:
        yield Work(network, client, joint, tmp_path)


def tags(*entries: EntryChange, of: bytes | None = MAIN, strict: bool = False) -> MapUpdateRequest:
    return MapUpdateRequest("tags", MapKind.IDS, list(entries), of, strict)


def test_a_push_with_its_tags_and_configuration_is_one_round_trip(work: Work) -> None:
    config = MapUpdateRequest("config", MapKind.OPAQUE, [EntryChange(b"", b"a = b")], MAIN)
    pushed = work.push([RefUpdate(MAIN, work.line[3])], [tags(EntryChange(b"v1", work.line[1])), config])
    assert [each.outcome for each in pushed.refs] == [Outcome.DONE]
    assert [each.entries for each in pushed.maps] == [[DONE], [DONE]]
    assert work.network.counts().rounds == 1
    known = work.remote().knowledge
    assert known.map("tags", MAIN) == {b"v1": work.line[1]}
    assert known.map("config", MAIN) == {b"": b"a = b"}
    assert known.map("config") == {MAIN + b"\0": b"a = b"}
    assert known.map("nothing") == known.map("tags", SIDE) == {}


def test_a_conflict_is_told_and_the_rest_is_done(work: Work) -> None:
    work.push([RefUpdate(MAIN, work.line[3])], [tags(EntryChange(b"v1", work.line[1]), EntryChange(b"v2", b"ghost"))])
    work.network.take()
    again = work.push(
        [RefUpdate(MAIN, work.line[4])],
        [
            tags(
                EntryChange(b"v1", work.line[2]),
                EntryChange(b"v2", None, How.EQUAL, b"ghost"),
                EntryChange(b"v3", work.line[4]),
                EntryChange(b"v4", None),
            )
        ],
        "jane",
    )
    assert again.refs[0].outcome is Outcome.DONE
    assert again.maps[0].entries == [
        EntryOutcome(Verdict.CONFLICT, work.line[1]),
        EntryOutcome(Verdict.DONE, b"ghost"),
        EntryOutcome(Verdict.DONE),
        EntryOutcome(Verdict.UNCHANGED),
    ]
    assert work.network.counts().rounds == 1
    assert work.remote("jane").knowledge.map("tags", MAIN) == {b"v1": work.line[1], b"v3": work.line[4]}
    # The other hears of it with his next answer.
    other = work.remote("joe")
    assert other.knowledge.map("tags", MAIN) == {b"v1": work.line[1], b"v2": b"ghost"}
    other.learn_refs()
    assert other.knowledge.map("tags", MAIN) == {b"v1": work.line[1], b"v3": work.line[4]}


def test_strict_conflicts_and_what_comes_with_them(work: Work) -> None:
    work.push([RefUpdate(MAIN, work.line[3])], [tags(EntryChange(b"v1", work.line[1]))])
    strict = tags(EntryChange(b"v9", work.line[1]), EntryChange(b"v1", work.line[2]), strict=True)
    (refused,) = work.push([], [strict]).maps
    assert (refused.entries, type(refused.error)) == ([], StaleEntry)
    pushed = work.push([RefUpdate(MAIN, work.line[4])], [strict])
    assert (pushed.refs[0].outcome, type(pushed.maps[0].error)) == (Outcome.DONE, StaleEntry)
    pushed = work.push([RefUpdate(MAIN, work.line[5])], [strict], atomic=True)
    assert isinstance(pushed.refs[0].error, NotDone)
    assert isinstance(pushed.maps[0].error, StaleEntry)
    assert work.joint.refs() == {MAIN: work.line[4]}
    assert work.remote().knowledge.map("tags", MAIN) == {b"v1": work.line[1]}


def test_whose_branch_the_path_names(work: Work) -> None:
    for path in ("shared", "shared/trunk"):
        remote = work.remote(path=path, below=True)
        pushed = remote.push(
            PushRequest(
                [RefUpdate(HERE, work.line[2], attributes=b"3")],
                work.source,
                NEW,
                maps=[tags(EntryChange(b"v1", b"x"), of=HERE)],
            )
        )
        assert pushed.maps[0].entries == [DONE]
    known = work.remote(path="shared/trunk", below=True).knowledge
    assert known.map("tags") == {b".\0v1": b"x", b"trunk\0v1": b"x"}
    assert work.network.counts().rounds == 2


def test_a_repository_made_anew_takes_the_rest_at_the_second_try(work: Work) -> None:
    """The known state is of another repository: refs it has the tips of move, the others need their revisions."""
    work.push([RefUpdate(MAIN, work.line[0])], [])
    remote = work.remote()
    there = state_of(work.joint.site.find("project").repository.snapshot().state.changes_since(None))
    work.joint.remote("other", work.client).push(PushRequest([RefUpdate(MAIN, work.line[5])], work.source, NEW))
    remote.knowledge.learn(state_of(work.joint.site.find("other").repository.snapshot().state.changes_since(None)))
    assert there.refs
    work.network.take()
    updates = [RefUpdate(b"refs/heads/a", work.line[0]), RefUpdate(b"refs/heads/b", work.line[4])]
    maps = [tags(EntryChange(b"v", b"x"), of=b"refs/heads/a"), tags(EntryChange(b"v", b"x"), of=b"refs/heads/b")]
    pushed = remote.push(PushRequest(updates, work.source, NEW, maps=maps))
    assert [each.outcome for each in pushed.refs] == [Outcome.DONE] * 2
    assert [each.entries for each in pushed.maps] == [[DONE]] * 2
    assert work.network.counts().rounds == 2
