"""`make demo`: what a slow link costs git, over our protocol and over git's own, side by side."""

from __future__ import annotations

from pathlib import Path

import click

from bench import options
from bench.comparison import Comparison, Row
from bench.git_histories import own_checkout
from bench.report import end, say
from bench.servers import LinkCost
from smartserver.trace.text import size


@click.command(short_help="Show what round trips cost: hpss:// beside git:// on a slow link.")
@options.path(required=False)
@click.option("--rtt", type=options.TIME, default="1000ms", show_default=True, help="Round-trip time of the link.")
@click.option("--rate", type=options.RATE, help="Bandwidth of the link each way, e.g. 10mbit; unlimited by default.")
def command(path: Path | None, rtt: float, rate: float | None) -> None:
    """Push, fetch and clone the git repository or bundle at PATH over an emulated slow link: hpss:// beside git://.

    PATH is read and never written; without it, it is the project's own checkout, or a generated history. Stock git
    does everything; the link is a proxy on loopback that delays each byte by half of --rtt. Exit status 1 when an
    operation of ours takes more than 2 round trips (the TCP handshake and one) or leaves a wrong result behind.

    \b
    make demo
    make demo ARGS="$HOME/src/project --rtt 300ms --rate 20mbit"
    """
    source = path.resolve() if path is not None else own_checkout()
    with Comparison(source, rtt, rate, say) as comparison:
        rows: list[Row] = []
        for row in comparison.rows():
            rows.append(row)
            say(f"  {row.operation}")
        problems = comparison.problems
        click.echo(table(rows, comparison.title, with_git=comparison.has_git_daemon))
    end(problems)


def table(rows: list[Row], title: str, *, with_git: bool) -> str:
    """One line an operation: round trips, seconds and bytes, ours and git's."""
    wide = max(len(row.operation) for row in rows)
    head = f"{'':{wide}}  {'hpss://':^36}" + (f"   {'git://':^36}" if with_git else "")
    columns = f"{'trips':>6} {'seconds':>8} {'up':>10} {'down':>9}"
    lines = [title, "", head, f"{'operation':{wide}}  {columns}" + (f"    {columns}" if with_git else "")]
    for row in rows:
        line = f"{row.operation:{wide}}  {_cells(row.ours)}"
        if with_git:
            line += "    " + (_cells(row.git) if row.git is not None else f"{'-':>6}")
        lines.append(line.rstrip())
    return "\n".join(lines)


def _cells(cost: LinkCost) -> str:
    return f"{cost.round_trips:>6} {cost.seconds:>8.2f} {size(cost.bytes_up):>10} {size(cost.bytes_down):>9}"
