"""`smartserver fast-import`: read a stream for git fast-import into a repository."""

from __future__ import annotations

import click

from smartserver.cli.errors import CommandError
from smartserver.cli.fast_export import KEEP

SYSTEMS = {"git": "git sha1", "git-sha256": "git sha256", "hg": "hg sha1", "bzr": "bzr 2a"}
"""Value of `--vcs` -> name of the system on the wire."""


@click.command("fast-import", short_help="Read a stream for git fast-import into a repository.")
@click.argument("place", metavar="URL")
@click.argument("stream", metavar="[FILE]", default="-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Move branches to where they have lost commits, and tags; delete refs.")
@click.option("--import-marks", metavar="FILE", help="Know the marks in FILE, which an earlier run wrote.")
@click.option("--export-marks", metavar="FILE", help="Write all marks to FILE, once the repository is changed.")
@click.option(
    "--vcs",
    type=click.Choice(["git", "git-sha256", "hg", "bzr"]),
    help="The system of a new repository; without it, git.",
)
@KEEP
@click.pass_obj
def command(
    flags: frozenset[str],
    place: str,
    stream: str,
    force: bool,
    import_marks: str | None,
    export_marks: str | None,
    vcs: str | None,
    keep: str | None,
) -> None:
    """Read a stream in the format of git fast-import from FILE, or standard input, into the repository at URL. A
    missing repository is created.

    `git fast-export`, `hg-fast-export`, `brz fast-export`, `cvs-fast-export` and tools for Subversion write such
    streams, of any system, into a repository of any system. An error message names the line of the stream, and nothing
    is changed then.

    For a git repository, git reads the stream in a temporary folder as large as a clone, so each command of the format
    works. All refs change at once, at the end, or none does. For a repository of Mercurial or Breezy, their libraries
    read it (pip install 'smartserver[hg]', 'smartserver[brz]'). Mercurial gets a bookmark for each branch. Breezy gets
    a branch URL/NAME for each branch, and URL/trunk for master; each branch changes at once. Submodules and notes are
    left out there.

    There are two round trips. The first receives the repository, because a stream may continue any of its commits; with
    --keep, it receives only the new part. The second sends the new part of the stream. Breezy's branches are received
    and sent one by one, and a new repository takes one more trip. If that is interrupted, only some branches are
    pushed.

    URL names a repository on a server (hpss://) or in a store (sftp://, s3://); one of git's also in a folder.

    \b
    git fast-export --all | smartserver fast-import hpss://example.org/project
    cvs-fast-export ... | smartserver fast-import --vcs hg hpss://example.org/project
    """
    from smartserver.cli.git_streams import NotGit, StreamRun, known_system  # Imported late, as in `push`.
    from smartserver.cli.git_streams import fast_import as into_git

    run = StreamRun(place, flags, import_marks, export_marks, keep)
    run.check()
    system = SYSTEMS[vcs] if vcs else known_system(place, flags)
    if system.startswith("git "):
        try:
            return into_git(run, stream, system, force=force)
        except NotGit as other:
            if vcs is not None:
                raise CommandError(f"{place} is a repository of {other.vcs}, not of git") from None
            system = other.vcs
    from smartserver.cli.other_streams import fast_import as into_other

    # The cached system may be that of a deleted repository; --vcs names the system of the new one.
    return into_other(run, stream, system, force=force, may_create=vcs is not None)
