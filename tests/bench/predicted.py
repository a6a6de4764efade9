"""What `trace explain --rtt --rate` says of a push and a clone, beside what they take on such a link of real TCP."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import click

from bench import options
from bench.links import Done, across
from bench.report import Progress, Report, median
from netem.link import Link as NetemLink
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import Workspace, attempt, run
from smartserver.trace.predict import Link, predicted
from smartserver.trace.wait import Trace, traces

RTTS = (0.02, 0.2, 1.0)
RATES = (1e6 / 8, 10e6 / 8, 100e6 / 8)
"""Bytes a second."""

BAR = 0.1
"""How far a prediction may be off."""

Run = Callable[[Sequence[str], Path, Mapping[str, str]], "Done | CompletedProcess[str]"]


@click.command()
@options.path()
@click.option(
    "--link",
    "links",
    type=(options.TIME, options.RATE),
    multiple=True,
    metavar="RTT RATE",
    help="A link, e.g. 250ms 100mbit.",
)
@options.number("--repeat", 3, "How often each is run; the medians are compared.")
def command(path: Path, links: Sequence[tuple[float, float]], repeat: int) -> None:
    """A push of all branches of PATH and a clone of it, recorded on loopback, predicted for links, and run on them.

    Links by default: 20, 200 and 1000 ms with 1, 10 and 100 Mbit/s. Client and server are in network namespaces
    (Linux, as root or where users may make namespaces).

    \b
    bench predicted $HOME/src/project
    bench predicted $HOME/src/project --link 250ms 100mbit
    """
    progress = Progress()
    report = Report("seconds that were predicted, beside those that it took", "took")
    with Workspace("predicted") as work:
        source = work.folder / "source.git"
        run(["git", "clone", "--quiet", "--bare", str(path), str(source)], None, work.environment("user"))
        near = work.start_ours()
        run(["git", "push", "--quiet", near.url("source"), "--all"], source, work.environment("user"))
        shutil.copytree(near.served, work.folder / "served")
        for rtt, rate in links or list(itertools.product(RTTS, RATES)):
            over = f"{rtt * 1000:g} ms, {rate * 8 / 1e6:g} Mbit/s"
            with across(work, NetemLink(rtt, rate)) as there:
                for name in ("push", "clone"):
                    progress.step(f"{name}, {over}")
                    said, took = [], []
                    for number in range(repeat):
                        place = f"{name}{rtt:g}-{rate:g}-{number}"
                        here = _recorded(work, attempt, name, near.url, place)
                        said.append(predicted(here, Link(rtt, rate)))
                        far = _recorded(work, there.run, name, there.url, place)
                        took.append((far.end - far.start) / 1e6)
                    _add(report, f"{name}, {over}", median(said), median(took))
    report.finish()


def _add(report: Report, what: str, said: float, took: float) -> None:
    off = said / took - 1
    report.add(what, f"{said:.2f} ({off:+.0%})", f"{took:.2f}", f"{BAR:.0%}", abs(off) <= BAR)


def _recorded(work: Workspace, act: Run, name: str, url: Callable[[str], str], place: str) -> Trace:
    """The trace of a push to a new place, or of a clone, by a user who knows nothing of the server."""
    trace, clone = work.folder / "trace", work.folder / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    trace.unlink(missing_ok=True)
    words = ["git", "push", "--quiet", url(place), "--all"]
    if name == "clone":
        words = ["git", "clone", "--quiet", "--bare", url("source"), str(clone)]
    command = ["smartserver", "trace", "run", "-o", str(trace), "--", *words]
    done = act(command, work.folder / "source.git", work.environment(place))
    status = done.status if isinstance(done, Done) else done.returncode
    if status:
        raise CommandError(f"{' '.join(words)}: status {status}: {done.stderr.strip()}")
    (found,) = traces(trace.read_bytes().splitlines())
    return found
