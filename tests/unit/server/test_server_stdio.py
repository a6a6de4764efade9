"""server.stdio: a connection of two pipes, which end one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from carriers import Carrier
from twisted.internet import stdio as twisted_stdio
from twisted.internet.task import Clock

from smartserver.server import stdio
from smartserver.server.access import invoking_user
from smartserver.server.connections import Connections
from smartserver.server.outbox import SLICE
from smartserver.server.shell import SessionProtocol
from smartserver.wire.limits import PING_INTERVAL, STALL_TIMEOUT


def test_standard_streams_have_the_access_they_are_given(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[object] = []
    monkeypatch.setattr(twisted_stdio, "StandardIO", cast("Callable[..., object]", joined.append))
    made = stdio.serve(connections, invoking_user("joe"), "joe on standard input")
    assert joined == [made]
    assert made.session.admission == invoking_user("joe")


class Streams(Carrier):
    """Twisted's StandardIO."""

    protocol: SessionProtocol | None = None
    """Told of the loss, where it is to be."""

    @property
    def _writer(self) -> Streams:
        return self

    def connectionLost(self, reason: object) -> None:
        self.calls.append("lost")
        if self.protocol is not None:
            self.protocol.connectionLost()


def on_streams(connections: Connections) -> tuple[SessionProtocol, Streams]:
    made = stdio.StdioProtocol(connections, invoking_user("joe"), "joe on standard input")
    carrier = Streams()
    made.makeConnection(carrier)  # type: ignore[no-untyped-call]
    return made, carrier


def test_output_that_nobody_takes_does_not_keep_it(connections: Connections, clock: Clock) -> None:
    made, carrier = on_streams(connections)
    made.dataReceived(b"hpss/2\n")
    clock.advance(STALL_TIMEOUT)
    assert carrier.calls == ["resume", "lose write", "lost"]


def test_output_that_nobody_takes_leaves_nothing_behind(connections: Connections, clock: Clock) -> None:
    """Not its timer either, which would hold it for ever."""
    made, carrier = on_streams(connections)
    carrier.stuck = True
    carrier.protocol = made
    made.write(bytes(4 * SLICE))
    clock.pump([PING_INTERVAL] * int(STALL_TIMEOUT / PING_INTERVAL - 1))
    carrier.take(1)
    clock.pump([PING_INTERVAL] * int(STALL_TIMEOUT / PING_INTERVAL))
    assert carrier.calls == []
    clock.advance(PING_INTERVAL)
    assert carrier.calls == ["lost"]
    assert clock.getDelayedCalls() == []
    assert connections.open == set()
