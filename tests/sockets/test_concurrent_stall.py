"""A client that stops reading holds up nobody else, and costs no memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import MAIN, History
from pushing import Source, connected, count_segments, push
from serving import Server
from test_interrupt_server import big_history

from smartserver.client.updates import Outcome

pytestmark = pytest.mark.sockets

PUSHES = 20
WARM = 5
"""Pushes after which memory is looked at first: what is loaded at first use is loaded then."""

FLAT = 8 << 20
"""Bytes of growth that are no growth: what an allocator keeps."""


def test_a_stalled_clone_delays_no_push(tmp_path: Path) -> None:
    big, tip = big_history()
    small = History()
    with Server(tmp_path) as server, connected(server.port) as stalled:
        with connected(server.port) as remote:
            assert push(remote, Source(big), MAIN, tip).outcome is Outcome.DONE
        pulled = stalled.pull()  # And no more is read: the rest waits in the server.
        used: list[int] = []
        for number, revision in enumerate(small.line(PUSHES)):
            with connected(server.port) as remote:
                assert push(remote, Source(small), b"refs/heads/small", revision).outcome is Outcome.DONE
            if number >= WARM:
                used.append(server.memory())
        assert max(used) - used[0] < FLAT, used
        assert count_segments(pulled.body) == pulled.result.segments == len(big.parents)
