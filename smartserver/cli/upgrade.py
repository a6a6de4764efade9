"""`smartserver upgrade`: bring a repository's own format on disk up to date; there is one format, so it says so.

The name is kept for that. Formats of the version-control systems are changed by their own tools.
"""

from __future__ import annotations

import click

from smartserver.cli.errors import CommandError
from smartserver.cli.place import is_url, repository_in
from smartserver.store.format import FAMILY, VERSIONS


@click.command()
@click.argument("path")
@click.pass_obj
def command(flags: frozenset[str], path: str) -> None:
    """Bring the format on disk of the repository at PATH, a folder or the URL of a store (sftp://, vfs://), up to date.

    There is one format so far, so that there is nothing to upgrade: it says which one the repository has and changes
    nothing. What is in a repository, a Breezy branch of an older format say, is never converted here: do that where it
    was made (`brz upgrade --2a`), and push it.

    \b
    smartserver upgrade ~/repositories/project
    """
    if is_url(path):
        raise CommandError(f"{path}: a format is upgraded where the repository lies: give its folder there")
    with repository_in(path, flags) as repository:
        repository.snapshot()  # Its root and its packs can be read.
        version = repository.format().version
    if version != VERSIONS[-1]:  # There is none.
        raise CommandError(f"{path} has format {version}, which this release only reads")
    click.echo(f"{path}: {FAMILY} {version}, the newest format: nothing to upgrade")
