"""The operations of the demo: stock git on a copy of a repository, through one emulated link to two servers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from bench.git_histories import GENERATED_COMMITS, copy
from bench.servers import LinkCost, Say, Server, Workspace, attempt, measured, run
from netem.proxy import Proxy

MOST_ROUND_TRIPS = 2
"""The budget of an operation on a fresh connection: the TCP handshake and one round trip."""

NAME = "project"
"""The name of the repository on the servers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One operation, ours and git's; the latter is None if git cannot do it."""

    operation: str
    ours: LinkCost
    git: LinkCost | None
    budget: int = MOST_ROUND_TRIPS


@dataclass(slots=True)
class Side:
    """One server behind one link, and two users of it."""

    label: str
    proxy: Proxy
    server: Server
    users: tuple[Path, Path]
    environments: tuple[dict[str, str], dict[str, str]]

    @property
    def url(self) -> str:
        """The URL of the repository, through the link."""
        return self.server.url(NAME, self.proxy.port)


class Operation(NamedTuple):
    """An operation to measure: its name, its action, its unmeasured preparation, and its budget."""

    name: str
    run: Callable[[Side], object]
    before: Callable[[Side], object] = lambda side: None
    budget: int = MOST_ROUND_TRIPS


class Comparison:
    """Runs each operation over hpss:// and over git://; a context manager that removes all its files."""

    def __init__(self, source: Path | None, rtt: float, rate: float | None, say: Say, *, with_git: bool = True) -> None:
        """`source`: a git repository or bundle, only read; None: made here. `rtt` in s, `rate` in bytes/s."""
        self.problems: list[str] = []
        self.title = ""
        self.has_git_daemon = False
        self._source = source
        self._rtt = rtt
        self._rate = rate
        self._say = say
        self._with_git = with_git
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._prepare()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    # -- what is measured

    def rows(self) -> Iterator[Row]:
        """Run each operation in turn, each side on an equal repository."""
        for operation in self.operations():
            yield self._row(operation)
        for side in self.sides:
            self.check_results(side)

    def operations(self) -> list[Operation]:
        """The operations in their order; the first fills the server."""
        return [
            Operation("first push of all history", self.push_all),
            Operation("clone", self.clone),
            Operation("push one commit", self.push(self.branch), before=self.commit_one),
            Operation("fetch one commit", self.fetch),
            Operation(
                "push a new branch", self.push("demo-topic"), before=lambda side: self.commit_branch(side, "demo-topic")
            ),
            Operation("push nothing", self.push(self.branch)),
            # What is measured is the fetch that finds nothing; the topic branch is fetched before.
            Operation("fetch nothing", self.fetch, before=self.fetch),
            Operation("diverged push, refused", self.push_diverged, before=self.commit_diverged),
        ]

    def _row(self, operation: Operation) -> Row:
        costs = []
        for side in self.sides:
            operation.before(side)
            costs.append(measured(side.proxy, partial(operation.run, side))[1])
        ours = costs[0]
        if ours.round_trips > operation.budget:
            self.problems.append(
                f"{operation.name}: {ours.round_trips} round trips, expected {operation.budget} at most"
            )
        return Row(operation.name, ours, costs[1] if len(costs) > 1 else None, operation.budget)

    # -- the operations

    def push_all(self, side: Side) -> None:
        """Push every branch and tag for the first time."""
        self.git(side, 0, "push", "--quiet", side.url, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")

    def clone(self, side: Side) -> None:
        """Clone as the second user."""
        user = side.users[1]
        run(["git", "clone", "--quiet", side.url, str(user)], user.parent, side.environments[1])

    def commit_one(self, side: Side) -> None:
        """Commit on the main branch."""
        self.commit(side, 0, "one commit")

    def push(self, *words: str) -> Callable[[Side], object]:
        """Return an action: a push by the first user."""
        return lambda side: self.git(side, 0, "push", "--quiet", "origin", *words)

    def fetch(self, side: Side) -> None:
        """Fetch everything new as the second user."""
        self.git(side, 1, "fetch", "--quiet", "origin")

    def commit_branch(self, side: Side, branch: str) -> None:
        """Make a branch of the first user with a commit of its own."""
        self.git(side, 0, "checkout", "--quiet", "-b", branch, self.branch)
        self.commit(side, 0, branch)
        self.git(side, 0, "checkout", "--quiet", self.branch)

    def commit_diverged(self, side: Side) -> None:
        """Make the second user one commit behind and one ahead."""
        self.git(side, 1, "reset", "--quiet", "--hard", "origin/" + self.branch + "~1")
        self.commit(side, 1, "diverged")

    def push_diverged(self, side: Side) -> None:
        """Push a commit that must be refused."""
        self.refused(side, 1, ("non-fast-forward", "fetch first"), "HEAD:refs/heads/" + self.branch)

    def refused(self, side: Side, user: int, reasons: tuple[str, ...], *arguments: str) -> None:
        """Run a push that must be refused for one of these reasons."""
        done = self.attempt(side, user, "push", "--quiet", "origin", *arguments)
        if done.returncode == 0 or not any(reason in done.stderr for reason in reasons):
            self.problems.append(
                f"{side.label}: push {' '.join(arguments)}: expected {' or '.join(reasons)}, "
                f"got status {done.returncode}: {done.stderr.strip()}"
            )

    def check_results(self, side: Side) -> None:
        """Check that the clone is sound, and that each ref of the pusher has the same tip on the server."""
        done = self.attempt(side, 1, "fsck", "--no-dangling", "--no-progress")
        if done.returncode & 1:  # 1: objects are damaged; 8 and more are about the content that was given.
            self.problems.append(f"{side.label}: git fsck of the clone: {done.stderr.strip() or done.stdout.strip()}")
        served = self._refs(side, 1, "ls-remote", side.url)
        pushed = self._refs(side, 0, "for-each-ref", "--format=%(objectname)\t%(refname)", "refs/heads", "refs/tags")
        for name in sorted(pushed):
            if served.get(name) != pushed[name]:
                self.problems.append(f"{side.label}: {name} is {served.get(name)}, expected {pushed[name]}")

    def _refs(self, side: Side, user: int, *arguments: str) -> dict[str, str]:
        lines = self.git(side, user, *arguments).splitlines()
        return {name: key for key, _, name in (line.partition("\t") for line in lines) if not name.endswith("^{}")}

    def commit(self, side: Side, user: int, what: str) -> None:
        """Commit a change of one small file."""
        folder = side.users[user]
        with (folder / "demo.txt").open("a", encoding="utf-8") as file:
            file.write(f"{what}\n" * 20)
        self.git(side, user, "add", "demo.txt")
        self.git(side, user, "commit", "--quiet", "--no-verify", "-m", what)

    def git(self, side: Side, user: int, *arguments: str) -> str:
        """Run git as one of the users, and return its output."""
        return run(["git", *arguments], side.users[user], side.environments[user])

    def attempt(self, side: Side, user: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run git as one of the users, and return its result even if it fails."""
        return attempt(["git", *arguments], side.users[user], side.environments[user])

    # -- preparation

    def _prepare(self) -> None:
        work = self._work = self._stack.enter_context(Workspace("demo"))
        source = self._source
        environment = work.environment("preparation")
        self._copy = work.folder / "source.git"
        self.branch = copy(source, self._copy, environment)
        count = run(["git", "rev-list", "--all", "--count"], self._copy, environment).strip()
        self.sides = [self._side("hpss", work.start_ours())]
        daemon = work.start_git_daemon(NAME) if self._with_git else None
        if daemon is not None:
            self.has_git_daemon = True
            self.sides.append(self._side("git", daemon))
        elif self._with_git:
            self._say("`git daemon` is not installed: only hpss:// is shown")
        name = source if source is not None else f"a generated history of {GENERATED_COMMITS} commits"
        rate = f", {self._rate * 8 / 1e6:g} Mbit/s" if self._rate else ""
        self.title = f"{name} ({count} commits), link of {self._rtt * 1000:g} ms{rate}; trips include the TCP handshake"
        self._say(f"measuring with {name}:")

    def _side(self, label: str, server: Server) -> Side:
        folder = self._work.folder
        proxy = self._stack.enter_context(Proxy(self._rtt, server.address, rate=self._rate))
        users = (folder / f"{label}-first", folder / f"{label}-second")
        environments = (self._work.environment(f"{label}-1"), self._work.environment(f"{label}-2"))
        side = Side(label, proxy, server, users, environments)
        run(["git", "clone", "--quiet", str(self._copy), str(users[0])], None, environments[0])
        branches = self.git(side, 0, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/remotes/origin").split()
        for branch in branches:
            if branch not in ("HEAD", self.branch):
                self.git(side, 0, "branch", "--quiet", "--no-track", branch, f"origin/{branch}")
        self.git(side, 0, "remote", "set-url", "origin", side.url)
        return side
