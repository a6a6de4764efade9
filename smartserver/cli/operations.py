"""Operations on one held connection, counted on the link in front of the server."""

from __future__ import annotations

import contextlib
import hashlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial

from netem.budget import Countable
from netem.proxy import Proxy
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import LinkCost, measured
from smartserver.cli.session import tracing_for
from smartserver.client.body import EmptyBody
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate, UpdateOutcome
from smartserver.client.url import parse
from smartserver.errors import AccessDenied, NoSuchRepository
from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, GraphNode, Key, Parent, RevisionId
from smartserver.records.segment import encode_segment
from smartserver.trace.bans.operations import one_operation
from smartserver.vcs.git.format import BLOB, COMMIT, TREE
from smartserver.vcs.git.system import GIT
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_ping import PingRequest, server_ping

BRANCH = b"refs/heads/smartserver-bench"
TOPIC = BRANCH + b"-topic"
VCS = "git sha1"
KINDS = GIT[VCS].kinds


@dataclass(frozen=True, slots=True)
class OperationCost:
    """One operation: the most round trips and bytes of all its runs, and its median time."""

    operation: str
    round_trips: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    milliseconds: float = 0.0
    refused: AccessDenied | None = None
    """The server does not allow it: nothing was measured."""


class Commits:
    """Commits of one small file, made here: what a push brings without a version-control system."""

    def __init__(self, tip: RevisionId = b"") -> None:
        """They are made on top of `tip`, where there is one."""
        self.tip = tip
        self.before: RevisionId = b""
        """The parent of the tip."""
        self._number = 0

    def next(self, content: int = 0) -> _Commit:
        """A commit on top of the one before; its file has `content` random bytes and a line."""
        self._number += 1
        file = os.urandom(content) + f"{os.urandom(8).hex()} number {self._number}\n".encode()
        blob = _object(BLOB, file)
        tree = _object(TREE, b"100644 bench\0" + blob[0])
        parent = b"parent %s\n" % self.tip.hex().encode() if self.tip else b""
        who = b"Bench <bench@example.org> %d +0000" % int(time.time())
        head = b"tree %s\n%sauthor %s\ncommitter %s\n\nCommit %d\n"
        commit = _object(COMMIT, head % (tree[0].hex().encode(), parent, who, who, self._number))
        made = _Commit(commit[0], (Parent(self.tip),) if self.tip else (), [commit, tree, blob])
        self.before, self.tip = self.tip, commit[0]
        return made


_NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob"}


def _object(meta: bytes, content: bytes) -> tuple[Key, bytes, bytes]:
    key = hashlib.sha1(b"%s %d\0%s" % (_NAMES[meta], len(content), content)).digest()
    return key, meta, content


@dataclass(frozen=True, slots=True)
class _Commit:
    """One commit as a push source and as its plan."""

    id: RevisionId
    parents: tuple[Parent, ...]
    objects: Sequence[tuple[Key, bytes, bytes]]

    def plan(self, tips: object, haves: object) -> _Commit:
        return self

    @property
    def graph(self) -> Sequence[GraphNode]:
        return [GraphNode(self.id, self.parents)]

    def segments(self) -> Iterator[bytes]:
        frames = [compress(content) for _, _, content in self.objects]
        entries = [
            Entry(0, encoding, key, meta, BaseTag.NONE, b"", len(content), len(frame), b"")
            for (key, meta, content), (encoding, frame) in zip(self.objects, frames, strict=True)
        ]
        yield encode_segment(self.id, self.parents, entries, [frame for _, frame in frames], KINDS)

    def without_bases(self, keys: object) -> _Commit:
        return self


def run(url: str, count: int, flags: Set[str] = frozenset()) -> Iterator[OperationCost]:
    """Run each operation `count` times. `flags`: as of `client_for`.

    Raises:
        BadUrl, CodedError, MediumError, ProtocolError: the server cannot be talked to.
        BadFlag: a rule is none.
    """
    location = parse(url)
    # Asked for without the proxy: what is wrong with the server is then said of the server.
    TcpMedium(location.host, location.port).close()
    with contextlib.ExitStack() as until:
        proxy = until.enter_context(Proxy(0.0, (location.host, location.port)))
        tracing = until.enter_context(tracing_for(flags))
        connect = partial(TcpMedium, proxy.host, proxy.port)
        client = until.enter_context(Client(connect, tracing.observers, agent="ping", traceparent=tracing.traceparent))
        remote = RemoteRepository(client, location.path, Knowledge(None, url))
        yield from Operations(client, remote, proxy, count).rows()


