"""netem.watched, where the program speaks TLS: counted, and its senders known."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from certificates import Authority
from on_threads import serving

from netem.callsites import CallSite
from netem.watched import Watched

pytestmark = pytest.mark.sockets

RTT = 0.02


def say(sock: socket.socket) -> None:
    sock.sendall(b"line\n")
    assert sock.recv(99) == b"re: line\n"


def test_tls_is_counted_and_the_latest_sender_said(tmp_path: Path) -> None:
    """Not its words: they are encrypted."""
    authority = Authority(tmp_path / "authority")
    line = say.__code__.co_firstlineno + 1
    context_of_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context_of_server.load_cert_chain(*authority.sign("127.0.0.1"))

    def answer(connection: socket.socket) -> None:
        with context_of_server.wrap_socket(connection, server_side=True) as sock:
            while said := sock.recv(99):
                sock.sendall(b"re: " + said)

    with serving(answer) as server, Watched(RTT) as network:
        context = ssl.create_default_context(cafile=str(authority.file))
        with (
            socket.create_connection(server.address) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
        ):
            say(sock)
            network.take()  # the handshake's last words have arrived
            for _ in range(2):
                say(sock)
            counts = network.take()
    assert [m.sites[0] for m in counts.messages if m.up and m.size] == [CallSite(__file__, line, "say")] * 2
