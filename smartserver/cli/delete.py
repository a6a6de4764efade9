"""`smartserver delete`: delete a repository."""

from __future__ import annotations

import os

import click

from smartserver.cli.asking import confirm
from smartserver.cli.place import call, is_url, repository_in
from smartserver.cli.user import user
from smartserver.verbs.repository_delete import DeleteRequest, repository_delete


@click.command()
@click.argument("path")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(flags: frozenset[str], path: str, yes: bool) -> None:
    """Delete the repository at PATH with all its content. PATH is a folder, or the URL of a server (hpss://) or of a
    store (sftp://, s3://, vfs://).

    Clients do not find it any more from now on. Its packs are deleted after a day, at the next start of a server. Its
    folder and small files stay, and another repository may be created there, below it or above it.

    \b
    smartserver delete ~/repositories/project
    smartserver delete --yes hpss://example.org/project
    smartserver delete sftp://me@example.org/srv/code/project
    """
    ask = f"Delete {path} with all that is in it?"
    if is_url(path):
        if not yes:
            confirm(ask, "--yes")
        call(path, flags, repository_delete, DeleteRequest())
    else:
        with repository_in(path, flags) as repository:
            repository.snapshot()  # Nothing is asked about a place without a repository.
            if not yes:
                confirm(ask, "--yes")
            repository.delete(os.urandom(16), 0, user())
    click.echo(f"deleted {path}")
