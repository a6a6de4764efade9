"""A real server as a process, real git, and histories to exchange: the parts that tests of crashes share."""

from __future__ import annotations

import os
import queue
import random
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from our_forks import FORKS, with_forked
from processes import status_of

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which something counts as hanging; no test waits so long otherwise."""

SMARTSERVER = ("-m", "smartserver.cli.main")
"""The words after `python` that start smartserver."""

STATUS_OF_GIT = {"push": (1, 128), "clone": (128,), "fetch": (128,), "ls-remote": (128,)}
"""By command: git's possible exit statuses after its remote program reports `fatal`."""

NOISE = re.compile(r"Traceback|KeyboardInterrupt|Exception ignored|Fatal Python error|^Python|\.py\b", re.MULTILINE)
"""Matches output that a user must never see."""


@dataclass(frozen=True)
class Done:
    """The results of a program."""

    status: int
    out: str
    err: str

    def worked(self) -> Done:
        """Check that the program succeeded, and return the results."""
        assert self.status == 0, self
        return self

    def failed(self, command: str) -> str:
        """Return the one line that gives the reason; git's later lines only repeat the URL."""
        assert self.status in STATUS_OF_GIT[command], self
        assert not NOISE.search(self.err), self
        lines = [
            line for line in self.err.splitlines() if not line.startswith(("Cloning into", "error: failed to push"))
        ]
        assert len(lines) == 1, self
        assert lines[0].startswith("fatal: hpss: "), self
        return lines[0].removeprefix("fatal: hpss: ")


