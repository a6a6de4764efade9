"""`smartserver import`: a folder as one new commit of a git repository."""

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

    Without BRANCH it is the one that a clone would check out; of a new repository, which is made, that is main. The
    branch has the files of DIR then, and no others: executable files, links and all, whatever a .gitignore says. A
    .git, .hg or .bzr at the top of DIR is left out. Neither git nor a clone is needed.

    Files that the branch has already are not sent. Nobody else's commit is lost: if the branch moves meanwhile, nothing
    is changed. A commit may bring 256 MiB of new files (compressed), and no file of more. The command takes memory for
    twice the new files, compressed, and for the largest one; and 700 bytes for each file in DIR.

    URL is that of a server (hpss://), or of a store, or a folder with a repository.

    \b
    smartserver import build hpss://example.org/site
    smartserver import ~/notes hpss://example.org/notes@draft -m 'As of today'
    """
    from smartserver.cli.importing import import_folder  # Loaded late, as in `push`.

    place, branch = split_revision(place)
    import_folder(folder, place, branch, message, author, flags)
