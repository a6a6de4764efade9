"""The parts that measuring commands share: a temporary folder, servers on loopback, and git without a configuration."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, TypeVar

from smartserver.cli.errors import CommandError

if TYPE_CHECKING:
    from netem.budget import Countable

START_WITHIN = 20.0
"""Seconds that a server may take to listen."""

LOOK = 0.02
"""Seconds between checks of a condition that gives no notice: a server listens, or a folder can be removed."""

STOP_WITHIN = 5.0
"""Seconds that a server may take to stop before it is killed."""

WRITING_FOR = 5.0
"""Seconds for which programs that an interrupted git left behind may still write in the folder."""

HOST = "127.0.0.1"

T = TypeVar("T")
Say = Callable[[str], None]
"""Takes one line of progress."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens on loopback; `served` is the folder of its repositories."""

    scheme: str
    port: int
    served: Path
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        """The host and port on which it listens."""
        return HOST, self.port

    def url(self, name: str, port: int | None = None) -> str:
        """Return the URL of a repository on it, through `port` where a link is in front."""
        return f"{self.scheme}://{HOST}:{port or self.port}/{name}"


Serve = Callable[[str, int], Sequence[str]]
"""Makes, from a host and a port, the command of a server that listens there."""


def serving(served: Path | str, host: str, port: int, *options: str) -> Sequence[str]:
    """Return the command of our server, writable for anybody."""
    command = [sys.executable, "-m", "smartserver.cli.main", "serve", str(served)]
    return [*command, "--listen", f"{host}:{port}", "--anonymous", "write", *options]


def serving_git(served: Path, host: str, port: int) -> Sequence[str]:
    """Return the command of git's own server, writable for anybody."""
    options = ["--export-all", "--enable=receive-pack", "--reuseaddr", f"--base-path={served}"]
    return ["git", "daemon", *options, f"--listen={host}", f"--port={port}", str(served)]


@dataclass(frozen=True, slots=True)
class LinkCost:
    """The traffic on a link during an action, and its duration."""

    round_trips: int
    """The round trips, including those of handshakes."""
    seconds: float
    bytes_up: int
    bytes_down: int
    handshakes: int = 0
    """The round trips that opening connections added."""


def measured(link: Countable, act: Callable[[], T]) -> tuple[T, LinkCost]:
    """Do something, and return its result and the traffic on the link meanwhile."""
    link.take()
    start = time.perf_counter()
    done = act()
    seconds = time.perf_counter() - start
    counts = link.take()
    return done, LinkCost(counts.rounds, seconds, counts.bytes_up, counts.bytes_down, counts.handshake_rounds)


def _remove(folder: Path) -> None:
    """Remove a folder, even while a process still makes files in it."""
    end = time.monotonic() + WRITING_FOR
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(LOOK)


class Workspace:
    """A temporary folder and the servers that use it; a context manager that stops them and removes the folder."""

    def __init__(self, name: str) -> None:
        """`name` becomes part of the folder's name."""
        self._name = name
        self._stack = ExitStack()
        self.folder = Path()

    def __enter__(self) -> Self:
        try:
            if shutil.which("git") is None:
                raise CommandError("git is not on PATH: install it first")
            self.folder = Path(tempfile.mkdtemp(prefix=f"smartserver-{self._name}-"))
            self.later(partial(_remove, self.folder))
            (self.folder / "home").mkdir()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def enter(self, context: AbstractContextManager[T]) -> T:
        """Enter a context that is left with this one, before the contexts that were entered earlier."""
        return self._stack.enter_context(context)

    def later(self, callback: Callable[[], object]) -> None:
        """Call this function when the workspace is left."""
        self._stack.callback(callback)

    def environment(self, user: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a user with an own cache and nobody's configuration; `settings` are git's.

        Python keeps its compiled files, as in an installation. Otherwise the modules of a checkout would be compiled in
        each process, which is a tenth of a second in a push by brz.
        """
        home = self.folder / "home"
        left_out = ("GIT_", "SMARTSERVER_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        found = kept | {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / user),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_NAME": "Demo", "GIT_AUTHOR_EMAIL": "demo@example.org",
            "GIT_COMMITTER_NAME": "Demo", "GIT_COMMITTER_EMAIL": "demo@example.org",
            "LC_ALL": "C",
            "SMARTSERVER_AGENT": "0",  # Each command is shown or measured alone.
            "PATH": str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", os.defpath),
        }  # fmt: skip
        for number, (name, value) in enumerate((settings or {}).items()):
            found |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        return found | ({"GIT_CONFIG_COUNT": str(len(settings))} if settings else {})

    def start_ours(self, served: Path | None = None) -> Server:
        """Start our server, which makes repositories below `served` and lets anybody on this machine write."""
        served = served or self.folder / "served-hpss"
        served.mkdir(exist_ok=True)
        return self.start("hpss", served, partial(serving, served))

    def start_git_daemon(self, *names: str) -> Server | None:
        """Start `git daemon` with an empty repository for each of `names`; return None if it is not installed."""
        programs = attempt(["git", "--exec-path"], None, os.environ).stdout.strip()
        if not (Path(programs) / "git-daemon").exists():
            return None
        served = self.folder / "served-git"
        served.mkdir(exist_ok=True)
        environment = self.environment("daemon")
        for name in names:
            run(["git", "init", "--quiet", "--bare", str(served / name)], None, environment)
        return self.start("git", served, partial(serving_git, served))

    def start(self, scheme: str, served: Path, serve: Serve, environment: Mapping[str, str] | None = None) -> Server:
        """Start any server on a free port."""
        port = free_port()
        return Server(scheme, port, served, self.serve(serve(HOST, port), port, environment))

    def serve(self, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None) -> int:
        """Start any server, wait until it listens, and return its process id. It stops when the workspace is left."""
        log = self.enter(tempfile.TemporaryFile())  # noqa: SIM115  # The stack closes it.
        # In a group of its own: on Ctrl-C it is this process that stops it, when nobody uses it any more.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self.environment("server") if environment is None else environment,
            start_new_session=True,
        )

        def stop() -> None:
            process.terminate()
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        self.later(stop)
        until_it_listens(lambda: _answers(port), lambda: process.poll() is not None, " ".join(command[:4]), log)
        return process.pid


def attempt(
    command: Sequence[str], folder: Path | None, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command, wait for it, and return its result even if it failed."""
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip


def run(command: Sequence[str], folder: Path | None, environment: Mapping[str, str]) -> str:
    """Run a command, and return its output."""
    done = attempt(command, folder, environment)
    if done.returncode:
        raise CommandError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def until_it_listens(listens: Callable[[], bool], ended: Callable[[], bool], name: str, log: IO[bytes]) -> None:
    """Wait until a server listens; `name` and its `log` are for the error."""
    deadline = time.monotonic() + START_WITHIN
    while not listens():
        if ended() or time.monotonic() > deadline:
            raise CommandError(f"{name} did not start: {written(log).strip()}")
        time.sleep(LOOK)


def written(file: IO[bytes]) -> str:
    """Return the content of a file that another process may write to."""
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
