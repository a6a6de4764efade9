"""`smartserver ping`: check that a server answers, and print its release."""

from __future__ import annotations

import time

import click

from smartserver.cli.errors import one_line
from smartserver.cli.session import client_for
from smartserver.client.plain import plain


@click.command()
@click.argument("url")
@click.option("-c", "--count", type=click.IntRange(1), default=3, show_default=True, help="How many pings.")
@click.pass_obj
def command(flags: frozenset[str], url: str, count: int) -> None:
    """Ask the server of URL for its release, then ping it on the same connection.

    \b
    smartserver ping hpss://localhost/
    smartserver ping hpss+ssh://me@example.org/~ -c 10
    """
    from smartserver.verbs.server_info import InfoRequest, server_info
    from smartserver.verbs.server_ping import PingRequest, server_ping

    with one_line(url), client_for(url, flags) as (client, _):
        facts = client.call(server_info, InfoRequest())
        click.echo(plain(f"smartserver {facts.version}, {len(facts.capabilities)} verbs"))
        for _ in range(count):
            start = time.perf_counter()
            client.call(server_ping, PingRequest())
            click.echo(f"answer in {(time.perf_counter() - start) * 1000:.1f} ms")
