"""server.same_process, and the simulated medium: they keep the promises of other media."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from medium_suite import BLOCK, TEXT, MediumSuite, Peer
from memory_transport import MemoryTransport
from simulated_joint import StreamMedium

from netem.link import Link
from netem.simulated import ServerTransport, SimulatedNetwork
from smartserver.client.medium import ConnectionLost, Medium
from smartserver.server import same_process
from smartserver.server.access import Access, invoking_user
from smartserver.server.executor import Executor
from smartserver.server.same_process import SameProcess
from smartserver.server.session import Shell
from smartserver.server.site import Site


def test_nothing_follows_before_what_was_answered_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    session = SimpleNamespace(pause_writing=lambda: told.append("pause"), resume_writing=lambda: told.append("resume"))
    monkeypatch.setattr(same_process, "Session", lambda *_: session)
    medium = SameProcess(Site(MemoryTransport()), invoking_user("tester"))
    medium.write(b"abc")
    assert medium.read(2) == b"ab"
    assert told == ["pause"]
    assert medium.read(2) == b"c"
    assert told == ["pause", "resume"]


class _Player:
    """A peer in the place of a session, or of the network's protocol."""

    def __init__(self, peer: Peer, carrier: Shell | ServerTransport, break_off: Callable[[], object]) -> None:
        self._peer, self._carrier, self._break_off = peer, carrier, break_off

    def begin(self) -> None:
        if self._peer is Peer.SAYS_TEXT:
            self._carrier.write(TEXT)
            self._carrier.close()

    def data_received(self, data: bytes) -> None:
        if self._peer in (Peer.ECHOES, Peer.BREAKS_OFF):
            self._carrier.write(data)
        if self._peer is Peer.BREAKS_OFF:
            self._break_off()

    def do_nothing(self, *_: object) -> None:
        pass

    pause_writing = resume_writing = eof_received = connection_lost = do_nothing


class TestSameProcess(MediumSuite):
    """Nothing runs beside the client: two promises that speak of time are others here."""

    @pytest.fixture
    def connect(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Peer], Medium]:
        def make(peer: Peer) -> Medium:
            players: list[_Player] = []

            def session(site: Site, access: Access, shell: Shell, executor: Executor, name: str) -> _Player:
                players.append(_Player(peer, shell, shell.close))
                return players[0]

            monkeypatch.setattr(same_process, "Session", session)
            medium = SameProcess(Site(MemoryTransport()), invoking_user("tester"))
            players[0].begin()
            return medium

        return make

    def test_nothing_is_there_to_read_before_anything_comes(self, connect: Callable[[Peer], Medium]) -> None:
        """Nothing comes while one waits: who would wait for that alone is told."""
        with contextlib.closing(connect(Peer.ECHOES)) as medium:
            assert medium.poll(read=True, write=True, timeout=30) == (False, True)
            assert medium.poll(read=False, write=False, timeout=0) == (False, False)
            assert medium.poll(read=True, write=False, timeout=30) == (True, False)
            with pytest.raises(ConnectionLost, match="answered all"):
                medium.read(1)

    def test_only_what_fits_is_taken(self, connect: Callable[[Peer], Medium]) -> None:
        """Written bytes are taken by the peer that is to read them: they lie nowhere between."""
        with contextlib.closing(connect(Peer.TAKES_NOTHING)) as medium:
            assert medium.write_some(memoryview(bytes(BLOCK))) == BLOCK
            assert medium.poll(read=True, write=True, timeout=0) == (False, True)


# -- the simulated medium, so that what is shown on it holds

RTT = 1.0


class TestSimulated(MediumSuite):
    @pytest.fixture
    def connect(self) -> Callable[[Peer], Medium]:
        def make(peer: Peer) -> Medium:
            # Who reads nothing looks from here like a link on which nothing moves.
            network = SimulatedNetwork(Link(RTT, rate=1.0) if peer is Peer.TAKES_NOTHING else Link(RTT))

            def serve(transport: ServerTransport) -> _Player:
                # At once what was sent would be lost too.
                player = _Player(peer, transport, lambda: network.clock.call_later(RTT, transport.abort))
                player.begin()
                return player

            return StreamMedium(network.connect(serve))

        return make
