"""`smartserver pack`: join a repository's packs now."""

from __future__ import annotations

import click

from smartserver.cli.errors import one_line
from smartserver.cli.place import count, is_url, repository_in
from smartserver.cli.session import client_for
from smartserver.store.model import PackReport
from smartserver.trace.text import size
from smartserver.verbs.repository_pack import PackRequest, PackResult, repository_pack


@click.command()
@click.argument("path")
@click.pass_obj
def command(flags: frozenset[str], path: str) -> None:
    """Join the packs of the repository at PATH, a folder or an hpss:// URL; those of more than 1 GiB stay.

    A server does it by itself when there are many. The packs that were joined are deleted once a day is over.

    \b
    smartserver pack ~/repositories/project
    smartserver pack hpss://example.org/project
    """
    report: PackReport | PackResult
    if is_url(path):
        with one_line(path), client_for(path, flags) as (client, location):
            report = client.call(repository_pack, PackRequest(), location.path)
    else:
        with repository_in(path) as repository:
            report = repository.repack()
    before, after = count(report.before, "pack"), count(report.after, "pack")
    click.echo(f"{f'{before}: nothing to join' if before == after else f'{before} to {after}'}, {size(report.size)}")
