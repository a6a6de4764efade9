"""`smartserver bench`: measurements a user can repeat."""

from __future__ import annotations

import sys
from collections.abc import Set

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.trace.text import size


@click.group()
def command() -> None:
    """Measure a server."""


@command.command()
@click.argument("url")
@click.option("-n", "count", type=click.IntRange(1), default=10, show_default=True, help="Rounds of all operations.")
@click.option("--rtt", default="0", show_default=True, help="Round-trip time of a link to put in front, e.g. 1000ms.")
@click.pass_obj
def warm(flags: Set[str], url: str, count: int, rtt: str) -> None:
    """Many operations on one connection to the server of URL: each must be one round trip.

    A branch named smartserver-bench is pushed to, fetched from and deleted in the repository at URL, which is made if
    it is not there. Round trips are counted on the link, by a proxy in front of the server. Exit status 1 when an
    operation takes more than one.

    \b
    smartserver bench warm hpss://localhost/bench
    smartserver bench warm hpss://localhost/bench -n 3 --rtt 1000ms
    """
    from netem.units import parse_time
    from smartserver.cli.bench_warm import run

    try:
        seconds = parse_time(rtt)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from None
    click.echo(f"{'operation':24} {'trips':>5} {'up':>9} {'down':>9} {'median ms':>10}")
    too_many = False
    with one_line(url):
        for row in run(url, count, seconds, traced="hpss" in flags):
            click.echo(
                f"{row.operation:24} {row.round_trips:>5} {size(row.bytes_up):>9} {size(row.bytes_down):>9} "
                f"{row.milliseconds:>10.1f}"
            )
            too_many |= row.round_trips > 1
    if too_many:
        sys.exit(1)
