"""Commands with closed standard streams, and in a locale that lacks characters of their names."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dialogs import message
from serving import NOISE, PATIENCE, Done, Server, User

from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Request
from smartserver.wire.messages import encode

pytestmark = pytest.mark.sockets

ENTRY = (sys.executable, "-m", "smartserver.cli.entry")

NAME = "日本"

PRINTING = ("ls {url}", "log {url}", "list --refs {root}", "push {served} new", "import w {root}new@日本")

OTHERS = ("cat {url} é", "export {url} new", "dump {url} new", "fast-export {url}", "verify {served}")

AS_JSON = ("ls -R --json {url}", "log --json {url}", "list --refs --json {root}")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user with a repository of names that only UTF-8 locales have."""
    user = User(tmp_path_factory.mktemp("user"))
    user.git("init", "-q", "w").worked()
    for name in (NAME, "é"):
        (user.home / "w" / name).write_text(name)
    user.git("add", ".", folder="w").worked()
    user.git("commit", "-q", "-m", NAME, "--author", "Łukasz <l@example.org>", folder="w").worked()
    return user


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, user: User) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("root")
    with Server(root) as server:
        user.git("push", "-q", server.url("p"), "main", f"main:{NAME}", folder="w").worked()
        yield server


def run(user: User, server: Server, command: str, redirected: str = "", **variables: str) -> Done:
    """Run a command in an empty folder, at a shell, and return its results."""
    words = command.format(url=server.url("p"), root=server.url(""), served=server.root / "p").split()
    folder = user.home / "empty"
    for each in (folder, server.root / "new"):
        shutil.rmtree(each, ignore_errors=True)
    (folder / "w").mkdir(parents=True)
    (folder / "w" / NAME).touch()
    script = f"{shlex.join([*ENTRY, *words])} {redirected}"
    environment = {**os.environ, "SMARTSERVER_AGENT": "0", "XDG_CACHE_HOME": str(folder / "cache"), **variables}
    done = subprocess.run(
        ["/bin/sh", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("utf-8", "replace"))


@pytest.mark.parametrize("command", [*PRINTING, *OTHERS])
def test_without_standard_error_a_command_does_the_same(user: User, server: Server, command: str) -> None:
    done = run(user, server, command, "<&- 2>&-")
    assert done.status == 0, done
    assert done.out or command.startswith("export")
    assert command.startswith("import") or (user.home / "empty" / "new").exists() is (" new" in command)


@pytest.mark.parametrize("command", ["ls {url}", "cat {url} é", "fast-export {url}", "import w {root}new"])
def test_without_standard_output_what_cannot_be_written_is_said(user: User, server: Server, command: str) -> None:
    done = run(user, server, command, ">&-")
    assert not NOISE.search(done.err), done
    assert (done.status, "Bad file descriptor" in done.err) == (1, True), done


@pytest.mark.parametrize("command", [*PRINTING, *AS_JSON])
def test_in_a_locale_that_is_not_utf_8(user: User, server: Server, command: str) -> None:
    done = run(user, server, command, PYTHONIOENCODING="latin-1")
    assert done.status == 0, done
    assert not NOISE.search(done.err), done
    if command in AS_JSON:
        assert all(json.loads(line.encode("latin-1")) for line in done.out.splitlines())
        assert NAME.encode() in done.out.encode("latin-1")


def test_a_server_is_told_to_stop_as_its_input_ends(tmp_path: Path) -> None:
    command = [*ENTRY, "serve", str(tmp_path), "--stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ping = encode(message((server_ping, PingRequest()), path=""))
        process.stdin.write(Connection(Role.CLIENT).send(Request(1, ping)))
        process.stdin.flush()
        assert process.stdout.read(16)  # It has answered.
        process.send_signal(signal.SIGSTOP)
        process.stdin.close()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert not NOISE.search(process.stderr.read().decode())
