"""`smartserver list`: list repositories."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from smartserver.cli.as_json import json_option, text_of, write_json
from smartserver.cli.errors import one_line
from smartserver.cli.place import above, check_folder, count, is_store_url, is_url, store_at
from smartserver.cli.session import client_for
from smartserver.client.listing import repositories
from smartserver.client.plain import plain
from smartserver.verbs.repository_list import RepositoryField


@click.command(short_help="List the repositories at and below a folder or URL.")
@click.argument("path")
@click.option("--refs", is_flag=True, help="The names of each repository's branches and tags, too.")
@json_option
@click.pass_obj
def command(flags: frozenset[str], path: str, refs: bool, as_json: bool) -> None:
    """List the repositories at and below PATH: a folder, or the URL of a server (hpss://) or of a store
    (sftp://, s3://, vfs://).

    The exit status is 1 if a repository cannot be read, which its line explains, or if the folder or store is missing.

    \b
    smartserver list ~/repositories
    smartserver list --refs hpss://example.org/team
    smartserver list --json hpss://example.org
    smartserver list sftp://me@example.org/srv/code
    """
    is_whole = True
    for each in _asked(path, flags, refs=refs) if is_url(path) else _in_folder(path, flags, refs=refs):
        is_whole = is_whole and not each.problem
        if as_json:
            names = {"names": list(map(text_of, each.refs))} if refs else {}
            write_json([{"path": each.path, "vcs": each.vcs, "refs": each.count, "problem": each.problem, **names}])
            continue
        what = each.problem or f"{each.vcs}, {count(each.count, 'ref')}"
        click.echo(plain(f"{each.path or '.'}: {what}"))
        for name in each.refs:
            click.echo(plain(f"    {text_of(name)}"))
    if not is_whole:
        sys.exit(1)


def _asked(url: str, flags: frozenset[str], *, refs: bool) -> Iterator[RepositoryField]:
    with one_line(url), client_for(url, flags) as (client, location):
        yield from repositories(client, location.path, refs=refs)


def _in_folder(path: str, flags: frozenset[str], *, refs: bool) -> Iterator[RepositoryField]:
    from smartserver.server.site import Site, read_ahead
    from smartserver.server.startup import inside_of
    from smartserver.store.remote import is_remote
    from transports.decorators.ahead import AheadTransport

    if not is_store_url(path):
        check_folder(path)
    with store_at(path, flags) as root, one_line(path, above(path)):
        if is_remote(root):
            root = AheadTransport(root)
            read_ahead(root)
        for each in Site(root, inside=inside_of(root)).listing("", must_be=True):
            yield RepositoryField(each.path, each.vcs, len(each.refs), list(each.refs) if refs else [], each.problem)
