"""netem.cli.meter: real commands through real proxies; counts are asserted, and times only from below."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from on_threads import PATIENCE, serving
from proxied import nobody

pytestmark = pytest.mark.sockets

METER = [sys.executable, "-c", "import sys; from netem.cli.main import main; sys.exit(main())", "meter"]
RTTS = "20ms,40ms,60ms"
ASK = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b'x'); s.recv(1)"
CLIENT = ["--", sys.executable, "-c", ASK, "{host}", "{port}"]


class Talk:
    """The server's part of each connection: it answers the first byte, or lets it wait, and notes begin and end."""

    def __init__(self) -> None:
        self.answering = True
        self.accepted, self.ended = threading.Event(), threading.Event()
        self.address = ""

    def __call__(self, connection: socket.socket) -> None:
        if connection.recv(1):
            self.accepted.set()
            if self.answering:
                connection.sendall(b"y")
            connection.recv(1)
            self.ended.set()


@pytest.fixture
def server() -> Iterator[Talk]:
    talk = Talk()
    with serving(talk) as server:
        talk.address = f":{server.address[1]}"
        yield talk


def meter(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*METER, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_measurement(server: Talk) -> None:
    """The counts and the least time are certain; the verdict depends on the machine."""
    ended = meter("--to", server.address, "--rtts", RTTS, "--repeat", "2", "--json", *CLIENT)
    assert ended.returncode in (0, 3), ended.stderr
    found = json.loads(ended.stdout)
    assert found["judged"] is (ended.returncode == 0)
    assert [run["rtt"] for run in found["runs"]] == [0.02, 0.04, 0.06] * 2
    for run in found["runs"]:
        assert (run["rounds"], run["handshake_rounds"], run["connections"]) == (2, 1, 1)
        assert run["seconds"] >= 2 * run["rtt"]
    assert ended.stderr.count("2 round trips counted") == 6


def test_the_preparation_runs_before_each_and_is_not_counted(server: Talk, tmp_path: Path) -> None:
    prepare = f'echo . >> {tmp_path}/runs; {sys.executable} -c "{ASK}" {{host}} {{port}}'
    ended = meter("--to", server.address, "--rtts", RTTS, "--repeat", "1", "--json", "--prepare", prepare, *CLIENT)
    assert ended.returncode in (0, 3), ended.stderr
    assert [run["connections"] for run in json.loads(ended.stdout)["runs"]] == [1, 1, 1]
    with open(f"{tmp_path}/runs", encoding="utf-8") as runs:
        assert runs.read() == ".\n" * 3


def test_a_command_that_does_not_use_the_proxy(server: Talk) -> None:
    ended = meter("--to", server.address, "--rtts", RTTS, "--", "true")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "opened no connection to the proxy at 127.0.0.1:" in ended.stderr


@pytest.mark.parametrize("words", [["--", "sh", "-c"], ["--prepare"]])
def test_killed(server: Talk, words: list[str], tmp_path: Path) -> None:
    """Neither the command nor the preparation survives: the end of the pipe that it holds shows that."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [*METER, "--to", server.address, *words, f"exec 3>{pipe}; echo begun >&3; sleep 1000; sleep 1000"]
    if "--" not in command:
        command += ["--", "true"]
    with subprocess.Popen(command) as process, pipe.open() as held:
        assert held.readline() == "begun\n"
        process.kill()
        assert held.read() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_interrupted(server: Talk, number: int) -> None:
    """The command, which waits for an answer, is stopped with the meter, and no process is left."""
    server.answering = False
    command = [*METER, "--to", server.address, "--rtts", RTTS, *CLIENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert server.accepted.wait(PATIENCE)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "", "netem: interrupted\n")
    assert server.ended.wait(PATIENCE)


def test_a_server_that_cannot_be_reached() -> None:
    """A client that takes a closed connection for an answer is not measured; a failing client's status is passed on."""
    with nobody() as (host, port):
        to = f"{host}:{port}"
        ended = meter("--to", to, "--rtts", RTTS, "--repeat", "1", *CLIENT)
        said = f"netem: not judged: the server could not be reached at {to}: Connection refused\n"
        assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", said)
        words = [*CLIENT]
        words[words.index(ASK)] = f"{ASK} or sys.exit(7)"
        ended = meter("--to", to, "--rtts", RTTS, "--repeat", "1", *words)
        said = f"netem: cannot connect to {to}: Connection refused\nnetem: the command ended with status 7\n"
        assert (ended.returncode, ended.stdout, ended.stderr) == (7, "", said)
        prepare = f'{sys.executable} -c "{ASK}" {{host}} {{port}}'  # whose failure it is not
        ended = meter("--to", to, "--rtts", RTTS, "--repeat", "1", "--prepare", prepare, "--", "true")
        assert "opened no connection to the proxy" in ended.stderr
