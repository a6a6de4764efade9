"""Pushes of one real commit each through the client library, one connection for all: what `git push` sends, without
the time git takes to start.

Run as a program it is one writer: it reads what to push as JSON and writes what became of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.process import MODULES
from bench.servers import attempt, run
from smartserver.cli.errors import CommandError
from smartserver.client.body import EmptyBody
from smartserver.client.call import Caller, Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate
from smartserver.client.url import parse
from smartserver.records.model import Key
from smartserver.vcs.git.objects import COMMIT
from smartserver.vcs.git.plan import Revision, Revisions
from smartserver.vcs.git.read import GitPlan
from smartserver.vcs.git.repository import GitRepository
from smartserver.verbs.rules import Rule

NOTHING = EmptyBody()


class Prepared:
    """A push source, and its plan: segments made before the clock runs."""

    def __init__(self, plan: GitPlan) -> None:
        self._plan = plan
        self.graph = plan.graph
        self._segments = list(plan.segments())

    def plan(self, tips: object, haves: object) -> Self:
        """These revisions, whatever the remote is known to hold."""
        return self

    def segments(self) -> Iterator[bytes]:
        return iter(self._segments)

    def without_bases(self, keys: Collection[Key]) -> Prepared:
        """The same revisions, made anew."""
        return Prepared(self._plan.without_bases(keys))


@dataclass(frozen=True, slots=True)
class Pushed:
    """One push: how long the request took, in seconds, and why it was refused (empty: it was not)."""

    commit: str
    ref: str
    seconds: float
    refused: str = ""

    def check(self) -> Self:
        if self.refused:
            raise CommandError(f"the push of {self.commit} was refused: {self.refused}")
        return self


class Pusher:
    """Pushes commits of a git repository to a repository on a server of ours."""

    def __init__(self, source: Path, url: str, environment: Mapping[str, str]) -> None:
        location = parse(url)
        self._local = GitRepository(source, environment)
        self._client = Client(lambda: TcpMedium(location.host, location.port), (), Caller("bench"))
        self._remote = RemoteRepository(self._client, location.path, Knowledge(None, location.key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()
        self._local.close()

    def push(self, revisions: Sequence[Revision], ref: str, rule: Rule = Rule.FORCE) -> Pushed:
        """Push `revisions` and put a ref at the last of them; what is below them must be there."""
        tip = revisions[-1].id
        source = Prepared(GitPlan(self._local, Revisions(revisions)))
        # HEAD names no branch that is pushed, so that all of them can go.
        new = NewRepository(self._local.vcs, self._local.kinds, {"HEAD": b"refs/heads/none"})
        start = time.perf_counter()
        done = self._remote.push(PushRequest([RefUpdate(ref.encode(), tip, rule)], source, new)).refs[0]
        seconds = time.perf_counter() - start
        refused = str(done.error) if done.outcome is Outcome.REFUSED else ""
        return Pushed(tip.hex(), ref, seconds, refused)


def git_push(source: Path, url: str, refspec: str, environment: Mapping[str, str]) -> Pushed:
    commit, _, ref = refspec.partition(":")
    start = time.perf_counter()
    done = attempt(["git", "push", "--quiet", url, refspec], source, environment)
    seconds = time.perf_counter() - start
    refused = f"status {done.returncode}: {done.stderr.strip()}" if done.returncode else ""
    return Pushed(commit.removeprefix("+"), ref, seconds, refused)


def revisions_of(source: Path, environment: Mapping[str, str], *arguments: str) -> list[Revision]:
    """The commits `git rev-list` gives, in its order."""
    lines = iter(run(["git", "rev-list", "--format=%T %P", *arguments], source, environment).splitlines())
    found = []
    for line in lines:
        tree, *parents = next(lines).split(" ")
        ids = tuple(bytes.fromhex(parent) for parent in parents if parent)
        found.append(Revision(bytes.fromhex(line[7:]), COMMIT, ids, bytes.fromhex(tree)))  # "commit <id>"
    return found


def start_writer(
    source: Path, url: str, pushes: Sequence[tuple[str, str]], environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    """A process that reads what to push, commits and refs in order, and pushes it once it is told to go."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.push"], stdin=pipe, stdout=pipe, stderr=pipe, text=True,
        env={**environment, **MODULES},
    )  # fmt: skip
    tell(process, json.dumps({"source": str(source), "url": url, "pushes": list(pushes)}))
    return process


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def finish(process: subprocess.Popen[str]) -> list[Pushed]:
    output, errors = process.communicate()
    if process.returncode:
        raise CommandError(f"a writer failed: {errors.strip().splitlines()[-1:]}")
    return [Pushed(*json.loads(line)) for line in output.splitlines()]


def main() -> None:
    """One writer: the task is the first line of standard input, the second starts it; a push a line comes out."""
    task = json.loads(sys.stdin.readline())
    source, pushes = Path(task["source"]), task["pushes"]
    found = revisions_of(source, os.environ, "--no-walk=unsorted", *[commit for commit, _ in pushes])
    with Pusher(source, task["url"], os.environ) as pusher:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        for revision, (_, ref) in zip(found, pushes, strict=True):
            pushed = pusher.push([revision], ref, Rule.FF)
            sys.stdout.write(json.dumps([pushed.commit, pushed.ref, pushed.seconds, pushed.refused]) + "\n")


if __name__ == "__main__":
    main()