class User:
    """A user with a home of its own, which has the user's repositories and knowledge of remotes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        (home / ".gitconfig").write_text(
            "[user]\n\tname = A\n\temail = a@example.org\n[init]\n\tdefaultBranch = main\n"
            "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[advice]\n\tdetachedHead = false\n"
        )
        kept = ("PATH", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "SMARTSERVER_DEBUG")  # The last: what is banned.
        self.environment = {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "HOME": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TEMPLATE_DIR": "",
            "GIT_TERMINAL_PROMPT": "0",
            "SMARTSERVER_AGENT": "0",
        }

    def start(self, *arguments: str, folder: str = ".", forks: bool = False) -> subprocess.Popen[bytes]:
        """Start git in a process group of its own. `forks`: its remote program is in another group, and starts fast."""
        path = {"PATH": with_forked(self.environment["PATH"])} if forks else {}
        return subprocess.Popen(
            ["git", *arguments],
            cwd=self.home / folder,
            env=self.environment | path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def git(self, *arguments: str, folder: str = ".") -> Done:
        """Run a git command, and return its results."""
        return finish(self.start(*arguments, folder=folder, forks=True))

    def tip(self, folder: str, name: str = "HEAD") -> str:
        """Return the id of a revision."""
        return self.git("rev-parse", name, folder=folder).worked().out.strip()


def finish(process: subprocess.Popen[bytes]) -> Done:
    """Wait for a program, and for every other that writes to its streams."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"{process.args!r} hangs; so far {out!r} {err!r}") from None
    return Done(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def run(*program: str) -> Done:
    """Run a program in Python."""
    status, out, err = FORKS.run(*program, timeout=PATIENCE)
    return Done(status, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


class Server:
    """A running `smartserver serve`; leaving its `with` block kills it."""

    def __init__(
        self,
        root: Path | str,
        *options: str,
        anonymous: str = "write",
        program: Sequence[str] = SMARTSERVER,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root = Path(root)
        listen = ("--listen", "127.0.0.1:0", *(("--anonymous", anonymous) if anonymous else ()))
        read, written = os.pipe()
        self._err = os.fdopen(read, "rb")
        with os.fdopen(written, "wb") as err:
            self.process = FORKS.start(
                *program,
                "serve",
                str(root),
                *listen,
                *options,
                stderr=err.fileno(),
                environment={**os.environ, **(environment or {})},
                pass_fds=pass_fds,
            )
        self.log: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        found = None
        while not found and (line := self._lines.get(timeout=PATIENCE)) is not None:  # A warning may come first.
            found = re.search(r"hpss(?:\+tls)?://127\.0\.0\.1:(\d+)/", line)
        if not found:
            self.kill()
            raise AssertionError(f"the server did not start: {self.log}")
        self.port = int(found[1])

    def _read(self) -> None:
        for line in self._err:
            self.log.append(line.decode("utf-8", "replace"))
            self._lines.put(self.log[-1])
        self._lines.put(None)

    def url(self, path: str) -> str:
        """Return the URL of a repository."""
        return f"hpss://127.0.0.1:{self.port}/{path}"

    def kill(self) -> None:
        """Kill the server, if it runs."""
        self.process.kill()
        self._gone()

    def _gone(self) -> None:
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self._err.close()

    @property
    def pages(self) -> str:
        """Return the URL of the pages for its operator, without their names."""

        def found() -> list[str]:
            return re.findall(r"ready or not on (http://[\d.:]+)/readyz", "".join(self.log))

        wait_until(lambda: bool(found()), "where its pages are")
        return found()[0]

    def page(self, name: str) -> tuple[int, str]:
        """Return the status and the text of a page for its operator."""
        try:
            with urllib.request.urlopen(f"{self.pages}/{name}", timeout=PATIENCE) as answer:
                return 200, answer.read().decode()
        except urllib.error.HTTPError as wrong:
            return wrong.code, wrong.read().decode()

    def memory(self) -> int:
        """Return the bytes of memory that it uses now."""
        return status_of(self.process.pid)["VmRSS"] * 1024

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self._gone()
        assert not NOISE.search("".join(self.log)), self.log


def write_history(
    user: User, folder: str, commits: int, *, seed: str, size: int, files: int = 1, branch: str = "main"
) -> list[str]:
    """Make a repository of commits in a row, each with `files` new files of `size` random bytes; return their ids."""
    user.git("init", "-q", folder).worked()
    content = random.Random(seed)
    stream: list[bytes] = []
    for number in range(1, commits + 1):
        stream.append(b"commit refs/heads/%s\nmark :%d\n" % (branch.encode(), number))
        stream.append(b"committer A <a@example.org> %d +0000\n" % (1_700_000_000 + number))
        stream.append(b"data 9\ncommit %02d\n" % (number % 100))
        if number > 1:
            stream.append(b"from :%d\n" % (number - 1))
        for file in range(files):
            stream.append(b"M 100644 inline folder%d/%d-%d\ndata %d\n" % (number % 7, number, file, size))
            stream.append(content.randbytes(size) + b"\n")
    process = subprocess.run(
        ["git", "fast-import", "--quiet", "--force"],
        cwd=user.home / folder,
        env=user.environment,
        input=b"".join(stream),
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert not process.stderr
    user.git("reset", "-q", "--hard", branch, folder=folder).worked()
    return user.git("rev-list", "--reverse", branch, folder=folder).worked().out.split()


def server_refs(root: Path, path: str) -> dict[str, str]:
    """Return the stored refs of a repository; empty if there is none."""
    repository = PackRepository(LocalTransport(root), path)
    if not repository.exists():
        return {}
    return {name.decode(): value[0].id.hex() for name, value in repository.snapshot().state.refs().items()}


def check_store(root: Path, path: str) -> None:
    """Check that a repository, if there is one, is whole."""
    repository = PackRepository(LocalTransport(root), path)
    if repository.exists():
        assert repository.verify().problems == ()


def is_tidy(root: Path, path: str) -> bool:
    """Tell whether a repository's folder has no file of a writer, dead or alive, that no record names yet."""
    incoming = root / path / "incoming"
    return not (incoming.exists() and any(incoming.iterdir()))


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait until a condition holds that gives no notice."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.01)


def lanes(count: int, work: Callable[[int], T]) -> list[T]:
    """Run `work(0)`, `work(1)`... at the same time, and raise the error of any of them here."""
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(work, lane) for lane in range(count)]]
