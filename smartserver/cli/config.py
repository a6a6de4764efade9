"""`smartserver config`: read or change a setting of a repository."""

from __future__ import annotations

import os

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.client.plain import plain
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from transports.errors import CodedError

HEAD = "HEAD"


@click.command()
@click.argument("path")
@click.argument("name", metavar="NAME", type=click.Choice(["head"], case_sensitive=False))
@click.argument("value", metavar="[VALUE]", default="")
@click.pass_obj
def command(flags: frozenset[str], path: str, name: str, value: str) -> None:
    """Print the setting NAME of the repository at PATH, or set it to VALUE. PATH is a folder, or the URL of a server
    (hpss://) or of a store (sftp://, vfs://).

    `head` is the only setting: the branch that `git clone` checks out. That branch cannot be deleted. Setting it needs
    the permission to force.

    \b
    smartserver config ~/repositories/project head
    smartserver config ~/repositories/project head trunk
    smartserver config hpss://example.org/project head refs/heads/trunk
    """
    from smartserver.cli.copying import repository_at  # Loads the store and both ends of a connection: 100 ms.

    with one_line(path), repository_at(path, flags) as remote:
        if value:
            ref = os.fsencode(value if value.startswith("refs/") else f"refs/heads/{value}")
            (result,) = remote.ask((repository_configure, ConfigureRequest({HEAD: ref}))).results
            if isinstance(result, CodedError):
                raise result
        else:
            remote.learn_refs()
    head = remote.knowledge.settings.get(HEAD)
    if head is None:
        raise CommandError(f"{path} has no {name.lower()}: set it to a branch")
    missing = "" if head in remote.knowledge.refs() else "  (there is no such branch yet)"
    click.echo(plain(os.fsdecode(head)) + missing)
