"""cli.entry and cli.zygote: commands that read, run by the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_sides import PATIENCE, Blocked, User, modules, wait_for_end, wait_until, zygote_of
from agents import children, of_its_own, workers
from git_sides import Served

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


@pytest.fixture(scope="module", params=["python", "c"])
def user(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[User]:
    """A user with a loaded agent, a repository with one commit of the file `a`, and either program."""
    in_python = os.path.dirname(sys.executable)
    programs = in_python if request.param == "python" else str(request.getfixturevalue("compiled"))
    folder = tmp_path_factory.mktemp("user")
    served = tmp_path_factory.mktemp("server")
    server = Served(served, "--anonymous", "write")
    try:
        with of_its_own() as agent:
            made = User(folder, agent, server, programs)
            del made.environment["SMARTSERVER_DEBUG"]
            made("sh -c 'echo one >a && git add a && git commit -q -m file && git push -q origin main'")
            (server.root / "broken").mkdir()
            (server.root / "broken" / "root").write_bytes(b"no root")
            yield made
    finally:
        server.close()


def run(user: User, words: str, agent: str, after: str = "") -> tuple[int, bytes, bytes]:
    environment = {**user.environment, "SMARTSERVER_AGENT": agent, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"smartserver {words} {after}"], cwd=user.folder, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "ls -l {url}",
        "cat {url} a",
        "log --json {url}@nowhere",
        "list --refs {url}",
        "list {url}/../\udcff",
        "stats {url}",
        "ls --help {url}",
        "ls --no-such-option {url}",
        "export {url} a",
        "ls hpss://127.0.0.1:1/",
        "-Dhpss-ban=no-such-rule ls {url}",
    ],
)
def test_the_agent_says_the_same(user: User, words: str) -> None:
    command = words.format(url=user.url, above=user.url.removesuffix("project"))
    assert run_by_worker(user, command) == run(user, command, "0")


def run_by_worker(user: User, words: str, after: str = "") -> tuple[int, bytes, bytes]:
    """Run a command by the waiting worker, and wait until another worker has replaced it."""
    zygote = user.wait_until_loaded()
    before = children(zygote)
    done = run(user, words, "1", after)
    wait_until(lambda: not set(before) & set(children(zygote)))  # Else somebody ran the command himself.
    return done


def test_the_folder_and_the_mask_are_the_commands(user: User) -> None:
    folder = user.folder / "there"
    folder.mkdir()
    command = f"cd there && umask 027 && smartserver export {user.url} made"
    done = subprocess.run(["sh", "-c", command], cwd=user.folder, env=user.environment, check=False)
    assert done.returncode == 0
    assert (folder / "made" / "a").read_text() == "one\n"
    assert (folder / "made" / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("words", ["ls {url}", "list --json {above}"])
def test_an_output_that_is_full_is_said(user: User, words: str) -> None:
    command = words.format(url=user.url, above=user.url.removesuffix("project"))
    by_worker = run_by_worker(user, command, ">/dev/full")
    assert by_worker == run(user, command, "0", ">/dev/full")
    assert (by_worker[0], by_worker[2]) == (1, b"smartserver: output: No space left on device\n")


def test_a_reader_that_has_enough_is_no_error_to_speak_of(user: User) -> None:
    for _, _, said in (run_by_worker(user, f"log {user.url}", "| true"), run(user, f"log {user.url}", "0", "| true")):
        assert said == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_worker(user: User, number: signal.Signals) -> None:
    blocked = Blocked(user, "smartserver export {} made")
    try:
        assert not modules(blocked.program(), "msgspec")
        (worker,) = workers(zygote_of(user))
        os.killpg(blocked.git.pid, number)
        _, said = blocked.git.communicate(timeout=PATIENCE)
        assert blocked.git.returncode == 128 + number
        assert said.strip() == ("interrupted" if number == signal.SIGINT else "")
        wait_for_end(worker)
        assert not list(Path(user.folder).glob(".smartserver-*"))
    finally:
        blocked.close()
