"""netem.accuracy_sockets, netem.accuracy_networks, netem.cli.accuracy: small numbers; times only from below."""

from __future__ import annotations

import errno
import functools
import json
import re
import socket
from collections.abc import Callable, Iterator

import pytest

from netem import accuracy_sockets
from netem.accuracy import Accuracy, MeasuredNetwork, measure
from netem.accuracy_sockets import CHUNK, CONNECTIONS, dial, server
from netem.cli import accuracy
from netem.cli.main import main
from netem.packets.errors import PacketsError, Unavailable
from netem.proxy import ProxyError

pytestmark = pytest.mark.sockets

SMALL = functools.partial(measure, echoes={0.01: 5}, bulk=3 * CHUNK + 1, exchanges=3 * CONNECTIONS)


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with server() as made:
        yield made


def test_a_connection_that_says_nothing_or_is_reset_harms_no_other(address: tuple[str, int]) -> None:
    silent = socket.create_connection(address)
    rude = socket.create_connection(address)
    rude.sendall(b"e.")
    assert rude.recv(1) == b"."
    rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    rude.close()
    assert len(accuracy_sockets.echo(dial(*address), 2)) == 2
    silent.close()
    assert len(accuracy_sockets.echo(dial(*address), 2)) == 2


@pytest.mark.parametrize(
    "exchange", [accuracy_sockets.echo, accuracy_sockets.bulk, accuracy_sockets.exchanges], ids=lambda f: f.__name__
)
def test_an_end_is_no_answer(exchange: Callable[[accuracy_sockets.Connect, int], object]) -> None:
    ends: list[socket.socket] = []

    def connect() -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.shutdown(socket.SHUT_WR)
        ends.append(theirs)
        return ours

    with pytest.raises(ConnectionError, match="instead of answering"):
        exchange(connect, 3)
    for end in ends:
        end.close()


def none_here(link: object) -> None:
    raise Unavailable("no packet network here: this is a test")


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there can be no packets, that is said and the others are measured."""
    monkeypatch.setattr(accuracy, "Packets", none_here)
    monkeypatch.setattr(accuracy, "measure", SMALL)
    assert main(["accuracy"]) == 0
    out, err = capsys.readouterr()
    head, _, *rows = out.partition("\n\n")[0].splitlines()
    assert head == "| network | late at 10 ms, p50 / p99 | MB/s | packets/s | messages/s |"
    assert [row.split(" | ")[0] for row in rows] == ["| simulated", "| none (loopback)", "| proxy"]
    assert rows[0].startswith("| simulated | 0.00 / 0.00 ms |")
    assert "netem: no packet network here: this is a test\n" in err
    assert "timers of this process came up to" in err
    assert main(["accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[0]["packets_per_second"] is None
    late = found[0]["late"]["0.01"]
    assert (late["median"], late["p99"], late["greatest"], late["by_the_machine"]) == (0.0, 0.0, 0.0, False)
    assert late["timer"] >= 0


@pytest.mark.parametrize(
    "error", [ConnectionResetError(errno.ECONNRESET, "x"), TimeoutError("x"), ProxyError("x"), PacketsError("x")]
)
def test_what_was_found_is_printed_where_one_network_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def failing(network: MeasuredNetwork) -> Accuracy:
        if network.name == "none (loopback)":
            raise error
        return Accuracy(network.name, {}, 1.0, None, 1.0)

    monkeypatch.setattr(accuracy, "Packets", none_here)
    monkeypatch.setattr(accuracy, "measure", failing)
    assert main(["accuracy"]) == 1
    out, err = capsys.readouterr()
    assert [row.split(" | ")[0] for row in out.splitlines()[2:]] == ["| simulated", "| proxy"]
    assert re.search(r"^netem: none \(loopback\): (x|Connection reset by peer)$", err, re.MULTILINE)


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What was found until then is printed."""

    interrupting = iter([True, False, True])

    def interrupted(network: MeasuredNetwork) -> Accuracy:
        if next(interrupting):
            raise KeyboardInterrupt
        return Accuracy(network.name, {}, 1.0, None, 1.0)

    monkeypatch.setattr(accuracy, "measure", interrupted)
    for rows in (0, 1):
        assert main(["accuracy"]) == 130
        out, err = capsys.readouterr()
        assert "netem: interrupted\n" in err
        assert (len(out.splitlines()), "| simulated |" in out) == (3 * rows, bool(rows))
