"""server.same_process: a client and a server joined in one thread, bodies of any size both ways."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN, History
from simulated_joint import HistorySource

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate
from smartserver.errors import NoSuchRepository
from smartserver.server import same_process
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from transports.memory import MemoryTransport


@pytest.fixture
def remote() -> RemoteRepository:
    site = Site(MemoryTransport())
    return RemoteRepository(
        Client(lambda: SameProcess(site, invoking_user("tester"))), "project", Knowledge(None, "project")
    )


def test_it_is_as_a_server(remote: RemoteRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_process, "ENOUGH", 1)
    with pytest.raises(NoSuchRepository):
        remote.learn_refs()
    history = History()
    line = history.line(400)
    done = remote.push([RefUpdate(MAIN, line[-1])], HistorySource(history), NewRepository(GIT, KINDS))
    assert [each.outcome for each in done] == [Outcome.DONE]
    pulled = remote.pull()
    assert sum(map(len, pulled.body)) == pulled.result.size
    assert pulled.result.segments == 400


def test_closing_it_twice_is_harmless() -> None:
    medium = SameProcess(Site(MemoryTransport()), invoking_user("tester"))
    assert medium.poll(read=True, write=True) == (False, True)
    medium.close()
    medium.close()
    assert medium.poll(read=True, write=True) == (True, True)
    assert medium.read(10) == b""
