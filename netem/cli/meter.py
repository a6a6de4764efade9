"""`netem meter`: measure the round trips of any command from outside, by its time over links of different lengths."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from netem.cli.options import Commands, add_command, add_json, add_listen, add_to, argument
from netem.cli.signals import INTERRUPTED, interruptible
from netem.cli.words import SIDE_BY_SIDE, cannot, complain, line, misses, numbers, reason, tell
from netem.counter import Counts
from netem.meter import MOST_RESIDUAL, MOST_TILT, MOST_TILT_SHARE, Slope, apart, doubt, slope, tilt
from netem.proxy import Proxy, ProxyError
from netem.timed_command import CommandResult, timed
from netem.timekeeping import Timekeeping
from netem.units import parse_time, plural, show_address, show_status

NOT_JUDGED = 3
"""The exit status if the measurement is not reliable."""

EXAMPLES = f"""examples:
  netem meter --to :9418 -- git ls-remote git://{{proxy}}/project
      how many round trips git takes to list the refs of a server on port 9418
  netem meter --to :4155 --prepare 'rm -rf /tmp/clone' -- git clone hpss://{{host}}:{{port}}/project /tmp/clone
      the same of a clone, into a place that is made free before each run
  netem meter --to :9418 --listen :4001 --rtts 100ms,300ms,500ms,900ms --repeat 5 --json -- git -C work fetch
      at four RTTs, five times each, as JSON; the remote of `work` names port 4001

{{proxy}} is HOST:PORT of the proxy, which every run finds at the same address. The slope of time over RTT is the round
trips, all that really happens included: connecting, and what programs wait for each other. Time that does not grow with
the RTT (computing, disks) is the intercept. Both ends of the proxy are on this machine: TCP's slow start is not in it.
A slope that is a whole round trip from what the proxy counted is remarked on stderr.

{SIDE_BY_SIDE}

There is no verdict where late timers may have moved the slope by more than {MOST_TILT:g} round trips,
or {MOST_TILT_SHARE:.0%} of them where that is more: if all messages that waited for each other came as late as the
latest in a hundred timers of this process, in the runs of the longer RTTs alone or of the shorter ones. Nor where a run
lies off the line by more than {MOST_RESIDUAL:.0%} of the greatest RTT. RTTs that are further apart help
against the first.

Exit status: that of a run that failed (its stderr is shown); 3: there is no verdict, the proxy was not used, or
the server could not be reached; 1: the proxy or the system failed; 2: wrong arguments; 130: interrupted."""


class NothingToMeasure(Exception):
    """The measurement ended early. The exception has the exit status and the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def parse_rtts(text: str) -> list[float]:
    """Return RTTs such as `200ms,600ms,1s` in seconds. At least three different ones are required."""
    found = [parse_time(word) for word in text.split(",")]
    if len(set(found)) < 3 or 0 in found:
        raise ValueError(f"{text!r}: expected three different RTTs or more, none of them 0, to see a straight line")
    return found


def parse_count(text: str) -> int:
    """Return the number in `text`, which must be 1 or more."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError(f"{text!r}: expected a number from 1 on")
    return int(text)


def add(commands: Commands) -> None:
    """Add the command line of `netem meter`."""
    meter = add_command(
        commands, "meter", run,
        summary="count the round trips of any command, by running it over links of several lengths",
        usage="netem meter --to HOST:PORT [OPTION ...] -- COMMAND [ARGUMENT ...]",
        description="Run a command at three RTTs or more, several times each; its slope is its round trips.",
        epilog=EXAMPLES,
    )  # fmt: skip
    add_to(meter)
    meter.add_argument(
        "--rtts", type=argument(parse_rtts), default="200ms,600ms,1000ms", metavar="TIME,TIME,...",
        help="round trips, three or more (default: %(default)s)",
    )  # fmt: skip
    meter.add_argument(
        "--repeat", type=argument(parse_count), default="3", metavar="N", help="runs at each (default: %(default)s)"
    )
    meter.add_argument(
        "--prepare", metavar="COMMAND", help="for the shell: run before each run, and not timed; {proxy} is known to it"
    )
    add_listen(meter, default=":0")
    add_json(meter, "one JSON object")


def filled(word: str, host: str, port: int) -> str:
    """Return a word of a command with the proxy's address in place of `{proxy}`, `{host}` and `{port}`."""
    return word.replace("{proxy}", show_address((host, port))).replace("{host}", host).replace("{port}", str(port))


