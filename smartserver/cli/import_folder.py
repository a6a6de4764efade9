"""`smartserver import`: commit a folder to a git repository."""

from __future__ import annotations

import click

from smartserver.cli.browsing import split_revision


@click.command("import", short_help="Commit a folder to a git repository, without a clone.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.argument("place", metavar="URL[@BRANCH]")
@click.option("-m", "--message", help="The commit's message; without it, the name of the folder.")
@click.option("--author", metavar="'NAME <EMAIL>'", help="Without it, GIT_AUTHOR_NAME and _EMAIL, or user@host.")
@click.pass_obj
def command(flags: frozenset[str], folder: str, place: str, message: str | None, author: str | None) -> None:
    """Make one commit of the git repository at URL whose files are those of the folder DIR, on top of BRANCH.

    The default BRANCH is the one that a clone would check out. A missing BRANCH is created and begins a new history. A
    missing repository is created, with the branch main.

    The new commit has exactly the files of DIR, with executable bits and links, whatever a .gitignore says. A .git, .hg
    or .bzr at the top of DIR is left out. Neither git nor a clone is needed.

    Files that the branch already has are not sent. No commit of another user is lost: if the branch moves during the
    import, the import starts again from the new tip, or fails and changes nothing. A file may have 256 MiB, and so may
    all new files together, compressed. The command needs memory for twice the new files, compressed, for the largest
    one, and 700 bytes for each file in DIR.

    URL names a repository on a server (hpss://), in a store (sftp://, s3://, vfs://), or in a folder.

    \b
    smartserver import build hpss://example.org/site
    smartserver import ~/notes hpss://example.org/notes@draft -m 'As of today'
    """
    from smartserver.cli.importing import import_folder  # Imported late, as in `push`.

    place, branch = split_revision(place)
    import_folder(folder, place, branch, message, author, flags)
