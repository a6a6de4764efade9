"""bench.links: a server and its clients, each in a namespace of a network of packets."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from bench.links import client, server
from packet_networks import Start, gone

from netem.link import Link
from smartserver.cli.errors import CommandError

pytestmark = pytest.mark.packets

PORT = 4000

SERVER = f"""
import os, socket
with socket.create_server(("", {PORT})) as listener:
    listener.accept()[0].sendall(f"{{os.getcwd()}} {{os.environ['WHO']}}".encode())
"""

CLIENT = """
import os, sys
print(os.getcwd(), os.environ["WHO"], repr(sys.stdin.read()))
sys.exit("oh")
"""


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_a_client_is_run_to_its_end(start: Start, tmp_path: Path) -> None:
    network = start(Link(0.0))
    with client(network, python(CLIENT), tmp_path, os.environ | {"WHO": "me"}) as running:
        ended = running.wait()
    assert (ended.status, ended.stdout, ended.stderr) == (1, f"{tmp_path} me ''\n", "oh\n")
    assert ended.seconds > 0


def test_a_client_that_nobody_waits_for_ends_with_its_context(start: Start, tmp_path: Path) -> None:
    network = start(Link(0.0))
    with client(network, ["sleep", "1000"], tmp_path, os.environ) as running:
        pass
    assert gone(running.pid)


def test_a_server_listens_when_the_context_is_entered(start: Start, tmp_path: Path) -> None:
    network = start(Link(0.0))
    with server(network, python(SERVER), tmp_path, os.environ | {"WHO": "you"}), network.connect(PORT) as connection:
        assert connection.recv(1000, socket.MSG_WAITALL) == f"{tmp_path} you".encode()


def test_a_server_that_ends_is_an_error_with_what_it_said(start: Start, tmp_path: Path) -> None:
    network, ended = start(Link(0.0)), python("raise SystemExit('oh')")
    with pytest.raises(CommandError, match="did not start: oh"), server(network, ended, tmp_path, os.environ):
        pass
