"""The operations of the demo: stock git on a copy of a repository, through one emulated link to two servers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import smartserver
from netem.proxy import Proxy
from smartserver.cli.errors import CommandError

MOST_ROUND_TRIPS = 2
"""The budget of every operation on a fresh connection: the TCP handshake and one."""

GENERATED_COMMITS = 200
"""Length of the history that is made where there is none."""

START_WITHIN = 20.0
"""Seconds a server may take to listen."""

NAME = "project"
"""The repository on the servers."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one operation cost on the link."""

    round_trips: int
    seconds: float
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, slots=True)
class Row:
    """One operation, ours and git's; None where git cannot do it."""

    operation: str
    ours: Measured
    git: Measured | None


@dataclass(slots=True)
class _Side:
    """One server behind one link, and two users of it."""

    label: str
    proxy: Proxy
    scheme: str
    served: Path
    users: tuple[Path, Path]
    environments: tuple[dict[str, str], dict[str, str]]

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.proxy.port}/{NAME}"


class Comparison:
    """Runs each operation over hpss:// and over git://; a context manager that leaves nothing behind."""

    def __init__(
        self, source: Path | None, rtt: float, rate: float | None, say: Callable[[str], None] = lambda words: None
    ) -> None:
        """`source`: a git repository, only read; `rtt` in seconds, `rate` in bytes a second each way."""
        self.problems: list[str] = []
        self.title = ""
        self.has_git_daemon = False
        self._source = source
        self._rtt = rtt
        self._rate = rate
        self._say = say
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
        """Each operation in turn, each side doing the same on equal repositories.

        Raises:
            CommandError: an operation that must succeed did not.
        """
        yield self._row("first push of all history", self._push_all)
        yield self._row("clone", self._clone)
        yield self._row("push one commit", self._push_one)
        yield self._row("fetch one commit", self._fetch)
        yield self._row("push a new branch", self._push_branch)
        yield self._row("push nothing", self._push_nothing)
        for side in self._sides:
            self._fetch(side)  # The topic branch; what is measured next is the fetch that finds nothing.
        yield self._row("fetch nothing", self._fetch)
        yield self._row("diverged push, refused", self._push_diverged)
        for side in self._sides:
            self._check_results(side)

    def _row(self, operation: str, run: Callable[[_Side], None]) -> Row:
        measured = []
        for side in self._sides:
            side.proxy.take()
            start = time.monotonic()
            run(side)
            seconds = time.monotonic() - start
            counts = side.proxy.take()
            measured.append(Measured(counts.rounds, seconds, counts.bytes_up, counts.bytes_down))
        ours = measured[0]
        if ours.round_trips > MOST_ROUND_TRIPS:
            self.problems.append(f"{operation}: {ours.round_trips} round trips, expected {MOST_ROUND_TRIPS} at most")
        return Row(operation, ours, measured[1] if len(measured) > 1 else None)

    # -- the operations

    def _push_all(self, side: _Side) -> None:
        self._git(side, 0, "push", "--quiet", side.url, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")

    def _clone(self, side: _Side) -> None:
        user = side.users[1]
        _run(["git", "clone", "--quiet", side.url, str(user)], user.parent, side.environments[1])

    def _push_one(self, side: _Side) -> None:
        self._commit(side, 0, "one commit")
        self._git(side, 0, "push", "--quiet", "origin", "HEAD")

    def _fetch(self, side: _Side) -> None:
        self._git(side, 1, "fetch", "--quiet", "origin")

    def _push_branch(self, side: _Side) -> None:
        self._git(side, 0, "checkout", "--quiet", "-b", "demo-topic")
        self._commit(side, 0, "a topic")
        self._git(side, 0, "push", "--quiet", "origin", "demo-topic")
        self._git(side, 0, "checkout", "--quiet", self._branch)

    def _push_nothing(self, side: _Side) -> None:
        self._git(side, 0, "push", "--quiet", "origin", self._branch)

    def _push_diverged(self, side: _Side) -> None:
        self._git(side, 1, "reset", "--quiet", "--hard", "origin/" + self._branch + "~1")
        self._commit(side, 1, "diverged")
        done = self._try(side, 1, "push", "--quiet", "origin", "HEAD:refs/heads/" + self._branch)
        if done.returncode == 0 or ("non-fast-forward" not in done.stderr and "fetch first" not in done.stderr):
            self.problems.append(f"{side.label}: a diverged push was not refused: {done.stderr.strip()}")

    def _check_results(self, side: _Side) -> None:
        """The clone is sound, and every ref the pusher has is where it has it."""
        done = self._try(side, 1, "fsck", "--no-dangling", "--no-progress")
        if done.returncode & 1:  # 1: objects are damaged; 8 and more are about the content that was given.
            self.problems.append(f"{side.label}: git fsck of the clone: {done.stderr.strip() or done.stdout.strip()}")
        served = self._refs(side, 1, "ls-remote", side.url)
        pushed = self._refs(side, 0, "for-each-ref", "--format=%(objectname)\t%(refname)", "refs/heads", "refs/tags")
        for name in sorted(pushed):
            if served.get(name) != pushed[name]:
                self.problems.append(f"{side.label}: {name} is {served.get(name)}, expected {pushed[name]}")

    def _refs(self, side: _Side, user: int, *arguments: str) -> dict[str, str]:
        lines = self._git(side, user, *arguments).splitlines()
        return {name: key for key, _, name in (line.partition("\t") for line in lines) if not name.endswith("^{}")}

    def _commit(self, side: _Side, user: int, what: str) -> None:
        folder = side.users[user]
        with (folder / "demo.txt").open("a", encoding="utf-8") as file:
            file.write(f"{what}\n" * 20)
        self._git(side, user, "add", "demo.txt")
        self._git(side, user, "commit", "--quiet", "--no-verify", "-m", what)

    # -- preparation

    def _prepare(self) -> None:
        if shutil.which("git") is None:
            raise CommandError("git is not on PATH: install it first")
        work = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="smartserver-demo-")))
        self._work = work
        (work / "home").mkdir()
        source = self._find_source()
        environment = self._environment("preparation")
        self._branch = self._copy(source, work / "source.git", environment)
        count = _run(["git", "rev-list", "--all", "--count"], work / "source.git", environment).strip()
        self._sides = [self._side("hpss", *self._start_ours())]
        daemon = self._start_git_daemon()
        if daemon is not None:
            self.has_git_daemon = True
            self._sides.append(self._side("git", *daemon))
        else:
            self._say("`git daemon` is not installed: only hpss:// is shown")
        name = source if source is not None else f"a generated history of {GENERATED_COMMITS} commits"
        rate = f", {self._rate * 8 / 1e6:g} Mbit/s" if self._rate else ""
        self.title = f"{name} ({count} commits), link of {self._rtt * 1000:g} ms{rate}; trips include the TCP handshake"
        self._say(self.title)

    def _find_source(self) -> Path | None:
        if self._source is not None:
            return self._source.resolve()
        checkout = Path(smartserver.__file__).resolve().parent.parent
        return checkout if (checkout / ".git").exists() else None

    def _copy(self, source: Path | None, target: Path, environment: Mapping[str, str]) -> str:
        """A bare copy with the branches and tags of a repository; gives the name of a branch to work on.

        Raises:
            CommandError: it is no git repository, is shallow, or has no branch.
        """
        if source is None:
            _generate(target, environment)
        else:
            found = _try(["git", "-C", str(source), "rev-parse", "--is-shallow-repository"], None, environment)
            if found.returncode:
                raise CommandError(f"{source} is not a git repository: {found.stderr.strip().splitlines()[-1]}")
            if found.stdout.strip() == "true":
                raise CommandError(f"{source} is a shallow clone: the demo needs the whole history")
            _run(["git", "init", "--quiet", "--bare", str(target)], None, environment)
            refspecs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
            _run(["git", "fetch", "--quiet", "--no-tags", str(source), *refspecs], target, environment)
        branches = _run(["git", "for-each-ref", "--format=%(refname:short)", "refs/heads"], target, environment).split()
        if not branches:
            raise CommandError(f"{source} has no branch to push")
        current = _try(["git", "-C", str(source or target), "symbolic-ref", "--short", "HEAD"], None, environment)
        branch = current.stdout.strip() if current.stdout.strip() in branches else branches[0]
        _run(["git", "symbolic-ref", "HEAD", f"refs/heads/{branch}"], target, environment)
        return branch

    def _side(self, label: str, port: int, scheme: str, served: Path) -> _Side:
        proxy = self._stack.enter_context(Proxy(self._rtt, ("127.0.0.1", port), rate=self._rate))
        users = (self._work / f"{label}-first", self._work / f"{label}-second")
        environments = (self._environment(f"{label}-1"), self._environment(f"{label}-2"))
        side = _Side(label, proxy, scheme, served, users, environments)
        _run(["git", "clone", "--quiet", str(self._work / "source.git"), str(users[0])], None, environments[0])
        branches = self._git(side, 0, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/remotes/origin").split()
        for branch in branches:
            if branch not in ("HEAD", self._branch):
                self._git(side, 0, "branch", "--quiet", "--no-track", branch, f"origin/{branch}")
        self._git(side, 0, "remote", "set-url", "origin", side.url)
        return side

    def _environment(self, user: str) -> dict[str, str]:
        """A user with a cache of its own, who reads nobody's configuration."""
        home = self._work / "home"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SMARTSERVER_"))}
        return kept | {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / user),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_NAME": "Demo", "GIT_AUTHOR_EMAIL": "demo@example.org",
            "GIT_COMMITTER_NAME": "Demo", "GIT_COMMITTER_EMAIL": "demo@example.org",
            "LC_ALL": "C",
            "PATH": str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", os.defpath),
        }  # fmt: skip

    def _start_ours(self) -> tuple[int, str, Path]:
        served = self._work / "served-hpss"
        served.mkdir()
        port = _free_port()
        command = [sys.executable, "-m", "smartserver.cli.main", "serve", str(served)]
        self._serve([*command, "--listen", f"127.0.0.1:{port}", "--anonymous", "write"], port)
        return port, "hpss", served

    def _start_git_daemon(self) -> tuple[int, str, Path] | None:
        programs = _try(["git", "--exec-path"], None, os.environ).stdout.strip()
        if not (Path(programs) / "git-daemon").exists():
            return None
        served = self._work / "served-git"
        _run(["git", "init", "--quiet", "--bare", str(served / NAME)], None, self._environment("daemon"))
        port = _free_port()
        options = ["--export-all", "--enable=receive-pack", "--reuseaddr", f"--base-path={served}"]
        self._serve(["git", "daemon", *options, "--listen=127.0.0.1", f"--port={port}", str(served)], port)
        return port, "git", served

    def _serve(self, command: list[str], port: int) -> None:
        log = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # The stack closes it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment("server")
        )

        def stop() -> None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        self._stack.callback(stop)
        deadline = time.monotonic() + START_WITHIN
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = log.read().decode("utf-8", "replace").strip()
                    raise CommandError(f"{' '.join(command[:4])} did not start: {said}") from None
                time.sleep(0.02)
            else:
                return

    def _git(self, side: _Side, user: int, *arguments: str) -> str:
        return _run(["git", *arguments], side.users[user], side.environments[user])

    def _try(self, side: _Side, user: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _try(["git", *arguments], side.users[user], side.environments[user])


def _try(command: list[str], folder: Path | None, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip


def _run(command: list[str], folder: Path | None, environment: Mapping[str, str]) -> str:
    """What a command wrote.

    Raises:
        CommandError: it failed.
    """
    done = _try(command, folder, environment)
    if done.returncode:
        raise CommandError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _generate(target: Path, environment: Mapping[str, str]) -> None:
    """A bare repository with a history of small commits on a handful of files."""
    _run(["git", "init", "--quiet", "--bare", str(target)], None, environment)
    stream = []
    for number in range(GENERATED_COMMITS):
        when = 1_200_000_000 + number * 3600
        text = "".join(f"line {line} as of commit {number - number % (line + 1)}\n" for line in range(60)).encode()
        message = f"Commit {number}\n".encode()
        stream += [
            b"commit refs/heads/main\n",
            b"committer Demo <demo@example.org> %d +0000\n" % when,
            b"data %d\n%s" % (len(message), message),
            b"M 100644 inline folder%d/file%d\n" % (number % 3, number % 7),
            b"data %d\n%s\n" % (len(text), text),
        ]
    done = subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=target, env=environment, input=b"".join(stream), check=False
    )
    if done.returncode:
        raise CommandError(f"git fast-import: status {done.returncode}")
