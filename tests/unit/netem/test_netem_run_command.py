"""netem.cli.run, with netem.cli.words: its link and what it prints. The command itself is tried in tests/packets."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from netem.cli import run
from netem.cli.commands import parser
from netem.cli.main import main
from netem.counter import Counts, Message
from netem.effects import Delay, Jitter, Loss
from netem.lateness import Lateness
from netem.link import Link
from netem.run import RunError, RunResult

COUNTS = Counts(
    connections=1, bytes_up=1100, bytes_down=240, depth=4, depth_without_handshake=2, flights_up=1, flights_down=1,
    seconds=3.0, packets_up=9, packets_down=8,
)  # fmt: skip
ARGUMENTS = ["run", "--rtt", "600ms", "--server", "x"]


def test_the_link_of_the_arguments() -> None:
    link = run.make_link(
        parser().parse_args([*ARGUMENTS, "--rate", "1mbit", "--up", "delay:5ms", "--down", "jitter:1ms"])
    )
    assert (link.rtt, link.rate, list(link.up)) == (0.6, 125_000, [Delay(0.005)])
    assert [type(effect) for effect in link.down] == [Jitter]


def test_loss_both_ways_and_a_seed() -> None:
    words = [*ARGUMENTS, "--loss", "1%", "--up", "loss:2%", "--seed", "5"]
    link = run.make_link(parser().parse_args(words))
    assert (link.up, link.down, link.seed) == ([Loss(0.01), Loss(0.02)], [Loss(0.01)], 5)


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
            Link(0.2, down=[Delay(0.3)]),
            "netem: 2 round trips (1 handshake), 1 connection, 1.1 KB up, 240 B down, 3.000 s (6.0 RTT), "
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
    run.report(RunResult(0, 1.0, counts, Lateness()), link, "veth", as_json=False, out=out)
    assert out.getvalue() == line


def test_json() -> None:
    out = io.StringIO()
    run.report(RunResult(3, 3.5, COUNTS, Lateness()), Link(0.6), "veth", as_json=True, out=out)
    assert json.loads(out.getvalue()) == {
        "rounds": 2, "handshake_rounds": 1, "connections": 1, "bytes_up": 1100, "bytes_down": 240, "flights_up": 1,
        "flights_down": 1, "seconds": 3.0, "packets_up": 9, "packets_down": 8, "dropped": 0, "repeated": 0,
        "not_tcp": 0,
        "wall_seconds": 3.5, "late_seconds": 0.0, "least_late_seconds": 0.0, "status": 3, "backend": "veth",
    }  # fmt: skip


def test_a_machine_too_busy_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    late = RunResult(0, 1.0, COUNTS, Lateness(0.001, 0.05, 0.06), Lateness(0.001, 0.013, 0.02))
    run.report(late, Link(0.6), "veth", as_json=False)
    assert "one packet in a hundred came 13.0 ms late: the machine is too busy" in capsys.readouterr().err
    for link in (Link(6), Link(0.1, up=[Delay(5.9)])):
        run.report(late, link, "veth", as_json=False)
        assert "late" not in capsys.readouterr().err


def test_one_that_may_have_been_is_not_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    late = RunResult(0, 1.0, COUNTS, Lateness(0.001, 0.087, 0.09), Lateness(0.001, 0.002, 0.003))
    run.report(late, Link(0.6), "veth", as_json=False)
    said = capsys.readouterr().err
    assert "one packet in a hundred may have come 87.0 ms late: it was let out on time" in said
    assert "too busy" not in said
    for link in (Link(6), Link(0.1, up=[Delay(5.9)])):
        run.report(late, link, "veth", as_json=False)
        assert "late" not in capsys.readouterr().err


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


class Crossing:
    """Runs nothing: what a client did is known, or why it could not be run."""

    outcome: RunResult | Exception
    network = SimpleNamespace(backend="veth")
    running = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, command: Sequence[str], *, stdout: int) -> RunResult:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
def crossing(monkeypatch: pytest.MonkeyPatch) -> type[Crossing]:
    monkeypatch.setattr(run, "Crossing", Crossing)
    return Crossing


def test_the_picture_has_a_line_for_each_round_trip_with_its_extra_delays(
    crossing: type[Crossing], tmp_path: Path
) -> None:
    message = Message(1, True, 5, 1, 1, 0.0, 1.9)
    crossing.outcome = RunResult(0, 2.0, Counts(connections=1, messages=(message,)), Lateness())
    picture = tmp_path / "it.svg"
    words = ["--rtt", "200ms", "--down", "delay:300ms", "--server", "x", "--svg", str(picture), "--", "true"]
    assert main(["run", *words]) == 0
    assert picture.read_text().count(" RTT</text>") == 5  # 0 to 4 round trips of 500 ms


def test_a_run_that_failed_leaves_no_picture(crossing: type[Crossing], tmp_path: Path) -> None:
    crossing.outcome = RunError("no-such-client: No such file or directory")
    new, old, led, loose = (tmp_path / f"{name}.svg" for name in ("new", "old", "led", "loose"))
    old.write_text("another one")
    led.symlink_to(old)
    loose.symlink_to(new)
    for picture in (new, old, led, loose):
        assert main([*ARGUMENTS, "--svg", str(picture), "--", "no-such-client"]) == 125
    assert sorted(tmp_path.iterdir()) == [led, loose, old]
    assert old.read_text() == "another one"
    assert main([*ARGUMENTS, "--svg", str(tmp_path / "no" / "such.svg"), "--", "true"]) == 125


def test_a_picture_is_drawn_through_a_link_and_over_an_old_one_or_into_nothing(
    crossing: type[Crossing], tmp_path: Path
) -> None:
    crossing.outcome = RunResult(0, 2.0, COUNTS, Lateness())
    new, old, loose = (tmp_path / f"{name}.svg" for name in ("new", "old", "loose"))
    old.write_text("another one" * 1000)
    loose.symlink_to(new)
    for picture in (old, loose, Path("/dev/null")):
        assert main([*ARGUMENTS, "--svg", str(picture), "--", "true"]) == 0
    assert new.read_text() == old.read_text()
    assert new.read_text().endswith("</svg>\n")


class Closing(Crossing):
    """Its end takes long enough for a signal to come."""

    def __exit__(self, *_: object) -> None:
        signal.raise_signal(signal.SIGTERM)


def interrupted(*_: object) -> str:
    signal.raise_signal(signal.SIGTERM)
    raise AssertionError


@pytest.mark.parametrize(("name", "by"), [("svg", interrupted), ("Crossing", Closing)])
def test_a_run_that_is_interrupted_at_its_end_leaves_the_old_picture(
    crossing: type[Crossing], name: str, by: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(Crossing, "outcome", RunResult(0, 2.0, COUNTS, Lateness()), raising=False)
    monkeypatch.setattr(run, name, by)
    old = tmp_path / "old.svg"
    old.write_text("another one")
    assert main([*ARGUMENTS, "--svg", str(old), "--", "true"]) == 128 + signal.SIGTERM
    assert old.read_text() == "another one"
    assert capsys.readouterr().err.endswith("netem: interrupted\n")


@pytest.mark.parametrize("ignored", [True, False])
def test_the_end_of_the_terminal_ends_a_run_unless_it_was_ignored(
    ignored: bool, crossing: type[Crossing], monkeypatch: pytest.MonkeyPatch
) -> None:
    class HungUp(Crossing):
        def __enter__(self) -> Self:
            signal.raise_signal(signal.SIGHUP)
            return self

    HungUp.outcome = RunResult(7, 2.0, COUNTS, Lateness())
    monkeypatch.setattr(run, "Crossing", HungUp)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        assert main([*ARGUMENTS, "--", "true"]) == (7 if ignored else 128 + signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
