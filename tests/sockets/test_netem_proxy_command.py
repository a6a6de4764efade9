"""netem.cli.proxy: the command, as a user runs it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from on_threads import PATIENCE, serving
from proxied import ask, echo, nobody

pytestmark = pytest.mark.sockets


ROOT = Path(__file__).resolve().parents[2]
PROXY = [sys.executable, "-c", "import sys; from netem.cli.main import main; sys.exit(main())", "proxy"]


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
