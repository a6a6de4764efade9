"""The pytest plugin: fixtures for the networks, and a mark that fails a test that takes too many round trips.

    @pytest.mark.max_round_trips(1)
    def test_pull(network): ...

The mark counts the round trips of the test's networks since their last `take`; several networks are added up.
`handshake=False` leaves out the handshakes of connections. A marked test that used no network fails, because its limit
could never be reached. Instead of a number the mark may name a budget in the file of the ini option
`round_trip_budgets`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from netem.budget import explain, round_trips
from netem.counter import Counts
from netem.link import Link
from netem.ratchet import Budgets, BudgetsError
from netem.simulated import SimulatedNetwork
from netem.units import plural

if TYPE_CHECKING:
    from netem.packets.network import Packets
    from netem.proxy import Proxy
    from netem.watched import Watched

__all__ = [
    "netem_link",
    "netem_packet_link",
    "netem_rtt",
    "network",
    "packet_network",
    "proxy",
    "real_network",
    "round_trips",
]

MARK = "max_round_trips"
FILE = "round_trip_budgets"
MEASURED = "round trips of "
"""The start of the name of the report property in which a test stores the round trips measured for a budget."""

UNCOLLECTED = ("--ignore", "--lf", "--last-failed", "--sw", "--stepwise")
"""Options with which pytest does not collect some files. (With `-k` and `-m`, pytest collects them and deselects
tests.)"""

_NETWORKS = pytest.StashKey[list[Callable[[], Counts]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini option for the file of budgets, and the command-line option that lowers them."""
    parser.addini(FILE, "file of the most round trips each operation may take, for max_round_trips(NAME)", default="")
    parser.getgroup("netem").addoption(
        "--update-budgets", action="store_true", help="let round-trip budgets fall to what was measured, in their file"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark, and read the budgets."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(n, handshake=True): the most round trips the test may take on its networks; or the name of a budget",
    )
    if config.getoption("update_budgets") and (
        getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None)
    ):
        # With pytest-xdist, the process that lowers budgets collects no tests, so it does not know which are missing.
        raise pytest.UsageError("--update-budgets: not with pytest-xdist; run the tests in one process (-n 0)")
    if config.getoption("update_budgets") and (named := _not_all(config)):
        raise pytest.UsageError(
            f"--update-budgets: not with {named}; a test that is not collected may need more: run all of them"
        )
    name = config.getini(FILE)
    budgets = None
    if name:
        try:
            budgets = Budgets((config.inipath.parent if config.inipath else config.rootpath) / name)
        except (OSError, BudgetsError) as error:
            raise pytest.UsageError(f"{FILE}: {error}") from None
    elif config.getoption("update_budgets"):
        raise pytest.UsageError(f"--update-budgets: the ini option {FILE} names no file")
    config.pluginmanager.register(Limits(budgets, lower=config.getoption("update_budgets")), "netem limits")


def _not_all(config: pytest.Config) -> str:
    """Return the reason why only some tests are collected; empty if all are."""
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return " ".join(config.args)
    if config.inipath is not None and config.invocation_params.dir != config.inipath.parent:
        return f"the tests of {config.invocation_params.dir} alone"
    return next((arg for arg in config.invocation_params.args if arg.startswith(UNCOLLECTED)), "")


@dataclass(frozen=True)
class Limit:
    """The limit that a mark sets."""

    at_most: int
    handshake: bool
    """True if handshakes count."""
    budget: str = ""
    """The name of the budget; empty if the mark has a number."""


