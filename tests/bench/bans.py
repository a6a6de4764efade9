"""What bans cost: operations of a client that has them, in turn with those of one that has none."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bench import options
from bench.report import Report
from smartserver.cli.errors import one_line
from smartserver.cli.operations import run
from smartserver.cli.servers import Workspace
from smartserver.trace.flags import BAN
from smartserver.trace.text import size


@click.command()
@click.argument("rules", nargs=-1, required=True)
@options.number("-n count", 10, "Rounds of all operations.")
def command(rules: Sequence[str], count: int) -> None:
    """Many operations on one connection, by a client with these bans and by one without: what bans cost.

    \b
    make bench ARGS="bans silly"
    make bench ARGS="bans silly 'vfs:*' -n 300"
    """
    report = Report(f"with {', '.join(rules)} banned; median of {count}", "no bans")
    with Workspace("bench") as work, one_line("bans"):
        server = work.start_ours()
        banning = run(server.url("banned"), count, {f"{BAN}{','.join(rules)}"})
        for row, banned in zip(run(server.url("plain"), count), banning, strict=True):
            times = banned.milliseconds / row.milliseconds
            trips = max(row.round_trips, banned.round_trips)
            report.add(
                f"{row.operation}: {size(row.bytes_up)} up, {size(row.bytes_down)} down, round trips: {trips}",
                f"{banned.milliseconds:.2f} ms ({times:.2f} x)", f"{row.milliseconds:.2f} ms", "1 trip", trips <= 1,
            )  # fmt: skip
    report.finish()
