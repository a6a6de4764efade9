"""`smartserver upgrade`: converts a repository of an older release to the current format."""

from __future__ import annotations

import os

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import act_as_owner, check_folder
from smartserver.errors import NoSuchRepository
from smartserver.store import old_root
from smartserver.store.format import LINE
from transports.local import LocalTransport


@click.command()
@click.argument("path")
@click.option("--undo", is_flag=True, help="Change a repository back that nobody has changed since its upgrade.")
def command(path: str, undo: bool) -> None:
    """Change the repository in the folder PATH from the format of an older release to the format of this release. It
    keeps all its content: revisions, branches, tags, settings and the log. Stop its servers first, and start those of
    this release afterwards.

    The upgrade takes no longer than reading the branches. If it is interrupted, run it again. The replaced files are in
    the folder lost/format1 of the repository: delete that when --undo is not needed any more.

    The content of a repository, for example a Breezy branch of an older format, is never converted here: convert it
    where it was made (`brz upgrade --2a`), and push it.

    \b
    smartserver upgrade /srv/code/project
    smartserver upgrade --undo /srv/code/project
    """
    if "://" in path:
        raise CommandError(f"{path}: run this on the repository's own machine, with its folder")
    check_folder(path)
    act_as_owner(path)
    folder, place = LocalTransport(path), os.path.abspath(path)
    form = LINE.decode().strip()
    with one_line(path):
        try:
            if undo:
                old_root.undo(folder, place, os.urandom)
                click.echo(f"{path}: what it was before its upgrade")
            elif old_root.upgrade(folder, place, os.urandom):
                click.echo(f"{path}: {form}")
            else:
                click.echo(f"{path}: {form}, the newest format: nothing to upgrade")
        except NoSuchRepository:
            what = "no upgraded repository" if undo else "not a repository of smartserver"
            raise CommandError(f"{path} is {what}") from None
