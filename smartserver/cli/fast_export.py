"""`smartserver fast-export`: the history of a git repository as a stream for git fast-import."""

from __future__ import annotations

import click

SIGNED_TAGS = ("abort", "verbatim", "warn", "warn-strip", "strip")

KEEP = click.option(
    "--keep",
    metavar="DIR",
    help="Keep the bare git repository in DIR, and receive only what it lacks. DIR is new or empty, or an earlier "
    "--keep created it, and it belongs to you.",
)


@click.command("fast-export", short_help="Write a git history as a stream for git fast-import.")
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
    """Write the history of all refs, or of each REF, of the git repository at URL to standard output, in the format of
    git fast-import. Other tools read it, too, such as `brz fast-import` and `hg fastimport`.

    The repository is received in one round trip, into a temporary folder as large as a clone, and git writes the
    stream. Marks are git's. Without --keep an increment receives the whole history again.

    The stream leaves out signatures of commits and other extra headers, old modes of files, empty folders, and a tag's
    inner name where it differs from its ref's; a tag of anything but a commit may be missing. git may refuse a stream
    with an author that it cannot read. Standard error says how many of these the whole history has. After an import
    these objects and their descendants have other ids.

    URL names a repository on a server (hpss://), in a store (sftp://, s3://, vfs://), or in a folder.

    \b
    smartserver fast-export hpss://example.org/project | git -C new fast-import
    smartserver fast-export --export-marks m --keep cache hpss://example.org/project main > all
    smartserver fast-export --import-marks m --export-marks m --keep cache hpss://example.org/project main > more
    """
    from smartserver.cli.git_streams import StreamRun, fast_export  # Loaded late, as in `push`.

    options = [f"--signed-tags={signed_tags}", f"--reencode={reencode}"]
    fast_export(StreamRun(place, flags, import_marks, export_marks, keep), refs, options)
