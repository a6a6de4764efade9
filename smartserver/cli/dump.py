"""`smartserver dump`: a whole repository as one file."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
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
    `load` detects damage to the file. Records are copied as they are stored, not checked: run `smartserver verify`
    before you replace an older backup.

    With --since the new dump has all refs and maps, but only the revisions that the earlier dump DUMP lacks. To restore
    it, load DUMP first. DUMP may itself have been made with --since. It is read completely and checked.

    URL names a repository on a server (hpss://), in a store (sftp://, vfs://), or in a folder.

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
    from smartserver.client.replace import check_folder, new_file

    if file != STANDARD:
        check_folder(file)
    earlier = None
    if since is not None:
        with open(since, "rb") as stream, between(since, since):
            read = DumpReader(stream, since)
            read.check()
        earlier = read.header
    with repository_at(source, flags, writes=False) as remote, between(source, source):
        made = dump(CopyEndpoint(source, remote), earlier, on_terminal("dump"), bulk=is_url(source))
        into: AbstractContextManager[BinaryIO] = nullcontext(sys.stdout.buffer)
        if file != STANDARD:
            into = new_file(file, durable=True)
        with into as written:
            size = sum(map(written.write, made.pieces))
            written.flush()
    if file != STANDARD:
        refs = count(len(made.header.refs), "ref")
        click.echo(f"{count(made.header.segments, 'revision')}, {refs}, {size_of(size)}")
