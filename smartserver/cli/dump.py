"""`smartserver dump`: a whole repository as one file."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import BinaryIO

import click

from smartserver.cli.errors import CommandError
from smartserver.cli.place import count, is_url
from smartserver.trace.text import size as size_of

STANDARD = "-"
"""Stands for standard input or output."""


@click.command(short_help="Write a repository into one file.")
@click.argument("source", metavar="URL")
@click.argument("file", default=STANDARD)
@click.option("--since", metavar="DUMP", help="Leave out the revisions that this earlier dump has.")
@click.pass_obj
def command(flags: frozenset[str], source: str, file: str, since: str | None) -> None:
    """Write the repository at URL into FILE: all refs and the revisions that they reach, settings, tags and maps.
    Without FILE, or if FILE is `-`, the dump goes to standard output. `smartserver load` restores it.

    FILE is replaced when the dump is complete; an interrupted dump leaves it as it was. A dump has hashes by which
    `load` detects any damage.

    With --since the new dump has all refs and maps, but only the revisions that the earlier dump DUMP lacks. To restore
    it, load DUMP first. DUMP may itself have been made with --since. It is read completely and checked.

    URL is that of a server (hpss://) or of a store (sftp://, vfs://), or a folder.

    \b
    smartserver dump hpss://example.org/project monday.dump
    smartserver dump --since monday.dump hpss://example.org/project tuesday.dump
    smartserver dump ~/repositories/project | zstd > project.dump.zst
    smartserver dump hpss://example.org/project | smartserver load hpss://elsewhere.example.org/project
    """
    if file == STANDARD and sys.stdout.isatty():
        raise CommandError("a dump is not for a terminal: name a FILE, or pipe it")
    # Loaded late, as in `push`.
    from smartserver.cli.copying import between, on_terminal, repository_at
    from smartserver.client.copy import CopyEndpoint
    from smartserver.client.dump import dump
    from smartserver.client.dump_file import DumpReader

    earlier = None
    if since is not None:
        with open(since, "rb") as stream, between(since, since):
            read = DumpReader(stream, since)
            read.check()
        earlier = read.header
    with repository_at(source, flags, writes=False) as remote, between(source, source):
        made = dump(CopyEndpoint(source, remote), earlier, on_terminal("dump"), bulk=is_url(source))
        into: AbstractContextManager[BinaryIO] = nullcontext(sys.stdout.buffer) if file == STANDARD else new_file(file)
        with into as written:
            size = sum(map(written.write, made.pieces))
            written.flush()
    if file != STANDARD:
        refs = count(len(made.header.refs), "ref")
        click.echo(f"{count(made.header.segments, 'revision')}, {refs}, {size_of(size)}")


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """A file to write, which replaces the one at the path when the block ends without an error. A device or a pipe is
    written directly."""
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with open(path, "wb") as file:
            yield file
        return
    place = os.path.realpath(path)
    folder, name = os.path.split(place)
    if not os.path.isdir(folder):
        raise CommandError(f"{folder} is not there: make it first")
    part = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place)
        sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
