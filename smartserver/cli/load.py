"""`smartserver load`: a dump put into a repository."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from smartserver.cli.dump import STANDARD
from smartserver.cli.errors import CommandError


@click.command(short_help="Put what `dump` wrote into a repository.")
@click.argument("places", nargs=-1, required=True, metavar="[FILE] URL")
@click.option("--force", is_flag=True, help="Move refs, and replace entries of maps, that are another there.")
@click.pass_obj
def command(flags: frozenset[str], places: tuple[str, ...], force: bool) -> None:
    """Bring the refs, revisions, tags and maps of the dump in FILE to the repository at URL. Without FILE, or if FILE
    is `-`, the dump comes from standard input. A missing repository is created with the settings of the dump, and so
    are the folders above it: on a server all of them, elsewhere all but the outermost.

    The refs change last, and only if the whole dump is undamaged. As with a push, they only move forward unless --force
    is given. Refs that the dump lacks stay.

    Only revisions that the repository lacks are sent. A FILE of more than 64 MiB is sent in parts. If the load is
    interrupted, start it again: it resumes after the last complete part. Dumps of Breezy repositories, and dumps from
    standard input, are sent whole.

    URL names a repository on a server (hpss://), in a store (sftp://, vfs://), or in a folder.

    \b
    smartserver load project.dump hpss://example.org/project
    smartserver load monday.dump /srv/code/project && smartserver load --force tuesday.dump /srv/code/project
    zstd -dc project.dump.zst | smartserver load sftp://me@example.org/srv/code/project
    """
    if len(places) > 2:
        raise click.UsageError(f"expected FILE and URL, got {len(places)} places")
    file, target = places if len(places) == 2 else (STANDARD, places[0])
    name = "standard input" if file == STANDARD else file
    if file == STANDARD and sys.stdin.isatty():
        raise CommandError("a dump does not come from a terminal: name a FILE, or pipe it")
    # Loaded late, as in `push`.
    from smartserver.cli.copying import between, on_terminal, report, repository_at
    from smartserver.client.copy import CopyEndpoint
    from smartserver.client.dump import load
    from smartserver.client.dump_file import DumpReader

    with (
        _opened(file) as stream,  # Before root may become the owner of the folder that is written to.
        between(name, target),
        repository_at(target, flags) as remote,
    ):
        read = DumpReader(stream, name)
        done = load(read, name, CopyEndpoint(target, remote), on_terminal("check"), on_terminal("load"), force=force)
    report(*done)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STANDARD:
        yield sys.stdin.buffer
    else:
        with open(file, "rb") as stream:
            yield stream
