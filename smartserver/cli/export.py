"""`smartserver export`: write a tree of a repository as files."""

from __future__ import annotations

import click

from smartserver.cli.browsing import browsing, name_of, revision_argument, split_revision
from smartserver.records.browse import TreeSelector


@click.command(short_help="Write a tree of a repository into a new folder.")
@revision_argument
@click.argument("folder", metavar="DIR")
@click.option("--path", default="", help="The folder or file inside the tree that is written.")
@click.pass_obj
def command(flags: frozenset[str], place: str, folder: str, path: str) -> None:
    """Write the tree of a revision of the repository at URL into the new folder DIR.

    DIR appears when the tree is complete; an interrupted export leaves nothing. Nothing is written outside DIR,
    whatever the server sends. Submodules become empty folders. Links are written as links.

    URL names a repository on a server (hpss://), in a store (sftp://, s3://, vfs://), or in a folder. It may continue
    with a Breezy branch and a path in the tree. REV is a branch, a tag, a Breezy revision number, or the beginning of
    an id. The default is the revision that a clone would check out.

    \b
    smartserver export hpss://example.org/project project
    smartserver export hpss://example.org/project@v1.2 /tmp/guide --path doc
    smartserver export ~/repositories/project/doc@main /tmp/guide
    """
    from smartserver.cli.exporting import write_tree  # Imported late, as in `push`.

    place, revision = split_revision(place)
    selector = TreeSelector(revision, name_of(path), deep=True, texts=True)
    with browsing(place, flags, selector) as stream:
        write_tree(stream, folder, name_of(path or place).rpartition(b"/")[2])
