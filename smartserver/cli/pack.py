"""`smartserver pack`: join a repository's packs now."""

from __future__ import annotations

import click

from smartserver.cli.place import call, count, is_store_url, is_url, repository_in
from smartserver.store.model import PackReport
from smartserver.trace.text import size
from smartserver.verbs.repository_pack import PackRequest, PackResult, repository_pack


@click.command()
@click.argument("path")
@click.pass_obj
def command(flags: frozenset[str], path: str) -> None:
    """Join the packs of the repository at PATH, except packs of more than 1 GiB. PATH is a folder, or the URL of a
    server (hpss://) or of a store (sftp://, s3://, vfs://).

    A server joins packs by itself when there are many, and deletes the old ones a day later. In a store, only this
    command joins packs, and all of them pass the link twice. There it also makes a checkpoint of the log, if that was
    too much work after a push.

    \b
    smartserver pack ~/repositories/project
    smartserver pack hpss://example.org/project
    smartserver pack sftp://me@example.org/srv/code/project
    """
    report: PackReport | PackResult
    if is_url(path):
        report = call(path, flags, repository_pack, PackRequest())
    else:
        with repository_in(path, flags) as repository:
            report = repository.repack()
            if is_store_url(path):
                repository.clean_up()
    before, after = count(report.before, "pack"), count(report.after, "pack")
    click.echo(f"{f'{before}: nothing to join' if before == after else f'{before} to {after}'}, {size(report.size)}")
