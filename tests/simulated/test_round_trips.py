"""Every verb and every operation, counted on the link against `budgets.toml`. What is not in that file fails."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import GIT, KINDS, MAIN, SETTINGS, History
from bzr_builders import KINDS as BZR_KINDS
from bzr_builders import BzrHistory
from simulated_joint import NEW, HistorySource, Joint

from netem.link import Link
from netem.simulated import SimulatedNetwork
from smartserver.client.call import Client
from smartserver.client.content import read_content
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.request import Outgoing
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.errors import DivergedBranches
from smartserver.server.context import state_of
from smartserver.vcs.bzr.selector import Parts, encode
from smartserver.verbs import vfs
from smartserver.verbs.all import every_verb
from smartserver.verbs.branch_create import BranchCreateRequest, branch_create
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.map_update import EntryChange, EntryOutcome, MapKind, MapUpdateRequest, Verdict, map_update
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.repository_delete import DeleteRequest, repository_delete
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_list import ListRequest, repository_list
from smartserver.verbs.repository_open import OpenRequest, repository_open
from smartserver.verbs.repository_pack import PackRequest, repository_pack
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.repository_read import ReadRequest, repository_read
from smartserver.verbs.repository_stats import StatsRequest, repository_stats
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_info import InfoRequest, server_info
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.messages import RequestFlag, State

BUDGETS = tomllib.loads((Path(__file__).parent.parent / "budgets.toml").read_text(encoding="utf-8"))
TOPIC = b"refs/heads/topic"
PATH = "project"


@dataclass
class Stage:
    """A served repository of ten revisions, one client that pushed them, and one more revision to come."""

    network: SimulatedNetwork
    joint: Joint
    client: Client
    remote: RemoteRepository
    history: History
    line: list[bytes]
    source: HistorySource = field(init=False)

    def __post_init__(self) -> None:
        self.source = HistorySource(self.history)

    def push(self, ref: bytes, tip: bytes | None, rule: Rule = Rule.FF) -> Outcome:
        return self.remote.push(PushRequest([RefUpdate(ref, tip, rule)], self.source, NEW)).refs[0].outcome

    def large(self, parent: bytes | None, count: int = 12) -> bytes:
        """A line of revisions of together more than is sent before the graph; its tip."""
        for number in range(count):
            files = {"noise": os.urandom(16_000), "n": b"%d\n" % number}
            parent = self.history.commit(files, () if parent is None else (parent,), f"noise {number}")
        assert parent is not None
        return parent


@pytest.fixture
def stage(network: SimulatedNetwork) -> Iterator[Stage]:
    history = History()
    line = history.line(11)
    joint = Joint(network)
    with joint.client() as client:
        stage = Stage(network, joint, client, joint.remote(PATH, client), history, line)
        assert stage.push(MAIN, line[9]) is Outcome.DONE
        network.take()  # The connection is held from here on; what came before is not counted.
        yield stage


def files() -> dict[str, Callable[[Stage], None]]:
    """A use of each file-level verb."""

    def use(verb: AnyVerb, arguments: Arguments) -> Callable[[Stage], None]:
        def call(stage: Stage) -> None:
            stage.joint.site.allows_vfs = True
            if not stage.joint.storage.exists("files"):
                stage.joint.storage.make_directory("files")
                stage.joint.storage.make_directory("files/empty")
                stage.joint.storage.put("files/file", [b"content"])
            stage.client.call(verb, arguments, "files")

        return call

    calls: list[tuple[AnyVerb, Arguments]] = [
        (vfs.has, vfs.PathRequest("file")),
        (vfs.get, vfs.LookRequest("file")),
        (vfs.readv, vfs.ReadvRequest("file", [vfs.RangeField(1, 2), vfs.RangeField(0, 9)])),
        (vfs.put, vfs.BringRequest("new", b"content")),
        (vfs.append, vfs.BringRequest("file", b"content")),
        (vfs.mkdir, vfs.PathRequest("new")),
        (vfs.rmdir, vfs.PathRequest("empty")),
        (vfs.delete, vfs.PathRequest("file")),
        (vfs.rename, vfs.RenameRequest("file", "new")),
        (vfs.list_dir, vfs.LookRequest("")),
        (vfs.stat, vfs.LookRequest("file")),
        (vfs.sync_dir, vfs.PathRequest("")),
    ]
    return {verb.name: use(verb, arguments) for verb, arguments in calls}


def verbs() -> dict[str, Callable[[Stage], None]]:
    """A use of each verb, by its name."""

    def create(stage: Stage) -> None:
        kinds = [KindField(kind.name, kind.check, kind.base) for kind in KINDS]
        assert stage.client.call(repository_create, CreateRequest(GIT, kinds, SETTINGS), "another").created

    def insert(stage: Stage) -> None:
        segment = stage.history.segment(stage.line[10])
        calls: list[tuple[AnyVerb, Arguments]] = [
            (repository_insert_pack, InsertPackRequest()),
            (branch_set_last_revision, SetLastRevisionRequest(MAIN, stage.line[10])),
        ]
        answer = stage.client.request(Outgoing(PATH, calls, RequestFlag.BODY, body=lambda: [(segment, 1)]))
        assert [type(result).__name__ for result in answer.results] == ["InsertPackResult", "SetLastRevisionResult"]

    def pull(stage: Stage) -> None:
        answer = stage.client.request(Outgoing(PATH, [(repository_pull, PullRequest(haves=[stage.line[3]]))]))
        assert b"".join(answer.body) == b"".join(map(stage.history.segment, stage.line[4:10]))

    def read(stage: Stage) -> None:
        history = BzrHistory()
        line = history.line(2)
        history.push(stage.joint.site.find("trees").repository, line, {})
        request = ReadRequest(encode(Parts()), ids=line[:1])
        answer = stage.client.request(Outgoing("trees", [(repository_read, request)]))
        assert [part.revision for part in read_content(answer.body, BZR_KINDS)] == line[:1]

    return {
        "Branch.create": lambda stage: _true(
            stage.client.call(branch_create, BranchCreateRequest(TOPIC, stage.line[4]), PATH).created
        ),
        "Branch.delete": lambda stage: _true(
            stage.client.call(branch_delete, BranchDeleteRequest(b"refs/heads/absent"), PATH).old == []
        ),
        "Branch.set_last_revision": lambda stage: _true(
            stage.client.call(
                branch_set_last_revision, SetLastRevisionRequest(MAIN, stage.line[2], Rule.FORCE), PATH
            ).old
            == [stage.line[9]]
        ),
        "Map.update": lambda stage: _true(
            stage.client.call(
                map_update, MapUpdateRequest("tags", MapKind.IDS, [EntryChange(b"v1", stage.line[0])], MAIN), PATH
            ).entries
            == [EntryOutcome(Verdict.DONE)]
        ),
        "Repository.configure": lambda stage: _true(
            stage.client.call(repository_configure, ConfigureRequest({"HEAD": TOPIC}), PATH).old == SETTINGS
        ),
        "Repository.create": create,
        "Repository.delete": lambda stage: _true(
            stage.client.call(repository_delete, DeleteRequest(), PATH) is not None and not stage.joint.refs()
        ),
        "Repository.insert_pack": insert,
        "Repository.list": lambda stage: _true(
            [each.path for each in stage.client.call(repository_list, ListRequest()).repositories] == [PATH]
        ),
        "Repository.open": lambda stage: _true(
            stage.client.call(repository_open, OpenRequest(), PATH + "/below/it").rest == "below/it"
        ),
        "Repository.pack": lambda stage: _true(stage.client.call(repository_pack, PackRequest(), PATH).after == 1),
        "Repository.pull": pull,
        "Repository.read": read,
        "Repository.stats": lambda stage: _true(
            stage.client.call(repository_stats, StatsRequest(), PATH).revisions == 10
        ),
        "Repository.verify": lambda stage: _true(
            stage.client.call(repository_verify, VerifyRequest(), PATH).problems == []
        ),
        "Server.info": lambda stage: _true("Server.info" in stage.client.call(server_info, InfoRequest()).capabilities),
        "Server.ping": lambda stage: _true(stage.client.call(server_ping, PingRequest()) is not None),
        **files(),
    }


def _true(condition: bool) -> None:
    assert condition


VERB_CASES = verbs()


def marked(names: Iterable[str]) -> list[object]:
    """A case for each name, under its budget."""
    return [pytest.param(name, marks=pytest.mark.max_round_trips(name)) for name in names]


def test_every_verb_has_a_budget_and_a_case() -> None:
    declared = [verb.name for verb in every_verb()]
    assert sorted(BUDGETS["verbs"]) == declared
    assert sorted(VERB_CASES) == declared
    assert set(BUDGETS["verbs"].values()) == {1}


@pytest.mark.parametrize("name", marked(sorted(VERB_CASES)))
def test_verb_on_a_held_connection(stage: Stage, name: str) -> None:
    VERB_CASES[name](stage)
    counts = stage.network.counts()
    assert counts.application_rounds == counts.rounds


@pytest.mark.parametrize("name", sorted(VERB_CASES))
@pytest.mark.max_round_trips(2)
def test_verb_on_a_fresh_connection(stage: Stage, name: str) -> None:
    stage.client.close()
    stage.network.take()
    VERB_CASES[name](stage)
    assert stage.network.counts().handshake_rounds == 1


# -- operations


def first_push(stage: Stage) -> None:
    remote = stage.joint.remote("elsewhere", stage.client)
    done = remote.push(PushRequest([RefUpdate(MAIN, stage.line[9])], stage.source, NEW)).refs
    assert done[0].outcome is Outcome.DONE
    assert stage.joint.site.find("elsewhere").repository.exists()


def push_one(stage: Stage) -> None:
    assert stage.push(MAIN, stage.line[10]) is Outcome.DONE
    assert stage.source.planned[-1] == 1


def push_branch(stage: Stage) -> None:
    tip = stage.history.line(1, stage.line[5], "topic")[0]
    assert stage.push(TOPIC, tip) is Outcome.DONE


def push_nothing(stage: Stage) -> None:
    assert stage.push(MAIN, stage.line[9]) is Outcome.UNCHANGED


def push_large(stage: Stage) -> None:
    assert stage.push(MAIN, stage.large(stage.line[9])) is Outcome.DONE
    assert stage.network.counts().bytes_up > 12 * 16_000


def delete(stage: Stage) -> None:
    stage.push(TOPIC, stage.line[1])
    stage.network.take()
    assert stage.push(TOPIC, None) is Outcome.DONE


def diverged(stage: Stage) -> None:
    tip = stage.history.line(1, stage.line[5], "other")[0]
    done = stage.remote.push(PushRequest([RefUpdate(MAIN, tip)], stage.source, NEW)).refs[0]
    assert isinstance(done.error, DivergedBranches)
    assert done.error.tip == stage.line[9]


def large_diverged(stage: Stage) -> None:
    tip = stage.large(stage.line[5], 400)  # 6.4 MB
    done = stage.remote.push(PushRequest([RefUpdate(MAIN, tip)], stage.source, NEW)).refs[0]
    assert isinstance(done.error, DivergedBranches)


def atomic(stage: Stage) -> None:
    tip = stage.history.line(1, stage.line[5], "other")[0]
    updates = [RefUpdate(TOPIC, tip), RefUpdate(MAIN, tip)]
    done = stage.remote.push(PushRequest(updates, stage.source, NEW, atomic=True)).refs
    assert [each.outcome for each in done] == [Outcome.REFUSED] * 2
    assert stage.remote.knowledge.ref(TOPIC) is None


def check_only(stage: Stage) -> None:
    done = stage.remote.push(PushRequest([RefUpdate(MAIN, stage.line[10])], stage.source, NEW, check_only=True)).refs
    assert done[0].outcome is Outcome.DONE
    refs = stage.joint.site.find(PATH).repository.snapshot().view.refs()
    assert refs[MAIN][0].id == stage.line[9]


def refs(stage: Stage) -> None:
    remote = stage.joint.remote(PATH, stage.client)
    remote.learn_refs()
    assert [value[0].id for value in remote.knowledge.refs().values()] == [stage.line[9]]


def pull_one(stage: Stage) -> None:
    pulled = stage.remote.pull([stage.line[8]])
    assert b"".join(pulled.body) == stage.history.segment(stage.line[9])


def pull_nothing(stage: Stage) -> None:
    pulled = stage.remote.pull([stage.line[9]])
    assert (pulled.result.segments, b"".join(pulled.body)) == (0, b"")


def clone(stage: Stage) -> None:
    pulled = stage.joint.remote(PATH, stage.client).pull()
    assert b"".join(pulled.body) == b"".join(map(stage.history.segment, stage.line[:10]))


def first_contact(stage: Stage) -> None:
    stage.push(MAIN, stage.large(stage.line[9]))
    tip = stage.large(max(stage.history.parents, key=list(stage.history.parents).index), 6)
    stage.network.take()
    remote = stage.joint.remote(PATH, stage.client)
    stage.source.planned.clear()
    assert remote.push(PushRequest([RefUpdate(MAIN, tip)], stage.source, NEW)).refs[0].outcome is Outcome.DONE
    assert stage.source.planned == [28, 6]  # All of it, then only what the server lacks.


def made_anew(stage: Stage) -> None:
    elsewhere = stage.joint.remote("anew", stage.client)
    elsewhere.push(PushRequest([RefUpdate(MAIN, stage.line[0])], stage.source, NEW))
    elsewhere.knowledge.learn(_pretend(stage))
    stage.network.take()
    assert (
        elsewhere.push(PushRequest([RefUpdate(MAIN, stage.line[10])], stage.source, NEW)).refs[0].outcome
        is Outcome.DONE
    )


def missing_base(stage: Stage) -> None:
    """A base the server has, but not among the ancestors."""
    side = stage.history.line(1, stage.line[5], "side")[0]
    assert stage.push(TOPIC, side) is Outcome.DONE
    foreign = stage.history.key_at(side, "src/side.txt")
    text = stage.history.objects[foreign].text + b"and more\n"
    tip = stage.history.commit({**stage.history.files(stage.line[9]), "src/main.txt": text}, [stage.line[9]])
    stage.source.bases[b"src/main.txt"] = foreign
    stage.network.take()
    assert stage.push(MAIN, tip) is Outcome.DONE
    assert stage.network.counts().flights_up == 2


def _pretend(stage: Stage) -> State:
    """The state of the other repository: as if it had been at this path."""
    return state_of(stage.joint.site.find(PATH).repository.changes_since(None))


OPERATIONS: dict[str, Callable[[Stage], None]] = {
    "first push": first_push,
    "push one revision": push_one,
    "push a new branch": push_branch,
    "push nothing": push_nothing,
    "large push": push_large,
    "delete a branch": delete,
    "diverged push, refused": diverged,
    "large diverged push, refused": large_diverged,
    "atomic push, refused": atomic,
    "check only": check_only,
    "refs": refs,
    "pull one revision": pull_one,
    "pull nothing": pull_nothing,
    "clone": clone,
    "first contact, large push": first_contact,
    "push to a repository made anew": made_anew,
    "push on a base the server may not use": missing_base,
}


def test_every_operation_has_a_budget_and_a_case() -> None:
    assert sorted(OPERATIONS) == sorted(BUDGETS["operations"])


@pytest.mark.parametrize("name", marked(OPERATIONS))
def test_operation(stage: Stage, name: str) -> None:
    OPERATIONS[name](stage)


def test_a_budget_is_not_idle(stage: Stage) -> None:
    """The counter sees each trip: two calls one after the other are two."""
    stage.client.call(server_ping, PingRequest())
    stage.client.call(server_ping, PingRequest())
    assert stage.network.counts().rounds == 2


class TestSlowLink:
    """1 Mbit/s at 1000 ms, where the bytes before a refusal count."""

    @pytest.fixture
    def netem_link(self) -> Link:
        return Link(1.0, 125_000)

    def test_a_large_diverged_push_is_refused_before_its_records_are_sent(self, stage: Stage) -> None:
        large_diverged(stage)
        counts = stage.network.counts()
        # The graph (23 bytes a revision) must have come; beyond it no more than the link carried until the refusal was
        # there, and what its buffer had taken.
        graph = 400 * 23 + 1000
        assert counts.bytes_up <= graph + 125_000 + 64 * 1024 + stage.network.link.buffer
        assert counts.rounds == 1
