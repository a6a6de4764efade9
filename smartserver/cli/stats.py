"""`smartserver stats`: print the size and the content of a repository."""

from __future__ import annotations

import click

from smartserver.cli.as_json import json_option, write_json
from smartserver.cli.place import call, count, is_url, repository_in
from smartserver.client.plain import plain
from smartserver.store.model import RepositoryStats
from smartserver.trace.text import size
from smartserver.verbs.repository_stats import StatsRequest, StatsResult, repository_stats

FIELDS = ("vcs", "format", "features", "revisions", "records", "packs", "size", "largest", "refs", "entries", "version")
"""The fields that `RepositoryStats` and `StatsResult` share, in the order of the output; sizes are in bytes."""


@click.command()
@click.argument("path")
@json_option
@click.pass_obj
def command(flags: frozenset[str], path: str, as_json: bool) -> None:
    """Print the size of the repository at PATH and the numbers of its parts. PATH is a folder, or the URL of a server
    (hpss://) or of a store (sftp://, s3://, vfs://).

    \b
    smartserver stats ~/repositories/project
    smartserver stats --json hpss://example.org/project
    smartserver stats sftp://me@example.org/srv/code/project
    """
    found: RepositoryStats | StatsResult
    if is_url(path):
        found = call(path, flags, repository_stats, StatsRequest())
    else:
        with repository_in(path, flags) as repository:
            found = repository.begin().stats()
    if as_json:
        write_json([{name: getattr(found, name) for name in FIELDS}])
        return
    features = "".join(f", {feature}" for feature in found.features)
    click.echo(plain(f"{found.vcs}, {found.format}{features}"))
    click.echo(f"{count(found.revisions, 'revision')}, {count(found.records, 'record')}")
    click.echo(f"{count(found.packs, 'pack')}, {size(found.size)}, the largest {size(found.largest)}")
    click.echo(f"{count(found.refs, 'ref')}, {found.entries:,} in maps")
    click.echo(f"{count(found.version - 1, 'change')} since it was made")
