"""A user with an agent, and a server that never answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agents import children, workers
from git_sides import Served, environment
from processes import is_alive

from smartserver.agent.lending import ask
from smartserver.agent.messages import Status, decode_held

PATIENCE = 30.0


class User:
    """A user with an agent of its own, a clone, and the installed programs."""

    def __init__(self, folder: Path, agent: dict[str, str], server: Served, programs: str) -> None:
        self.folder = folder
        self.url = f"hpss://127.0.0.1:{server.direct[1]}/project"
        self.environment = {
            **environment(folder),
            **agent,
            "PATH": os.pathsep.join([programs, os.path.dirname(sys.executable), "/usr/bin", "/bin"]),
            "SMARTSERVER_DEBUG": "hpss",
        }
        self.agent = agent
        self("git init -q -b main .")
        self.commit()
        self(f"git remote add origin {self.url}")

    def commit(self) -> None:
        self("git commit -q --allow-empty -m more")

    def start(self, command: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=self.folder, env={**self.environment, **variables}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def __call__(self, command: str, *, status: int = 0, **variables: str) -> str:
        """Run a command, and return its output. Reading to the end shows that no other process holds the streams."""
        process = self.start(command, **variables)
        said = "".join(process.communicate(timeout=PATIENCE))
        assert process.returncode == status, said
        return said

    def keeper(self) -> int:
        return ask(Status(), decode_held, self.agent)[0].process

    def wait_until_loaded(self) -> int:
        """Wait until the zygote is ready, and return its process id."""
        found = children(self.keeper())[0]
        wait_until(lambda: modules(found, "msgspec") and not workers(found) and children(found))
        return found


def modules(process: int, name: str) -> bool:
    """Tell whether a process has mapped a file with `name` in its path."""
    return name in Path(f"/proc/{process}/maps").read_text()


class Blocked:
    """A server that accepts everything and never answers, and a command that waits for it."""

    def __init__(self, user: User, command: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.git = user.start(command.format(f"hpss://127.0.0.1:{self._listener.getsockname()[1]}/x"))
        self._connection, _ = self._listener.accept()
        assert self._connection.recv(1)

    def program(self) -> int:
        """Return the process that git runs as its remote program."""
        found = self.git.pid
        while below := children(found):
            found = below[0]
        return found

    def hang_up(self) -> None:
        self._listener.close()
        self._connection.close()

    def close(self) -> None:
        self.hang_up()
        self.git.communicate(timeout=PATIENCE)


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds that gives no notice."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_end(process: int) -> None:
    wait_until(lambda: not is_alive(process))


def zygote_of(user: User) -> int:
    return children(user.keeper())[0]
