"""`smartserver cat`: print a file of a repository on standard output."""

from __future__ import annotations

import sys

import click

from smartserver.cli.browsing import browsing, name_of, revision_argument, split_revision
from smartserver.cli.errors import CommandError
from smartserver.records.browse import NodeType, TreeSelector


@click.command(short_help="Print a file of a repository.")
@revision_argument
@click.argument("path", required=False, default="")
@click.pass_obj
def command(flags: frozenset[str], place: str, path: str) -> None:
    """Print the file at PATH in a revision of the repository at URL, or the target of a link.

    URL names a repository on a server (hpss://), in a store (sftp://, s3://, vfs://), or in a folder. It may continue
    with a Breezy branch and a path in the tree. REV is a branch, a tag, a Breezy revision number, or the beginning of
    an id. The default is the revision that a clone would check out.

    \b
    smartserver cat hpss://example.org/project README
    smartserver cat hpss://example.org/project/doc/guide.md@v1.2
    smartserver cat ~/repositories/project@5c0de11 setup.py
    """
    place, revision = split_revision(place)
    with browsing(place, flags, TreeSelector(revision, name_of(path), texts=True)) as stream:
        for entry in stream.entries(texts=True):
            if entry.type is NodeType.FOLDER:
                raise CommandError(f"{path or place} is a folder: list it with `smartserver ls`")
            for part in stream.text():
                sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()
