"""netem.watched: what is none of its: connections that are not meant, and every socket once it is left."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from watching import RTT, answering, ask, by_socket_once, read_line

from netem import watched as module
from netem.budget import NothingCounted, round_trips
from netem.patches import Patches
from netem.proxy import Proxy
from netem.watched import AlreadyWatched, Watched, _is_loopback

pytestmark = pytest.mark.sockets


def test_only_the_named_servers_are_meant() -> None:
    with answering() as one, answering() as other, Watched(RTT, servers=[("localhost", other)]) as network:
        with pytest.raises(NothingCounted), round_trips(network, at_most=9):
            by_socket_once(one)
        by_socket_once(other)
        assert network.counts().connections == 1


def test_ipv6() -> None:
    with answering("::1") as port, Watched(RTT) as network:
        with socket.create_connection(("::1", port)) as sock:
            sock.sendall(b"six\n")
            assert read_line(sock) == b"re: six\n"
        assert network.take().connections == 1


@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET6, "::ffff:0.0.0.0")],
)
def test_other_names_of_this_machine(port: int, family: socket.AddressFamily, address: str) -> None:
    with Watched(RTT) as network:
        with socket.socket(family) as sock:
            sock.connect((address, port))
            ask(sock, b"x\n")
        assert network.take().connections == 1


def test_an_address_of_another_machine_is_none() -> None:
    assert not any(map(_is_loopback, ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "no address"]))


def test_what_is_no_tcp_connection_is_left_alone(tmp_path: Path) -> None:
    with Watched(RTT) as network:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(str(tmp_path / "socket"))
            server.listen()
            client.connect(str(tmp_path / "socket"))
            client.sendall(b"here")
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        ):
            one.bind(("127.0.0.1", 0))
            other.connect(one.getsockname())
            other.send(b"there")
            assert one.recv(9) == b"there"
        with socket.socket() as sock, pytest.raises(TypeError):
            sock.connect(("127.0.0.1", "no port at all", "nor this"))
        assert not network.take().used


def test_what_goes_to_another_proxy_is_counted_there_alone(port: int) -> None:
    with Watched(RTT) as network, Proxy(RTT, ("127.0.0.1", port)) as proxy:
        by_socket_once(proxy.port)
        assert (network.take().connections, proxy.take().connections) == (0, 1)
        by_socket_once(port)
        assert (network.take().connections, proxy.take().connections) == (1, 0)


@pytest.mark.parametrize(
    ("listening", "dialed"),
    [
        ("127.0.0.1", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.2"),
        ("::1", "::"),
        ("::", "::1"),
    ],
)
def test_so_is_what_goes_to_one_by_another_name_of_this_machine(
    port: int, listening: str, dialed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = "::1" if ":" in listening else "127.0.0.2" if dialed == "127.0.0.2" else "127.0.0.1"
    with Watched(RTT) as network, Proxy(RTT, ("127.0.0.1", port), listen=(here, 0)) as proxy:
        monkeypatch.setattr(module, "DOORS", {(listening, proxy.port)})  # no test listens beyond loopback
        with socket.create_connection((dialed, proxy.port)) as sock:
            ask(sock, b"x\n")
        assert (network.take().connections, proxy.take().connections) == (0, 1)


def test_a_proxy_on_all_addresses_of_one_family_is_none_of_the_other(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DOORS", {("::", port), ("0.0.0.0", port + 1), ("127.0.0.2", port)})
    with Watched(RTT) as network:
        by_socket_once(port)
        assert network.take().connections == 1


def test_a_fork_is_left_alone(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Watched(RTT) as network:
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: 1)
            by_socket_once(port)
        assert not network.take().used


def test_one_at_a_time() -> None:
    with Watched(RTT), pytest.raises(AlreadyWatched), Watched(RTT):
        pass
    with Watched(RTT):
        pass


def test_a_beginning_that_is_interrupted_leaves_nothing_behind(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, before, running = Patches._replace, dict(vars(socket.socket)), set(threading.enumerate())
    left = [True] * 5

    def interrupted(patches: Patches, *arguments: Any) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        replace(patches, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Patches, "_replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Watched(RTT).__enter__()
    assert dict(vars(socket.socket)) == before
    assert set(threading.enumerate()) <= running
    with Watched(RTT) as network:
        by_socket_once(port)
        assert network.take().connections == 1
