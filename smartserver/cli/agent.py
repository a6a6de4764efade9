"""`smartserver agent`: show, stop or start the agent of a user."""

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

    The first command that connects to a server starts the agent. The agent holds the connection when that command ends,
    so that the next command needs no new one, and it has loaded the modules of `git-remote-hpss`. It ends when no
    command has used it for ten minutes. A command with SMARTSERVER_AGENT=0 in its environment runs without it.

    \b
    smartserver agent status
    smartserver agent forget                          close what is held
    smartserver agent forget hpss://example.org/      to one server alone
    smartserver agent stop
    """


@command.command()
def run() -> None:
    """Run the agent in this process until it is stopped, for example under a service manager."""
    try:
        started = start(os.environ, here=True)
    except NoAgent as error:
        raise CommandError(str(error)) from None
    if not started:
        raise CommandError("the agent of this user runs already")


@command.command()
def status() -> None:
    """Show the connections that the agent holds."""
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
    """Close the connections that the agent holds: all of them, or those to the server of a URL."""
    try:
        closed, _ = ask(Forget(served_by(parse_place(url)) if url else ""), decode_count, os.environ)
    except BadUrl as error:
        raise CommandError(str(error)) from None
    except NoAgent:
        closed = 0
    click.echo(f"connections closed: {closed}")


@command.command()
def stop() -> None:
    """Close the held connections and end the agent. Running commands continue."""
    try:
        ask(Stop(), decode_count, os.environ, foreign=True)  # An agent of another namespace blocks this one's too.
    except NoAgent as why:
        click.echo(f"no agent: {why}")
