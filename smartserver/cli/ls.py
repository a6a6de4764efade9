"""`smartserver ls`: list a folder of a repository."""

from __future__ import annotations

import sys

import click

from smartserver.cli.as_json import json_option, text_of, write_json
from smartserver.cli.browsing import browsing, name_of, revision_argument, split_revision
from smartserver.client.plain import plain
from smartserver.records.browse import ListedNode, NodeType, TreeSelector

LETTERS = {
    NodeType.FOLDER: "d",
    NodeType.FILE: "-",
    NodeType.EXECUTABLE: "x",
    NodeType.LINK: "l",
    NodeType.SUBMODULE: "s",
}
"""The letter of each type in a long listing."""

ENDS = {NodeType.FOLDER: "/"}
"""The suffix of a name, by its type."""


@click.command(short_help="List a folder of a repository.")
@revision_argument
@click.argument("path", required=False, default="")
@click.option("-R", "--recursive", "deep", is_flag=True, help="All below it, too.")
@click.option("-l", "--long", is_flag=True, help="Types and sizes, too: d folder, x executable, l link, s submodule.")
@json_option
@click.pass_obj
def command(flags: frozenset[str], place: str, path: str, deep: bool, long: bool, as_json: bool) -> None:
    """List the folder or file at PATH, by default the root, in a revision of the repository at URL.

    URL names a repository on a server (hpss://), in a store (sftp://, s3://, vfs://), or in a folder. It may continue
    with a Breezy branch and a path in the tree. REV is a branch, a tag, a Breezy revision number, or the beginning of
    an id. The default is the revision that a clone would check out.

    \b
    smartserver ls hpss://example.org/project
    smartserver ls -R -l hpss://example.org/project@v1.2 doc
    smartserver ls --json ~/repositories/project
    """
    place, revision = split_revision(place)
    single = text_of(name_of(path or place).rpartition(b"/")[2])
    selector = TreeSelector(revision, name_of(path), deep=deep, sizes=long or as_json)
    with browsing(place, flags, selector) as stream:
        entries = (each for each in stream.entries(texts=False) if each.path or each.type is not NodeType.FOLDER)
        if as_json:
            write_json(_fields(entry, single) for entry in entries)
        else:
            sys.stdout.writelines(_line(each, single, long=long) for each in entries)


def _line(entry: ListedNode, single: str, *, long: bool) -> str:
    name = plain(text_of(entry.path) or single) + ENDS.get(entry.type, "")
    size = "" if entry.size < 0 else f"{entry.size:,}"
    return f"{LETTERS[entry.type]} {size:>13} {name}\n" if long else f"{name}\n"


def _fields(entry: ListedNode, single: str) -> dict[str, object]:
    fields: dict[str, object] = {"path": text_of(entry.path) or single, "type": entry.type.name.lower()}
    return fields | {"size": entry.size} if entry.size >= 0 else fields
