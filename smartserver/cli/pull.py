"""`smartserver pull`: copy an hpss repository into a folder or a store. The source decides which revisions are sent."""

from __future__ import annotations

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import between_servers, is_url


@click.command(short_help="Copy a repository from another place; only what is missing here is sent.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", default=".")
@click.option("--ref", "refs", multiple=True, metavar="NAME", help="This branch or tag alone; may be repeated.")
@click.option("--force", is_flag=True, help="Move refs, and replace entries of maps, that are another here.")
@click.pass_obj
def command(flags: frozenset[str], source: str, target: str, refs: tuple[str, ...], force: bool) -> None:
    """Receive all that the repository at SOURCE has and TARGET (by default the current folder) lacks: its refs, or the
    named ones, with their revisions, tags and maps. A missing TARGET is created, and so are the folders above it: on a
    server all of them, elsewhere all but the outermost, so that a mistyped path is noticed.

    Both are repositories of smartserver. SOURCE is the URL of a server (hpss://), which takes one round trip, or of a
    store (sftp://, s3://, vfs://), or a folder. TARGET is a folder or the URL of a store.

    \b
    smartserver pull hpss://example.org/project ~/repositories/project
    smartserver pull sftp://me@example.org/srv/code/project ~/repositories/project
    smartserver pull vfs://localhost/project ~/repositories/project
    smartserver pull /backup/project ~/repositories/project
    smartserver pull --ref main hpss://example.org/project
    """
    if is_url(target):
        if is_url(source):
            raise CommandError(between_servers(source, target))
        command = f"smartserver push {source} {target}"
        raise CommandError(f"{target} is on a server, which `pull` cannot copy into: run `{command}` instead")
    # Imported late, as in `push`.
    from smartserver.cli.copying import between, on_terminal, report, repository_at
    from smartserver.client.copy import CopyEndpoint, pull

    with (
        one_line(target),
        repository_at(target, flags) as here,
        one_line(source),
        repository_at(source, flags) as there,
        between(source, target),
    ):
        done = pull(CopyEndpoint(source, there), CopyEndpoint(target, here), refs, on_terminal("pull"), force=force)
    report(*done)
