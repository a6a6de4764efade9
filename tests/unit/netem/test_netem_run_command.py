"""netem.cli.run, with netem.cli.words: its link and what it prints. The command itself is tried in tests/packets."""

from __future__ import annotations

import io
import signal
from collections.abc import Sequence
from typing import Any, Self

import pytest

from netem.cli import run
from netem.cli.commands import parser
from netem.cli.main import main
from netem.counter import Counts
from netem.effects import Delay, Jitter, Loss
from netem.link import Link
from netem.run import RunResult

COUNTS = Counts(
    connections=1, bytes_up=1100, bytes_down=240, depth=4, depth_without_handshake=2, flights_up=1, flights_down=1,
    seconds=3.0, packets_up=9, packets_down=8,
)  # fmt: skip
ARGUMENTS = ["run", "--rtt", "600ms", "--server", "x"]


def test_the_link_of_the_arguments() -> None:
    words = [*ARGUMENTS, "--rate", "1mbit", "--loss", "1%", "--up", "delay:5ms", "--down", "jitter:1ms", "--seed", "5"]
    link = run.make_link(parser().parse_args(words))
    assert (link.rtt, link.rate, link.seed) == (0.6, 125_000, 5)
    assert (link.up, link.down) == ([Loss(0.01), Delay(0.005)], [Loss(0.01), Jitter(0.001)])


@pytest.mark.parametrize(
    ("counts", "link", "line"),
    [
        (
            COUNTS,
            Link(0.6),
            "netem: 2 round trips (1 handshake), 1 connection, 1.1 KB up, 240 B down, 3.000 s (5.0 RTT), "
            "9 packets up, 8 down\n",
        ),
        (
            COUNTS,
            Link(0, up=[Delay(0.05)], down=[Delay(0.15)]),
            "netem: 2 round trips (1 handshake), 1 connection, 1.1 KB up, 240 B down, 3.000 s (15.0 RTT), "
            "9 packets up, 8 down\n",
        ),
        (
            Counts(dropped=1, repeated=2),
            Link(0),
            "netem: 0 round trips (0 handshakes), 0 connections, 0 B up, 0 B down, 0.000 s, "
            "0 packets up, 0 down, 1 dropped, 2 repeated\n",
        ),
    ],
)
def test_a_line(counts: Counts, link: Link, line: str) -> None:
    out = io.StringIO()
    run.report(RunResult(0, 1.0, counts), link, as_json=False, out=out)
    assert out.getvalue() == line


def test_a_machine_too_busy_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    late = RunResult(0, 1.0, COUNTS, 0.05, 0.013)
    run.report(late, Link(0.6), as_json=False)
    assert "one packet in a hundred came 13.0 ms late: the machine is too busy" in capsys.readouterr().err
    for link in (Link(6), Link(0.1, up=[Delay(5.9)])):
        run.report(late, link, as_json=False)
        assert "late" not in capsys.readouterr().err


def test_packets_that_are_not_tcp_are_said_not_to_be_counted(capsys: pytest.CaptureFixture[str]) -> None:
    run.report(RunResult(0, 1.0, Counts(not_tcp=10)), Link(0.6), as_json=True)
    assert "netem: 10 packets passed that are not TCP" in capsys.readouterr().err


def test_settings_of_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*ARGUMENTS, "--set", "net.ipv4.tcp_rmem=4096 131072 33554432", "--set", "net.ipv4.tcp_fastopen=3"]
    assert parser().parse_args(words).settings == [
        ("net.ipv4.tcp_rmem", "4096 131072 33554432"), ("net.ipv4.tcp_fastopen", "3"),
    ]  # fmt: skip
    for wrong in ("net.ipv4.tcp_fastopen", "=3", "../kernel=3", "a/b=3", "a..b=3"):
        with pytest.raises(SystemExit):
            parser().parse_args([*ARGUMENTS, "--set", wrong])
        assert f"'{wrong}': expected NAME=VALUE" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parser().parse_args([*ARGUMENTS, "--set", "vm.swappiness=60"])
    assert "'vm.swappiness' is no setting of the network" in capsys.readouterr().err


class HungUp:
    """Runs nothing: the terminal ends when it begins."""

    running = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        signal.raise_signal(signal.SIGHUP)
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, command: Sequence[str], *, stdout: int) -> RunResult:
        return RunResult(7, 2.0, COUNTS)


@pytest.mark.parametrize("ignored", [True, False])
def test_the_end_of_the_terminal_ends_a_run_unless_it_was_ignored(
    ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Crossing", HungUp)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        assert main([*ARGUMENTS, "--", "true"]) == (7 if ignored else 128 + signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
