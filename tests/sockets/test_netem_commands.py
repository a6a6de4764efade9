"""netem.cli.meter, netem.cli.proxy: real commands through real proxies, as a user runs them; counts are asserted, and
times only from below."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from on_threads import PATIENCE, ask, echo, nobody, serving

pytestmark = pytest.mark.sockets

ROOT = Path(__file__).resolve().parents[2]
NETEM = [sys.executable, "-c", "import sys; from netem.cli.main import main; sys.exit(main())"]
METER, PROXY = [*NETEM, "meter"], [*NETEM, "proxy"]
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


# -- netem proxy


@contextlib.contextmanager
def command(*words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [*PROXY, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert "listening on" in said, said
        yield process, int(said.split(",")[0].rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def operation(port: int, times: int = 1) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        for _ in range(times):
            ask(client)


def test_the_command_prints_a_line_an_operation_and_a_total() -> None:
    with serving(echo) as server:
        to = f"{server.address[0]}:{server.address[1]}"
        with command("--rtt", "20ms", "--listen", ":0", "--to", to) as (process, port):
            operation(port)
            operation(port, 3)  # at once after the first: its connection has not quite ended
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
    said = [re.sub(r"\d+\.\d{3} s$", "SECONDS", line) for line in (*lines, *out.splitlines())]
    assert said == [
        "2 round trips (1 handshake), 1 connection, 3 B up, 3 B down, SECONDS\n",
        "4 round trips (1 handshake), 1 connection, 9 B up, 9 B down, SECONDS\n",
        "total of 2 operations: 6 round trips (2 handshakes), 2 connections, 12 B up, 12 B down, SECONDS",
    ]
    assert (process.returncode, err) == (0, "")


def test_the_command_in_json_says_so_when_nobody_listens() -> None:
    with (
        nobody() as (host, closed),
        command("--rtt", "20ms", "--listen", ":0", "--to", f"{host}:{closed}", "--json") as (process, port),
    ):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            assert client.recv(9) == b""
        assert process.stdout is not None
        one = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    assert (one["rounds"], one["connections"]) == (1, 1)
    assert json.loads(out)["total"] is True
    assert err == f"netem: cannot connect to {host}:{closed}: Connection refused\n"
    assert process.returncode == 0


def test_an_address_of_ipv6_is_in_brackets() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        where = f"[::1]:{taken.getsockname()[1]}"
        words = [*PROXY, "--rtt", "1ms", "--listen", where, "--to", where]
        run = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, check=False)
    assert run.stderr == f"netem: cannot listen on {where}: Address already in use\n"
    with command("--rtt", "1ms", "--listen", "[::1]:0", "--to", where) as (process, port):
        with socket.create_connection(("::1", port), PATIENCE) as client:
            assert client.recv(9) == b""
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert err == f"netem: cannot connect to {where}: Connection refused\n"