class Limits:
    """A plugin for one run of pytest that checks each test against its limit, and can lower budgets."""

    def __init__(self, budgets: Budgets | None, *, lower: bool) -> None:
        self._budgets = budgets
        self._lower = lower
        self._fell: dict[str, tuple[int, int]] = {}
        self._error: OSError | None = None

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Record that the test will measure the budget that its mark names."""
        mark = item.get_closest_marker(MARK)
        if self._budgets is not None and mark is not None and mark.args and isinstance(mark.args[0], str):
            self._budgets.expect(mark.args[0])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test whose mark is malformed."""
        for mark in item.iter_markers(MARK):
            self._limit(mark)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Compare the test's round trips with its limit after its body."""
        result = yield
        mark = item.get_closest_marker(MARK)
        if mark is not None:
            limit = self._limit(mark)
            rounds = _compare([counts() for counts in item.stash.get(_NETWORKS, [])], limit)
            if limit.budget:
                item.user_properties.append((MEASURED + limit.budget, rounds))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the measured round trips of a test that passed."""
        if self._budgets is not None and report.when == "call" and report.passed:
            for name, rounds in report.user_properties:
                if name.startswith(MEASURED) and isinstance(rounds, int):
                    self._budgets.measured(name.removeprefix(MEASURED), rounds)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Lower budgets if the option asks for it. If the file cannot be written, the run fails."""
        if self._budgets is None or not self._lower:
            return
        falls = self._budgets.falls()
        try:
            self._budgets.lower()
        except OSError as error:
            self._error = error
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        else:
            self._fell = falls

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the budgets that fell or may fall."""
        if self._error is not None:
            terminalreporter.write_line(f"no budget fell: {self._error}")
        for name, (budget, rounds) in self._fell.items():
            terminalreporter.write_line(f"budget of {name} fell from {budget} to {rounds}")
        if self._budgets is not None and not self._lower:
            for name, (budget, rounds) in self._budgets.falls().items():
                line = f"budget of {name} may fall from {budget} to {rounds}: pytest --update-budgets"
                terminalreporter.write_line(line)

    def _limit(self, mark: pytest.Mark) -> Limit:
        """Return the limit of a mark. A malformed mark fails its test."""
        handshake = mark.kwargs.get("handshake", True)
        if type(handshake) is bool and not set(mark.kwargs) - {"handshake"} and len(mark.args) == 1:
            (limit,) = mark.args
            if isinstance(limit, str):
                return Limit(self._budget(limit), handshake, limit)
            if type(limit) is int and limit >= 0:
                return Limit(limit, handshake)
        pytest.fail(
            f"expected @pytest.mark.{MARK}(n) or (n, handshake=False), n a number from 0 on or the name of a budget",
            pytrace=False,
        )

    def _budget(self, name: str) -> int:
        if self._budgets is None:
            pytest.fail(f"@pytest.mark.{MARK}({name!r}): the ini option {FILE} names no file", pytrace=False)
        try:
            return self._budgets[name]
        except BudgetsError as error:
            pytest.fail(str(error), pytrace=False)


def _compare(taken: list[Counts], limit: Limit) -> int:
    """Return the round trips of a test. Fail the test if they exceed its limit, or if it used no network."""
    used = [counts for counts in taken if counts.used]
    if not used:
        said = limit.budget or limit.at_most
        pytest.fail(f"@pytest.mark.{MARK}({said!r}) on a test that used no network: it cannot fail", pytrace=False)
    rounds = sum(counts.rounds if limit.handshake else counts.rounds_without_handshake for counts in used)
    if rounds > limit.at_most:
        which = (f' by the budget "{limit.budget}"' if limit.budget else "") + (
            "" if limit.handshake else ", handshakes left out"
        )
        head = f"{plural(rounds, 'round trip')}, at most {limit.at_most} allowed{which}"
        pytest.fail("\n".join([head, *(explain(counts) for counts in used)]), pytrace=False)
    return rounds


def _watch(request: pytest.FixtureRequest, counts: Callable[[], Counts]) -> None:
    request.node.stash.setdefault(_NETWORKS, []).append(counts)


@pytest.fixture
def netem_link() -> Link:
    """The link of `network`: 1000 ms and no rate. Override the fixture for another link."""
    return Link(rtt=1.0)


@pytest.fixture
def netem_rtt() -> float:
    """The seconds of a round trip on `real_network` and `packet_network`: 50 ms. Override the fixture for another
    time."""
    return 0.05


@pytest.fixture
def netem_packet_link(netem_rtt: float) -> Link:
    """The link of `packet_network`: `netem_rtt` and no rate. Override the fixture for another link."""
    return Link(rtt=netem_rtt)


@pytest.fixture
def network(request: pytest.FixtureRequest, netem_link: Link) -> SimulatedNetwork:
    """A simulated network, counted by `max_round_trips`."""
    made = SimulatedNetwork(netem_link)
    _watch(request, made.counts)
    return made


@pytest.fixture
def real_network(request: pytest.FixtureRequest, netem_rtt: float) -> Iterator[Watched]:
    """Puts the test's TCP connections to servers on this machine on a link of `netem_rtt`, and counts their round trips
    for `max_round_trips`."""
    from netem.watched import Watched  # asyncio takes 30 ms to load, which only tests on real sockets need

    with Watched(netem_rtt) as made:
        _watch(request, made.counts)
        yield made


@pytest.fixture
def packet_network(request: pytest.FixtureRequest, netem_packet_link: Link) -> Iterator[Packets]:
    """Two network namespaces joined by a link of real TCP, counted by `max_round_trips`. If the system does not permit
    namespaces, the test is skipped with the reason; with REQUIRE_ALL=1 in the environment it fails."""
    from netem.packets.errors import Unavailable  # as above
    from netem.packets.network import Packets

    made = Packets(netem_packet_link)
    try:
        made.start()
    except Unavailable as error:
        if os.environ.get("REQUIRE_ALL") == "1":
            pytest.fail(f"REQUIRE_ALL=1, but {error}", pytrace=False)
        pytest.skip(str(error))
    try:
        _watch(request, made.counts)
        yield made
        made.check()
    finally:
        made.close()


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[Callable[..., Proxy]]:
    """A factory of running proxies, counted by `max_round_trips`: `proxy(upstream=(host, port), rtt=0.05)`. They are
    closed with the test."""
    from netem.proxy import Proxy  # as above

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
