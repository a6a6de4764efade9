"""`GatewayServer`: a running `smartserver serve --http`, and stock git on it, for tests and measurements."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

TIMEOUT = 120
"""Seconds after which a command counts as hanging."""

READY = re.compile(r"on hpss(?:\+tls)?://[\d.]+:(\d+)/.*?\nfor stock git on (https?)://[\d.]+:(\d+)/", re.S)


def environment(home: Path) -> dict[str, str]:
    """Return git's environment: a home of its own, and no variable of the user's."""
    kept = {name: value for name, value in os.environ.items() if name in ("LD_LIBRARY_PATH", "TMPDIR")}
    return {
        **kept,
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": "",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "http:https:ssh:hpss:file",
        "SMARTSERVER_AGENT": "0",
        "LC_ALL": "C.UTF-8",
    }


class GatewayServer:
    """A running server, as a context manager. Its caches are in `cache`, its log is in `log`."""

    def __init__(self, folder: Path, *options: str, anonymous: str = "write") -> None:
        """`anonymous`: the rights of unknown users; empty where `options` have --access."""
        self.folder = folder
        self.root, self.cache, self.log = folder / "root", folder / "cache", folder / "server.log"
        self.root.mkdir(exist_ok=True)
        self._options = [*options, *(["--anonymous", anonymous] if anonymous else [])]
        self.process: subprocess.Popen[bytes] | None = None
        self.port = self.http_port = 0
        self.scheme = "http"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGTERM)

    def start(self) -> None:
        """Start the server; after a stop on the same ports as before."""
        begins = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "smartserver.cli.main", "serve", str(self.root)),
                    *("--listen", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{self.http_port}"),
                    *("--cache-dir", str(self.cache), "-v", *self._options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.folder),
            )
        until = time.monotonic() + TIMEOUT
        while (found := READY.search(self.log.read_text()[begins:])) is None:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)
        self.port, self.scheme, self.http_port = int(found[1]), found[2], int(found[3])

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Stop the server with this signal."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def url(self, path: str = "project", user: str = "") -> str:
        """Return the URL for stock git. `user`: name and password."""
        return f"{self.scheme}://{user and f'{user}@'}127.0.0.1:{self.http_port}/{path}"

    def ours(self, path: str = "project") -> str:
        """Return the URL for our own protocol."""
        return f"hpss://127.0.0.1:{self.port}/{path}"


class Git:
    """Runs git in a folder."""

    def __init__(self, folder: Path, home: Path, variables: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = environment(home) | dict(variables or {})

    def __call__(self, *words: str, status: int | None = 0) -> str:
        """Run a command, and return its output. `status`: the expected one; None: any."""
        done = subprocess.run(
            ["git", *words], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False,
        )  # fmt: skip
        said = done.stdout.decode("utf-8", "replace")
        assert status is None or done.returncode == status, f"git {' '.join(words)}: {done.returncode}\n{said}"
        return said

    def commit(self, name: str, content: str = "") -> str:
        """Commit a file, and return the commit's id."""
        (self.folder / name).write_text(content or f"{name}\n")
        self("add", name)
        self("commit", "-q", "-m", name)
        return self("rev-parse", "HEAD").strip()

    def at(self, folder: str) -> Git:
        """Return a git in a folder beside this one."""
        made = Git(self.folder.parent / folder, self.folder)
        made.environment = self.environment
        return made


def new_repository(folder: Path, **variables: str) -> Git:
    """Make a new repository with one commit."""
    folder.mkdir()
    git = Git(folder, folder.parent, variables)
    git("init", "-q", "-b", "main")
    git.commit("one")
    return git
