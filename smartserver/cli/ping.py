"""`smartserver ping`: is a server there, what is it, and what operations on it cost."""

from __future__ import annotations

import sys
import time

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.session import client_for
from smartserver.client.plain import plain


@click.command()
@click.argument("url")
@click.option("-c", "--count", type=click.IntRange(1), default=3, show_default=True, help="How many pings.")
@click.option(
    "--operations", is_flag=True, help="Do every operation so many times, and count its round trips (hpss:// only)."
)
@click.pass_obj
def command(flags: frozenset[str], url: str, count: int, operations: bool) -> None:
    """Ask the server of URL for its release, then ping it on the same connection.

    With --operations a branch named smartserver-bench is pushed to, fetched from and deleted in the repository at URL,
    which is made if it is not there: each operation must be one round trip on the link, else the exit status is 1. What
    the server does not allow is named and left out: anonymous users may delete from its own machine only.

    \b
    smartserver ping hpss://localhost/
    smartserver ping hpss+ssh://me@example.org/~ -c 10
    smartserver ping hpss://localhost/project --operations
    """
    from smartserver.verbs.server_info import InfoRequest, server_info
    from smartserver.verbs.server_ping import PingRequest, server_ping

    if operations:
        if not url.startswith("hpss://"):
            raise CommandError(f"{url}: --operations counts on TCP: it takes a URL of hpss://")
        _show_operations(url, count, flags)
        return
    with one_line(url), client_for(url, flags) as (client, _):
        facts = client.call(server_info, InfoRequest())
        click.echo(plain(f"smartserver {facts.version}, {len(facts.capabilities)} verbs"))
        for _ in range(count):
            start = time.perf_counter()
            client.call(server_ping, PingRequest())
            click.echo(f"answer in {(time.perf_counter() - start) * 1000:.1f} ms")


def _show_operations(url: str, count: int, flags: frozenset[str]) -> None:
    """Measure and show each operation; leave with status 1 where one takes more than a round trip."""
    from smartserver.cli.operations import BRANCH, run
    from smartserver.trace.text import size

    head = f"{'operation':24} {'trips':>5} {'up':>9} {'down':>9} {'median ms':>10}"
    too_many, why = False, ""
    left_out = []
    with one_line(url):
        for row in run(url, count, flags):
            if head:
                click.echo(head)  # Not before there is something to put under it.
                head = ""
            if row.refused is not None:
                click.echo(f"{row.operation:24} not allowed")
                left_out.append(row.operation)
                why = plain(row.refused.why)
                continue
            up, down = size(row.bytes_up), size(row.bytes_down)
            click.echo(f"{row.operation:24} {row.round_trips:>5} {up:>9} {down:>9} {row.milliseconds:>10.2f}")
            too_many |= row.round_trips > 1
    if left_out:
        click.echo(f"not allowed there ({why}): {', '.join(left_out)}; {BRANCH.decode()} stays", err=True)
    if too_many:
        sys.exit(1)