@dataclass
class Measurement:
    """A measurement of a command. Each call runs the command at one RTT, and adds the result to `runs`."""

    command: Sequence[str]
    to: tuple[str, int]
    listen: tuple[str, int]
    prepare: str | None = None
    runs: list[tuple[float, Counts, float]] = field(default_factory=list)
    """The RTT, the counts, and the 99th percentile of the lateness of timers in seconds, for each run."""
    refused: OSError | None = None
    """The error of the proxy's connection to the server; None if there was none."""

    def __call__(self, rtt: float) -> float:
        """Run the command once and return the seconds that it took.

        Raises:
            NothingToMeasure: the command failed or did not use the proxy, the proxy could not listen, or the server
                could not be reached.
            OSError: the system refuses to start the command.
        """
        with contextlib.ExitStack() as entered:
            try:
                proxy = entered.enter_context(Proxy(rtt, self.to, listen=self.listen, on_refused=self._refused))
            except OSError as error:
                raise NothingToMeasure(1, cannot("listen on", self.listen, error)) from error
            self.listen = (proxy.host, proxy.port)
            if self.prepare is not None:
                self._check(timed(["sh", "-c", filled(self.prepare, *self.listen)]), "the preparation")
                proxy.take()
                self.refused = None
            with Timekeeping() as kept:
                ended = timed([filled(word, *self.listen) for word in self.command])
            counts = proxy.take()
        self._check(ended, "the command")
        if self.refused is not None:
            why = f"the server could not be reached at {show_address(self.to)}: {reason(self.refused)}"
            raise NothingToMeasure(NOT_JUDGED, f"not judged: {why}")
        if not counts.connections:
            where = show_address(self.listen)
            raise NothingToMeasure(
                NOT_JUDGED,
                f"not judged: the command opened no connection to the proxy at {where}; write {{proxy}} in it",
            )
        self.runs.append((rtt, counts, kept.p99))
        late = f"99 in 100 timers no more than {kept.p99 * 1000:.1f} ms late"
        complain(f"RTT {rtt * 1000:g} ms: {ended.seconds:.3f} s; {plural(counts.rounds, 'round trip')} counted; {late}")
        return ended.seconds

    @property
    def late(self) -> list[float]:
        """For each run, the most seconds that late timers can have added, if each message of the longest chain was
        late."""
        return [counts.depth * late for _, counts, late in self.runs]

    def _check(self, ended: CommandResult, what: str) -> None:
        if ended.status:
            if self.refused is not None:
                complain(cannot("connect to", self.to, self.refused))
            sys.stderr.write(ended.stderr)
            raise NothingToMeasure(ended.status, f"{what} ended with {show_status(ended.status)}")

    def _refused(self, error: OSError) -> None:
        self.refused = error


def report(found: Slope, measurement: Measurement, why: str) -> dict[str, Any]:
    """Return the fields of the JSON output. `why`: the reason why the measurement is not reliable, or empty."""
    return {
        "judged": not why,
        "why_not": why or None,
        "rounds": round(found.rounds, 4),
        "intercept": round(found.intercept, 6),
        "residual": round(found.residual, 6),
        "tilt": round(tilt(found, measurement.late), 4),
        "runs": [
            {**numbers(counts), "rtt": rtt, "seconds": round(seconds, 6), "late": round(late, 6)}
            for (rtt, counts, late), (_, seconds) in zip(measurement.runs, found.points, strict=True)
        ],
    }


def sentences(found: Slope, measurement: Measurement) -> str:
    """Return the result as text for people."""
    return (
        f"{found.rounds:.2f} round trips, moved by late timers by no more than {tilt(found, measurement.late):.2f}, "
        f"and {found.intercept:.3f} s besides; no run is more than {found.residual * 1000:.0f} ms off the line\n"
        f"the proxy counted: {line(measurement.runs[-1][1])}"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run `netem meter` and return the exit status."""
    if not arguments.client:
        return misses("meter", "command")
    measurement = Measurement(arguments.client, arguments.to, arguments.listen, arguments.prepare)
    try:
        with interruptible():
            found = slope(measurement, arguments.rtts, arguments.repeat)
    except NothingToMeasure as error:
        complain(str(error))
        return error.status
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except ProxyError as error:
        complain(str(error))
        return 1
    why = doubt(found, measurement.late)
    if arguments.json:
        tell(json.dumps(report(found, measurement, why)))
    elif not why:
        tell(sentences(found, measurement))
    if why:
        complain(f"not judged: {why}")
        return NOT_JUDGED
    remark = apart(found, [counts.rounds for _, counts, _ in measurement.runs])
    if remark:
        complain(remark)
    return 0
