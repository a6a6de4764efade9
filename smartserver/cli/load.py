"""`smartserver load`: load a dump into a repository."""

from __future__ import annotations

import click

from smartserver.cli.errors import one_line


@click.command(short_help="Put what `dump` wrote into a repository.")
@click.argument("places", nargs=-1, required=True, metavar="[FILE]... URL")
@click.option("--force", is_flag=True, help="Move refs, and replace entries of maps, that are another there.")
@click.pass_obj
def command(flags: frozenset[str], places: tuple[str, ...], force: bool) -> None:
    """Load the refs, revisions, tags and maps of the dump in FILE into the repository at URL. Without FILE, or if FILE
    is `-`, the dump is read from standard input, into a temporary file. A missing repository is created with the
    settings of the dump, and so are the folders above it: on a server all of them, elsewhere all but the outermost.

    A dump that was made with --since continues earlier ones: name these before it. The refs are those of the last one.

    The refs change last, and only if the whole dump is undamaged. As with a push, they only move forward unless --force
    is given. Refs that the dump lacks stay.

    Only revisions that the repository lacks are sent, more than 64 MiB in parts. If the load is interrupted, start it
    again: it resumes after the last complete part. Dumps of Breezy repositories are sent whole.

    URL names a repository on a server (hpss://), in a store (sftp://, s3://, vfs://), or in a folder.

    \b
    smartserver load project.tar hpss://example.org/project
    smartserver load monday.tar tuesday.tar /srv/code/project
    zstd -dc project.tar.zst | smartserver load sftp://me@example.org/srv/code/project
    """
    *files, target = places
    # Imported late, as in `push`.
    from smartserver.cli.archive import STANDARD, archive_in, check
    from smartserver.cli.copying import StoreSource, between, of_snapshot, on_terminal, report, repository_at
    from smartserver.client.copy import CopyEndpoint
    from smartserver.client.load import load
    from smartserver.client.updates import NewRepository

    # Open the files before root becomes the owner of the target folder, who may not be able to read them.
    with archive_in(files or [STANDARD]) as repository:
        source = repository.folder.describe()
        with one_line(source):
            stored = StoreSource(repository)
            check(stored.snapshot)
        state = stored.snapshot.state
        new = NewRepository(state.vcs, state.kinds, dict(state.settings))
        with between(source, target), repository_at(target, flags) as remote:
            endpoint = CopyEndpoint(target, remote)
            done = load(
                of_snapshot(stored.snapshot), stored, new, endpoint, on_terminal("load"), name=source, force=force
            )
    report(*done)
