"""`smartserver break-lock`: take a repository's lock from a writer that is dead."""

from __future__ import annotations

import click

from smartserver.cli.asking import confirm
from smartserver.cli.errors import CommandError
from smartserver.cli.place import is_url, repository_in, store_behind
from smartserver.client.plain import plain
from transports.errors import NoSuchFile


@click.command("break-lock")
@click.argument("path")
@click.option("--force", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(flags: frozenset[str], path: str, force: bool) -> None:
    """Take the lock of the repository at PATH from who has it, so that others go on. PATH is a folder, or the URL of a
    store (sftp://, vfs://), or that by which git and brz reach it (hpss+sftp://, hpss+vfs://).

    It says first who that is, since when and on which machine. Only a repository whose lock is a folder (`swap=folder`)
    can be left locked, by a writer that died or lost its connection. One that lives after all changes nothing any more
    and is told so; what it was told was done stays done.

    \b
    smartserver break-lock ~/repositories/project
    smartserver break-lock sftp://me@example.org/srv/code/project
    smartserver break-lock --force hpss+vfs://localhost/project
    """
    if is_url(path):
        path = store_behind(path)
    with repository_in(path, flags) as repository:
        holder = repository.lock_holder()
        if holder is None:
            click.echo(f"{path}: nobody holds the lock")
            return
        click.echo(plain(f"{path}: the lock is held by {holder}"), err=True)
        if not force:
            confirm("Break it?", "--force")
        try:
            repository.break_lock(holder)
        except NoSuchFile:
            why = "the lock was let go of meanwhile, or changed hands; nothing was done"
            raise CommandError(f"{path}: {why}") from None
    click.echo(f"{path}: the lock is broken")
