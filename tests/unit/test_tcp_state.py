"""tcp_state: what the kernel says of a connection, by its fields' places."""

from __future__ import annotations

import socket

from needs import needs

from smartserver.tcp_state import tcp_state

pytestmark = needs("Linux")


def test_a_connection_over_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            for _ in range(5):
                ours.sendall(b"a")
                assert theirs.recv(1) == b"a"
            found = tcp_state(ours)
    assert (found["packets"], found["again"], found["by_window"]) == (5, 0, 0)
    assert 500 < found["packet"] < 65_536  # The MTU of loopback.
    assert 10 <= found["window"] <= 20  # Linux begins with ten, and five packets that arrive add one each.
    assert 0 < found["least_rtt"] <= found["rtt"] < 1_000_000


def test_what_is_no_connection_over_tcp() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert tcp_state(one) == {}
