"""A conversation of git with the helper, whose remote and repository are in memory."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import cast

from git_local import FakeLocal

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
from smartserver.vcs.git.repository import GitRepository
from smartserver.verbs.repository_pull import PullResult
from smartserver.wire.messages import State, raw
from transports.errors import CodedError

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
