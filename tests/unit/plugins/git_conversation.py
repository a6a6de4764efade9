"""A conversation of git with the helper, whose remote and repository are in memory."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from smartserver.client.exchange import PullAnswer
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import Outcome, PushOutcome, RefUpdate, UpdateOutcome
from smartserver.client.url import TcpLocation
from smartserver.errors import (
    NoSuchRepository,
)
from smartserver.plugins.git.hint import Hint
from smartserver.plugins.git.remote import GitRemote
from smartserver.records.model import Kind, RevisionId
from smartserver.vcs.git.objects import COMMIT, GitObject
from smartserver.vcs.git.repository import GitRepository
from smartserver.verbs.repository_pull import PullResult
from smartserver.wire.messages import State, raw
from transports.errors import CodedError


def key(number: int, length: int = 20) -> bytes:
    """An id."""
    return bytes([number]) * length


@dataclass
class FakeLocal:
    """Commits are numbered; what is in `refs` and `objects` exists."""

    tips: dict[bytes, bytes] = field(default_factory=dict)
    config: dict[str, list[bytes]] = field(default_factory=dict)
    branch: bytes | None = b"refs/heads/main"
    objects: dict[bytes, int] = field(default_factory=dict)
    """Id -> git's type number, of those that are not commits or no ref's."""
    targets: dict[bytes, bytes] = field(default_factory=dict)
    """Tag -> the object it peels to."""
    ancestors: set[tuple[bytes, bytes]] = field(default_factory=set)
    object_format: str = "sha1"
    is_shallow: bool = False
    is_partial: bool = False
    id_length: int = 20
    kinds: tuple[Kind, ...] = (Kind("object", "git-sha1", True),)

    @property
    def vcs(self) -> str:
        return f"git {self.object_format}"

    def prepare(self, *, objects: bool) -> None:
        """It is ready."""

    def refs(self) -> dict[bytes, RevisionId]:
        return self.tips

    def head(self) -> bytes | None:
        return self.branch

    def settings(self) -> dict[str, list[bytes]]:
        return self.config

    def find(self, name: bytes) -> GitObject | None:
        if name.endswith(b"^{}"):
            target = self.targets.get(bytes.fromhex(name[:-3].decode("ascii")))
            return None if target is None else self._object(target)
        if name in (b"HEAD", b"@"):
            name = self.branch or b""
        for prefix in (b"", b"refs/", b"refs/tags/", b"refs/heads/"):
            if prefix + name in self.tips:
                return self._object(self.tips[prefix + name])
        name, peeled, _ = name.partition(b"^{commit}")
        try:
            found = bytes.fromhex(name.decode("ascii"))
        except ValueError:
            return None
        fits = not peeled or self._object(found).type == COMMIT
        return self._object(found) if found in self._here() and fits else None

    def _object(self, name: bytes) -> GitObject:
        return GitObject(name, self.objects.get(name, COMMIT), b"")

    def _here(self) -> set[bytes]:
        return {*self.tips.values(), *self.objects}

    def present(self, keys: Iterable[RevisionId]) -> set[RevisionId]:
        return self._here().intersection(keys)

    def shallow(self) -> set[RevisionId]:
        return set()

    def complete_haves(self, candidates: Iterable[RevisionId], limit: int) -> list[RevisionId]:
        return sorted(self._here())

    def is_ancestor(self, ancestor: RevisionId, revision: RevisionId) -> bool:
        return (ancestor, revision) in self.ancestors

    def close(self) -> None:
        """It has no process."""


MAIN, TOPIC = b"refs/heads/main", b"refs/heads/topic"


class FakeRemote:
    """A remote whose state is learnt when it is asked; pulls and pushes are kept and answered as told."""

    def __init__(
        self,
        refs: Mapping[bytes, bytes] | None = None,
        *,
        vcs: str = "git sha1",
        known: bool = False,
        pull: PullAnswer | CodedError | None = None,
        answers: Sequence[UpdateOutcome] | CodedError | None = None,
    ) -> None:
        self.knowledge = Knowledge(None, "hpss://h:1/x")
        self.asked: list[object] = []
        self.pushed: list[RefUpdate] = []
        self._refs = refs
        self._vcs = vcs
        self._pull = pull or PullAnswer(PullResult(), iter(()))
        self._answers = answers
        if known:
            self._learn()

    def _learn(self) -> None:
        if self._refs is None:
            raise NoSuchRepository("x")
        rows = {name: raw([[tip]]) for name, tip in self._refs.items()}
        self.knowledge.learn(State(b"i" * 16, 1, None, rows, vcs=self._vcs, settings={"HEAD": MAIN}))

    def learn_refs(self) -> None:
        self.asked.append("refs")
        self._learn()

    def pull(self, *arguments: object) -> PullAnswer:
        self.asked.append(arguments)
        self._learn()
        if isinstance(self._pull, CodedError):
            raise self._pull
        return self._pull

    def read(self, *arguments: object) -> PullAnswer:
        return self.pull(*arguments)

    def push(self, request: PushRequest) -> PushOutcome:
        self.pushed = list(request.updates)
        if isinstance(self._answers, Exception):
            raise self._answers
        if self._answers is not None:
            return PushOutcome(list(self._answers), [])
        return PushOutcome([UpdateOutcome(update, Outcome.DONE) for update in request.updates], [])


class Conversation:
    """A helper that was told some lines: what it answered, and what it said to the user."""

    def __init__(
        self,
        lines: str,
        remote: FakeRemote,
        local: FakeLocal | None = None,
        hint: Hint | None = None,
        path: str = "x",
    ) -> None:
        self.answers = io.BytesIO()
        self.said: list[str] = []
        self.git = GitRemote(
            "o",
            TcpLocation("h", 1, path),
            cast("RemoteRepository", remote),
            lambda: cast("GitRepository | None", local),
            hint or Hint(),
            io.BytesIO(lines.encode("utf-8", "surrogateescape")),
            self.answers,
            self.said.append,
        )

    def run(self) -> list[str]:
        self.git.run()
        return self.answers.getvalue().decode("utf-8", "surrogateescape").splitlines()


def local_with(**tips: bytes) -> FakeLocal:
    return FakeLocal({b"refs/heads/" + name.encode(): tip for name, tip in tips.items()})
