"""`smartserver fast-import`: a stream for git fast-import into a git repository on a server."""

from __future__ import annotations

import click

from smartserver.cli.fast_export import KEEP


@click.command("fast-import", short_help="Read a stream for git fast-import into a git repository.")
@click.argument("place", metavar="URL")
@click.argument("stream", metavar="[FILE]", default="-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Move branches to where they have lost commits, and tags.")
@click.option("--import-marks", metavar="FILE", help="Know the marks in FILE, which an earlier run wrote.")
@click.option("--export-marks", metavar="FILE", help="Write all marks to FILE, once the repository is changed.")
@click.option(
    "--object-format", type=click.Choice(["sha1", "sha256"]), default="sha1", help="Of a repository that is made."
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
    object_format: str,
    keep: str | None,
) -> None:
    """Read a stream in the format of git fast-import from FILE, or standard input, into the git repository at URL. A
    missing repository is created. All refs change at once, at the end, or none does.

    `git fast-export`, `brz fast-export`, hg-fast-export and tools for Subversion write such streams. git reads the
    stream, in a temporary folder as large as a clone, so each command of the format works. An error message names the
    line of the stream.

    There are two round trips. The first receives the repository, because a stream may continue any of its commits; with
    --keep, it receives only what is new. The second sends what is new in the stream.

    URL names a repository on a server (hpss://), in a store (sftp://, s3://, vfs://), or in a folder.

    \b
    git fast-export --all | smartserver fast-import hpss://example.org/project
    hg-fast-export.sh ... | smartserver fast-import --export-marks marks hpss://example.org/project
    """
    from smartserver.cli.git_streams import StreamRun, fast_import  # Loaded late, as in `push`.

    fast_import(StreamRun(place, flags, import_marks, export_marks, keep), stream, object_format, force=force)
