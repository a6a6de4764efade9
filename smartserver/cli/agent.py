"""`smartserver agent`: what of a user's outlives a command."""

from __future__ import annotations

import os

import click

from smartserver.agent.address import NoAgent
from smartserver.agent.lending import ask
from smartserver.agent.messages import Forget, Status, Stop, decode_count, decode_held
from smartserver.agent.start import start
from smartserver.cli.errors import CommandError
from smartserver.client.places import parse_place, served_by
from smartserver.client.url import BadUrl


@click.group(short_help="Show, stop or start what keeps connections between commands.")
def command() -> None:
    """Show, stop or start the agent of this user.

    The first command that talks to a server starts it. It holds the connection when that command ends, so that the
    next needs none of its own, and it has loaded what `git-remote-hpss` is made of. It ends when nobody has needed it
    for ten minutes. SMARTSERVER_AGENT=0 in the environment of a command runs that without it.

    \b
    smartserver agent status
    smartserver agent forget                          close what is held
    smartserver agent forget hpss://example.org/      to one server alone
    smartserver agent stop
    """


@command.command()
def run() -> None:
    """Be the agent, until it is stopped: for who has services started by something of his own."""
    try:
        started = start(os.environ, here=True)
    except NoAgent as error:
        raise CommandError(str(error)) from None
    if not started:
        raise CommandError("the agent of this user runs already")


@command.command()
def status() -> None:
    """Show which connections are held."""
    try:
        held, _ = ask(Status(), decode_held, os.environ)
    except NoAgent as why:
        click.echo(f"no agent: {why}")
        return
    click.echo(f"process {held.process}, connections held: {len(held.lines)}")
    for line in held.lines:
        click.echo(f"{line.where}  for {line.seconds:.0f} s")


@command.command()
@click.argument("url", required=False)
def forget(url: str | None) -> None:
    """Close the connections that are held, all or those to the server of a URL."""
    try:
        closed, _ = ask(Forget(served_by(parse_place(url)) if url else ""), decode_count, os.environ)
    except BadUrl as error:
        raise CommandError(str(error)) from None
    except NoAgent:
        closed = 0
    click.echo(f"connections closed: {closed}")


@command.command()
def stop() -> None:
    """Close what is held and end the agent; what runs goes on."""
    try:
        ask(Stop(), decode_count, os.environ, foreign=True)  # One of another namespace is in the way of this one's.
    except NoAgent as why:
        click.echo(f"no agent: {why}")
