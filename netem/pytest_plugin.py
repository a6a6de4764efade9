"""pytest: fixtures for both networks, and a mark that fails a test which takes too many round trips.

    @pytest.mark.max_round_trips(1)
    def test_pull(network): ...

The mark counts what the test's networks saw since their last `take`; several networks are added up. `handshake=False`
leaves out what opening connections cost. A marked test that used no network fails: its limit could never be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from netem.budget import explain, round_trips
from netem.counter import Counts
from netem.link import Link
from netem.simulated import SimulatedNetwork
from netem.units import plural

if TYPE_CHECKING:
    from netem.proxy import Proxy

__all__ = ["netem_link", "network", "proxy", "round_trips"]

MARK = "max_round_trips"

_NETWORKS = pytest.StashKey[list[Callable[[], Counts]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line(
        "markers", f"{MARK}(n, handshake=True): the most round trips the test may take on `network` and `proxy`"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a mark that says nothing."""
    for mark in item.iter_markers(MARK):
        if _limit(mark) is None:
            pytest.fail(f"expected @pytest.mark.{MARK}(n) or (n, handshake=False), n a number from 0 on", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """After the test's body compare its networks with its mark."""
    result = yield
    mark = item.get_closest_marker(MARK)
    limit = None if mark is None else _limit(mark)
    if limit is not None:
        why = _exceeded([counts() for counts in item.stash.get(_NETWORKS, [])], *limit)
        if why:
            pytest.fail(why, pytrace=False)
    return result


def _limit(mark: pytest.Mark) -> tuple[int, bool] | None:
    """(at most, whether handshakes count); None when the mark is not written so."""
    handshake = mark.kwargs.get("handshake", True)
    if len(mark.args) != 1 or set(mark.kwargs) - {"handshake"} or type(handshake) is not bool:
        return None
    (at_most,) = mark.args
    return (at_most, handshake) if type(at_most) is int and at_most >= 0 else None


def _exceeded(taken: list[Counts], at_most: int, handshake: bool) -> str:
    """Why the test fails; nothing when it does not."""
    used = [counts for counts in taken if counts.used]
    if not used:
        return f"@pytest.mark.{MARK}({at_most}) on a test that used no network: it cannot fail"
    rounds = sum(counts.rounds if handshake else counts.rounds_without_handshake for counts in used)
    if rounds <= at_most:
        return ""
    which = "" if handshake else ", handshakes left out"
    head = f"{plural(rounds, 'round trip')}, at most {at_most} allowed{which}"
    return "\n".join([head, *(explain(counts) for counts in used)])


def _watch(request: pytest.FixtureRequest, counts: Callable[[], Counts]) -> None:
    request.node.stash.setdefault(_NETWORKS, []).append(counts)


@pytest.fixture
def netem_link() -> Link:
    """The link `network` is made of: 1000 ms, no rate. Override it for another."""
    return Link(rtt=1.0)


@pytest.fixture
def network(request: pytest.FixtureRequest, netem_link: Link) -> SimulatedNetwork:
    """A simulated network, counted."""
    made = SimulatedNetwork(netem_link)
    _watch(request, made.counts)
    return made


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[Callable[..., Proxy]]:
    """A factory of running proxies, counted: `proxy(upstream=(host, port), rtt=0.05)`; they end with the test."""
    from netem.proxy import Proxy  # asyncio takes 30 ms to load, which only tests with a proxy need

    made: list[Proxy] = []

    def make(upstream: tuple[str, int], rtt: float = 0.05, **options: Any) -> Proxy:
        one = Proxy(rtt, upstream, **options)
        one.start()
        made.append(one)
        _watch(request, one.counts)
        return one

    yield make
    for one in made:
        one.close()
    for one in made:
        one.check()