def _nothing() -> None:
    """What is done before or after most operations."""


class Operations:
    """Operations of one client, each `count` times, on a connection that a network counts."""

    def __init__(self, client: Client, remote: RemoteRepository, network: Countable, count: int) -> None:
        self._client = client
        self._remote = remote
        self._network = network
        self._count = count
        self._commits = Commits()

    def rows(self) -> Iterator[OperationCost]:
        """The operations in order; what connects and makes the repository is not measured.

        Where no branch may be deleted, none is made for that, and the one that is pushed to stays.
        """
        with one_operation():
            self._begin()
        with one_operation():
            refused = self._deletion_refused()
        yield self._measure("ping", lambda: self._client.call(server_ping, PingRequest()))
        yield self._measure("list refs", self._remote.learn_refs)
        yield self._measure("push one commit", self._push)
        yield self._measure("fetch one commit", self._fetch, before=self._push)
        yield self._measure("fetch nothing", self._fetch_nothing)
        yield self._measure("push nothing", self._push_nothing)
        if refused is None:
            yield self._measure("push a new branch", self._push_topic, after=self._delete_topic)
            yield self._measure("delete a branch", self._delete_topic, before=self._push_topic)
        else:
            yield OperationCost("push a new branch", refused=refused)
            yield OperationCost("delete a branch", refused=refused)
        yield self._measure("diverged push, refused", self._push_diverged)
        if refused is None:
            with one_operation():
                self._update(RefUpdate(BRANCH, None), EmptyBody(), Outcome.DONE)

    def _begin(self) -> None:
        """Push to a repository that may have to be made, on top of what an earlier run had to leave there."""
        with contextlib.suppress(NoSuchRepository):
            self._remote.learn_refs()
            for tip in self._remote.knowledge.ref(BRANCH) or ():
                self._commits = Commits(tip.id)
        self._push()

    def _deletion_refused(self) -> AccessDenied | None:
        """Why no branch may be deleted; asked without deleting one."""
        asked = self._remote.push(PushRequest([RefUpdate(BRANCH, None)], check_only=True)).refs[0]
        return asked.error if isinstance(asked.error, AccessDenied) else None

    def _measure(
        self, operation: str, run: Callable[[], object], before: Callable[[], object] = _nothing,
        after: Callable[[], object] = _nothing,
    ) -> OperationCost:  # fmt: skip
        costs: list[LinkCost] = []
        for _ in range(self._count):
            with one_operation():
                before()
            with one_operation():
                costs.append(measured(self._network, run)[1])
            with one_operation():
                after()
        return OperationCost(
            operation,
            max(cost.round_trips for cost in costs),
            max(cost.bytes_up for cost in costs),
            max(cost.bytes_down for cost in costs),
            statistics.median(cost.seconds for cost in costs) * 1000,
        )

    def _push(self) -> None:
        commit = self._commits.next()
        self._update(RefUpdate(BRANCH, commit.id), commit, Outcome.DONE)

    def _push_nothing(self) -> None:
        self._update(RefUpdate(BRANCH, self._commits.tip), EmptyBody(), Outcome.UNCHANGED)

    def _push_topic(self) -> None:
        self._update(RefUpdate(TOPIC, self._commits.tip, Rule.FORCE), EmptyBody(), Outcome.DONE)

    def _delete_topic(self) -> None:
        self._update(RefUpdate(TOPIC, None), EmptyBody(), Outcome.DONE)

    def _push_diverged(self) -> None:
        other = Commits().next()
        self._update(RefUpdate(BRANCH, other.id), other, Outcome.REFUSED)

    def _fetch(self) -> None:
        pulled = self._remote.pull(refs=[BRANCH], haves=[self._commits.before])
        self._expect(pulled.result.segments == 1 and sum(map(len, pulled.body)) == pulled.result.size, "fetch")

    def _fetch_nothing(self) -> None:
        pulled = self._remote.pull(refs=[BRANCH], haves=[self._commits.tip])
        self._expect(not list(pulled.body), "fetch nothing")

    def _update(self, update: RefUpdate, source: _Commit | EmptyBody, expected: Outcome) -> UpdateOutcome:
        new = NewRepository(VCS, KINDS, {"HEAD": b"refs/heads/main"})
        done = self._remote.push(PushRequest([update], source, new)).refs[0]
        self._expect(done.outcome is expected, f"{update.ref.decode()}: {done.outcome.value}, {done.error}")
        return done

    def _expect(self, right: bool, what: str) -> None:
        if not right:
            raise CommandError(f"wrong result: {what}")
