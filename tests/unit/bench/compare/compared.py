"""A comparison as if it had been made: two tools on two links, at straight lines."""

from __future__ import annotations

from bench.compare import Comparison
from bench.links import PacketLine, ProxyLine
from bench.peers.base import CLONE, NEW_REPOSITORY, PUSH_ONE
from bench.peers.git import Git
from bench.peers.ours import Ours
from bench.report import Runs

from smartserver.cli.servers import LinkCost

TRIPS = {
    ("hpss", CLONE): 2, ("git", CLONE): 4, ("hpss", PUSH_ONE): 2, ("git", PUSH_ONE): 3, ("hpss", NEW_REPOSITORY): 2,
}  # fmt: skip
MORE = 2
"""Round trips that packets add."""


def comparison(*rtts: float) -> Comparison:
    found = Comparison(rtts, 1, [Ours, Git], [ProxyLine, PacketLine])
    for network, more in (("proxy", 0), ("packets", MORE)):
        for (peer, operation), trips in TRIPS.items():
            costs = [(rtt, LinkCost(trips, 0.5 + (trips + more) * rtt, 0, 0)) for rtt in rtts]
            found.costs[network, peer, operation] = Runs(costs)
        found.late[network] = 0.004
    found.versions = {"hpss": "git version 9", "git": "git version 9"}
    found.notes = ["hg http:// is not here: hg is not installed"]
    found.circumstances = "2 cores"
    found.loads = [0.75, 0.25, 1.5]
    return found
