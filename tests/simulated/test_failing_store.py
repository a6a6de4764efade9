"""server.work over a store that fails at each call in turn: what is answered is true, and the repository opens."""

from __future__ import annotations

import pytest
from builders import MAIN, History
from faulty_transport import FaultMode, FaultyTransport
from history_sources import NEW, HistorySource
from memory_transport import MemoryTransport
from simulated_joint import Joint

from netem.link import Link
from netem.simulated import SimulatedNetwork
from smartserver.client.push import PushRequest
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.errors import OutcomeUnknown
from smartserver.store.repository import PackRepository
from transports.errors import TransportError


@pytest.mark.long
@pytest.mark.parametrize("mode", ["fail", "tear", "lose"])
def test_each_call_of_a_push_fails_in_turn(mode: FaultMode) -> None:
    history = History()
    line = history.line(6)
    number = unknown = 0
    while True:
        number += 1
        storage = MemoryTransport()
        joint = Joint(SimulatedNetwork(Link(0.1)), storage)
        source = HistorySource(history)
        joint.remote().push(PushRequest([RefUpdate(MAIN, line[3])], source, NEW))
        faulty = FaultyTransport(storage, fail_at=number, mode=mode)
        broken = Joint(SimulatedNetwork(Link(0.1)), faulty)
        done = refused = False
        try:
            (pushed,) = broken.remote().push(PushRequest([RefUpdate(MAIN, line[5])], source, NEW)).refs
            done = pushed.outcome is Outcome.DONE
        except OutcomeUnknown:
            unknown += 1
        except TransportError:
            refused = True
        if number > faulty.calls:
            assert done
            break
        repository = PackRepository(storage, "project")
        tip = joint.refs()[MAIN]
        assert repository.verify().problems == (), f"call {number}: {faulty.log[number - 1]}"
        assert tip in (line[3], line[5])
        assert not done or tip == line[5]
        assert not refused or tip == line[3]
        # And the next push works.
        assert joint.remote().push(PushRequest([RefUpdate(MAIN, line[5])], source, NEW)).refs[0].outcome in Outcome
        assert repository.verify().problems == ()
    assert unknown, "no call failed after the record was published"
