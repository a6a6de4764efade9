from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from netem import pytest_plugin

pytest_plugins = ["pytester"]

PREAMBLE = """
import pytest
from netem.link import Link

class Echo:
    def __init__(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)
    def eof_received(self):
        self.transport.close()
    def connection_lost(self, error):
        pass

def ping(stream, times=1):
    for _ in range(times):
        stream.send(b"ping")
        assert stream.read(9) == b"ping"
"""


def run(pytester: pytest.Pytester, body: str) -> pytest.RunResult:
    pytester.makepyfile(PREAMBLE + body)
    installed = any(point.value == pytest_plugin.__name__ for point in entry_points(group="pytest11"))
    arguments = [] if installed else ["-p", pytest_plugin.__name__]
    return pytester.runpytest_inprocess("--strict-markers", "-p", "no:cacheprovider", *arguments)


def test_within_the_limit(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        """
@pytest.mark.max_round_trips(2)
def test_cold(network):
    ping(network.connect(Echo))

@pytest.mark.max_round_trips(1)
def test_warm(network):
    ping(network.connect(Echo, handshake=False))

@pytest.mark.max_round_trips(1, handshake=False)
def test_handshake_left_out(network):
    ping(network.connect(Echo))

@pytest.mark.max_round_trips(1)
def test_after_take(network):
    stream = network.connect(Echo)
    ping(stream, 5)
    network.take()
    ping(stream)

def test_without_mark(network):
    ping(network.connect(Echo), 50)
""",
    ).assert_outcomes(passed=5)


def test_beyond_the_limit_the_messages_are_shown(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_round_trips(2)
def test_two(network):
    ping(network.connect(Echo), 2)
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "3 round trips, at most 2 allowed",
            "3 round trips (1 of them opening connections), 1 connection, 8 bytes up, 8 bytes down, waited 3 RTT",
            "  connection 1  -> server  depth 3  sent 0.000 s, delivered 0.500 s: 4 bytes",
            "  connection 1  client <-  depth 4  sent 0.500 s, delivered 1.000 s: 4 bytes",
            "  connection 1  -> server  depth 5  sent 1.000 s, delivered 1.500 s: 4 bytes",
            "  connection 1  client <-  depth 6  sent 1.500 s, delivered 2.000 s: 4 bytes",
        ]
    )
    result.stdout.no_fnmatch_line("*During handling*")


def test_a_marked_test_that_used_no_network_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_round_trips(3)
def test_no_fixture():
    pass

@pytest.mark.max_round_trips(3)
def test_unused(network):
    pass

@pytest.mark.max_round_trips(3)
def test_all_taken(network):
    ping(network.connect(Echo))
    network.take()
""",
    )
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["@pytest.mark.max_round_trips(3) on a test that used no network: it cannot fail"])


@pytest.mark.parametrize("arguments", ["", "-1", "1.5", "True", "1, 2", "1, handshakes=False", "1, handshake=0", "n=1"])
def test_a_mark_that_says_nothing_is_an_error(pytester: pytest.Pytester, arguments: str) -> None:
    result = run(
        pytester,
        f"""
@pytest.mark.max_round_trips({arguments})
def test_it(network):
    ping(network.connect(Echo))
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["expected @pytest.mark.max_round_trips(n) or (n, handshake=False)*"])


def test_a_failing_test_fails_for_its_own_reason(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_round_trips(0)
def test_it(network):
    ping(network.connect(Echo), 9)
    assert "this" == "that"
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*round trips, at most*")


def test_another_link(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        """
@pytest.fixture
def netem_link():
    return Link(rtt=0.1, rate=1000)

@pytest.mark.max_round_trips(2)
def test_it(network):
    ping(network.connect(Echo))
    assert network.clock.now == pytest.approx(0.208)
""",
    ).assert_outcomes(passed=1)
