"""`smartserver config`: read or change a setting of a repository."""

from __future__ import annotations

import os

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.client.plain import plain
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from transports.errors import CodedError

HEAD = "HEAD"

DEFAULTS = {"publishing": b"yes", "evolution": b"no"}
"""The default of each setting that is yes or no."""


@click.command()
@click.argument("path")
@click.argument("name", metavar="NAME", type=click.Choice(["head", *DEFAULTS], case_sensitive=False))
@click.argument("value", metavar="[VALUE]", default="")
@click.pass_obj
def command(flags: frozenset[str], path: str, name: str, value: str) -> None:
    """Print the setting NAME of the repository at PATH, or set it to VALUE. PATH is a folder, or the URL of a server
    (hpss://) or of a store (sftp://, s3://, vfs://).

    `head` is the branch that `git clone` checks out. That branch cannot be deleted. `publishing` is `yes` (the default)
    if changesets that `hg` pushes become public, else `no`. `evolution` is `yes` if `hg` exchanges obsolescence
    markers, else `no` (the default). To change a setting on a server, a user needs the level `admin`.

    \b
    smartserver config ~/repositories/project head
    smartserver config ~/repositories/project head trunk
    smartserver config hpss://example.org/project head refs/heads/trunk
    smartserver config hpss://example.org/project publishing no
    """
    from smartserver.cli.copying import repository_at  # Imports the store and both ends of a connection: 100 ms.

    key = HEAD if name == "head" else name
    with one_line(path), repository_at(path, flags) as remote:
        if value:
            is_short = key == HEAD and not value.startswith("refs/")
            new = os.fsencode(f"refs/heads/{value}" if is_short else value)
            (result,) = remote.ask((repository_configure, ConfigureRequest({key: new}))).results
            if isinstance(result, CodedError):
                raise result
            found: bytes | None = new  # For an incomplete repository, the answer has no settings.
        else:
            remote.learn_refs()
            found = remote.knowledge.settings.get(key)
    if key in DEFAULTS:
        click.echo(plain(os.fsdecode(found or DEFAULTS[key])))
        return
    if found is None:
        raise CommandError(f"{path} has no {name.lower()}: set it to a branch")
    missing = "" if found in remote.knowledge.refs() else "  (there is no such branch yet)"
    click.echo(plain(os.fsdecode(found)) + missing)
