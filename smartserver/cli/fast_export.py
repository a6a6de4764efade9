"""`smartserver fast-export`: write the history of a repository as a stream for git fast-import."""

from __future__ import annotations

import click

SIGNED_TAGS = ("abort", "verbatim", "warn", "warn-strip", "strip")

KEEP = click.option(
    "--keep",
    metavar="DIR",
    help="Keep the copy of the repository in DIR, and receive only what it lacks. DIR is new or empty, or an earlier "
    "--keep created it, and it belongs to you.",
)


@click.command("fast-export", short_help="Write a history as a stream for git fast-import.")
@click.argument("place", metavar="URL")
@click.argument("refs", nargs=-1, metavar="[REF]...")
@click.option("--import-marks", metavar="FILE", help="Leave out what has a mark in FILE: the stream is an increment.")
@click.option("--export-marks", metavar="FILE", help="Write the marks of all that was ever written to FILE.")
@click.option(
    "--signed-tags", type=click.Choice(SIGNED_TAGS), default="warn", show_default=True,
    help="What becomes of signed tags, as of git fast-export.",
)  # fmt: skip
@click.option(
    "--reencode", type=click.Choice(("yes", "no", "abort")), default="no", show_default=True,
    help="Whether messages become UTF-8, as of git fast-export: brz reads no others.",
)  # fmt: skip
@KEEP
@click.pass_obj
def command(
    flags: frozenset[str],
    place: str,
    refs: tuple[str, ...],
    import_marks: str | None,
    export_marks: str | None,
    signed_tags: str,
    reencode: str,
    keep: str | None,
) -> None:
    """Write the history of the repository at URL to standard output, in the format of git fast-import. git, brz, hg
    and `smartserver fast-import` read it into another repository.

    The repository is received in one round trip, into a temporary folder as large as a clone. git writes the stream of
    a git repository, of all refs or of each REF. The libraries of Mercurial and Breezy (pip install 'smartserver[hg]',
    'smartserver[brz]') write the whole history of their repositories. There, a branch of the stream is a named branch
    or a bookmark of Mercurial, or a branch of Breezy. Without --keep an increment receives the whole history again.

    The stream of a git repository leaves out signatures of commits and other extra headers, old modes of files, and
    empty folders. A tag loses an inner name that differs from its ref's, and a tag of anything but a commit may be
    missing. git may refuse a stream with an author that it cannot read. Standard error says how many of these the whole
    history has. After an import these objects and their descendants have other ids.

    URL names a repository on a server (hpss://) or in a store (sftp://, s3://); one of git's also in a folder.

    \b
    smartserver fast-export hpss://example.org/project | git -C new fast-import
    smartserver fast-export hpss://example.org/git | smartserver fast-import --vcs hg hpss://example.org/hg
    smartserver fast-export --export-marks m --keep cache hpss://example.org/project main > all
    smartserver fast-export --import-marks m --export-marks m --keep cache hpss://example.org/project main > more
    """
    from smartserver.cli.git_streams import NotGit, StreamRun, known_system  # Imported late, as in `push`.
    from smartserver.cli.git_streams import fast_export as of_git

    run = StreamRun(place, flags, import_marks, export_marks, keep)
    run.check()
    system = known_system(place, flags)
    if system.startswith("git "):
        try:
            return of_git(run, refs, [f"--signed-tags={signed_tags}", f"--reencode={reencode}"])
        except NotGit as other:
            system = other.vcs
    from smartserver.cli.other_streams import fast_export as of_other

    return of_other(run, system, refs)
