"""netem.meter, netem.timed_command: round trips as a slope, what is not judged, and the command that is timed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from simulated_servers import Echo

from netem import timed_command
from netem.link import Link
from netem.meter import Slope, apart, doubt, fit, slope, tilt
from netem.simulated import SimulatedNetwork
from netem.timed_command import KEPT, NOT_FOUND, NOT_RUNNABLE, timed
from netem.timekeeping import percentile_99


def test_the_residual_shows_what_is_no_line() -> None:
    assert slope(lambda rtt: rtt**2).residual > 0.05
    noisy = fit([(0, 1.0), (1, 2.1), (2, 2.9), (3, 4.0)])
    assert noisy.rounds == pytest.approx(0.98)
    assert noisy.residual == pytest.approx(0.09)


def test_it_agrees_with_the_simulator_and_timers_go_to_the_intercept() -> None:
    class Slow(Echo):
        def data_received(self, data: bytes) -> None:
            net.clock.call_later(0.25, lambda: self.transport.write(data))

    net = SimulatedNetwork(Link(0))

    def run(rtt: float) -> float:
        nonlocal net
        net = SimulatedNetwork(Link(rtt))
        stream = net.connect(Slow)
        for _ in range(3):
            stream.send(b"x")
            stream.read(1)
        return net.clock.now

    found = slope(run)
    assert found.rounds == pytest.approx(4)
    assert found.intercept == pytest.approx(0.75)


def test_too_little_to_see_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 3 or more"):
        slope(lambda rtt: rtt, rtts=(0.1, 0.2, 0.2))
    with pytest.raises(ValueError, match="expected 1 or more"):
        slope(lambda rtt: rtt, repeat=0)
    with pytest.raises(ValueError, match="the same RTT"):
        fit([(1, 1), (1, 2)])


def line(trips: float, rtts: Sequence[float] = (0.2, 0.6, 1.0), repeat: int = 1) -> Slope:
    return fit([(rtt, trips * rtt) for rtt in rtts] * repeat)


def test_what_is_late_at_one_end_of_the_rtts_tilts_the_line() -> None:
    """The line tilts as far as a line through runs that were late says it, and no further when the others were late
    too."""
    late = [0.0, 0.0, 0.008]
    tilted = fit([(x, y + seconds) for (x, y), seconds in zip(line(2).points, late, strict=True)])
    assert tilt(line(2), late) == pytest.approx(tilted.rounds - 2) == pytest.approx(0.01)
    assert tilt(line(2), late[::-1]) == pytest.approx(0.01)
    assert tilt(line(2), [0.008] * 3) == pytest.approx(0.01)
    assert tilt(line(2, repeat=3), [0.008] * 9) == pytest.approx(0.01)
    assert tilt(line(2, (0.02, 0.06, 0.1)), [0.008] * 3) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("trips", "late", "why"),
    [
        (2, 0.0, ""),
        (2, 0.08, ""),
        (2, 0.0801, "late timers may have moved the slope by 0.10 round trips, where 0.10 are the most: this machine"),
        (2, 0.2, "late timers may have moved the slope by 0.25 round trips"),
        (20, 0.2, ""),
        (20, 0.4, "late timers may have moved the slope by 0.50 round trips, where 0.40 are the most"),
    ],
)
def test_lateness_that_could_pass_for_round_trips_is_not_judged(trips: float, late: float, why: str) -> None:
    assert doubt(line(trips), [late] * 3).startswith(why)
    assert bool(doubt(line(trips), [late] * 3)) is bool(why)


@pytest.mark.parametrize(
    ("off", "why"),
    [
        (0.149, ""),
        (0.156, "a run lies 104 ms off the line, where 100 ms are the most (10% of the greatest RTT): the machine"),
    ],
)
def test_what_is_no_line_is_not_judged(off: float, why: str) -> None:
    """The middle one of three runs, one at each RTT, is off: by a third of it the line moves."""
    found = fit([(0.2, 0.4), (0.6, 1.2 + off), (1.0, 2.0)])
    assert found.residual == pytest.approx(off * 2 / 3)
    assert doubt(found, [0.0] * 3).startswith(why)
    assert bool(doubt(found, [0.0] * 3)) is bool(why)
    assert doubt(found, [1.0] * 3).startswith("late timers")


@pytest.mark.parametrize(
    ("trips", "counted", "why"),
    [
        (2, [2, 2, 2], ""),
        (1.5, [2, 2, 2], ""),
        (3, [2, 2, 3], ""),
        (60, [61, 61, 61], ""),
        (
            2,
            [5, 4, 5],
            "the slope is 2.00 round trips where the proxy counted 4: some of what came one after the other",
        ),
        (5.1, [2, 2, 2], "the slope is 5.10 round trips where the proxy counted 2: there was waiting"),
        (0, [1, 1, 1], "the slope is 0.00 round trips where the proxy counted 1: "),
    ],
)
def test_a_count_that_is_a_whole_round_trip_away_is_remarked(trips: float, counted: list[int], why: str) -> None:
    assert apart(line(trips), counted).startswith(why)
    assert bool(apart(line(trips), counted)) is bool(why)


@pytest.mark.parametrize(("count", "p99"), [(0, 0), (1, 1), (3, 3), (99, 99), (100, 99), (101, 100), (1000, 990)])
def test_the_99th_percentile_is_by_nearest_rank(count: int, p99: int) -> None:
    assert percentile_99(range(count, 0, -1)) == p99


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_it_has_no_input_and_its_output_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import sys; print('out'); sys.exit(len(sys.stdin.read()))"
    assert timed(python(program)).status == 0
    assert capfd.readouterr().out == ""


def test_a_signal_is_128_and_its_number_and_the_last_of_a_long_complaint_is_kept() -> None:
    assert timed(python("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")).status == 128 + signal.SIGTERM
    ended = timed(python(f"import sys; sys.stderr.write('a' * {KEPT} + 'the end')"))
    assert len(ended.stderr) == KEPT
    assert ended.stderr.endswith("aathe end")


def test_a_command_that_cannot_be_begun(tmp_path: Path) -> None:
    missing, plain = str(tmp_path / "missing"), tmp_path / "plain"
    plain.write_text("no program")
    assert timed([missing]).status == NOT_FOUND
    assert timed([missing]).stderr == f"{missing}: No such file or directory\n"
    assert timed([str(plain)]).status == NOT_RUNNABLE


def test_a_child_that_outlives_it_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It holds the stdout and stderr of the command, and waits for what this test writes afterwards."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert timed(["sh", "-c", 'cat "$0" & true', str(pipe)]).status == 0
    pipe.write_text("it still reads")


@pytest.mark.parametrize(("deaf", "times"), [(False, 1), (True, 1), (True, 2)])
def test_when_the_wait_is_interrupted_nothing_is_left(
    deaf: bool, times: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole group is stopped, and killed when it does not listen, or we are not to wait until it has."""
    waits = 0
    started: list[subprocess.Popen[bytes]] = []
    wait = subprocess.Popen.wait
    ready = tmp_path / "ready"
    os.mkfifo(ready)

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        nonlocal waits
        waits += 1
        if not started:
            started.append(process)
            ready.read_text()  # Until it has said how it takes signals.
        if waits <= times:
            raise KeyboardInterrupt
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    monkeypatch.setattr(timed_command, "PATIENCE", 0.2 if deaf else 30.0)
    ears = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else ""
    program = f"import signal; {ears}; open({str(ready)!r}, 'w').close(); signal.pause()"
    with pytest.raises(KeyboardInterrupt):
        timed(python(program.replace("; ;", ";")))
    (process,) = started
    status = process.returncode
    process.kill()
    assert status == -(signal.SIGKILL if deaf else signal.SIGTERM)
