"""`smartserver verify`: read all of a repository and check it."""

from __future__ import annotations

import sys

import click

from smartserver.cli.errors import one_line
from smartserver.cli.place import call, count, is_url, repository_in
from smartserver.client.plain import plain
from smartserver.store.model import VerifyReport
from smartserver.trace.text import size
from transports.errors import CodedError


@click.command()
@click.argument("path")
@click.option("--mend", is_flag=True, help="First put right what an earlier release took from clients unproved.")
@click.pass_obj
def command(flags: frozenset[str], path: str, mend: bool) -> None:
    """Read every pack of the repository at PATH and check every record in it. PATH is a folder, or the URL of a
    server (hpss://) or of a store (sftp://, s3://, vfs://). A server checks the repository itself; the packs of a store
    are all read over the link.

    The exit status is 1 if the repository is damaged; each damage is a line that names the pack, the offset and the
    key. If the connection is lost after damage was found, the last line says that the rest was not checked.

    Earlier releases stored claims of clients without a check: the target of a tag, the number of a revision, entries of
    maps that name no revision. Such a line says "smartserver verify --mend puts it right". On a server that needs the
    level `admin`.

    \b
    smartserver verify ~/repositories/project
    smartserver verify hpss://example.org/project
    smartserver verify sftp://me@example.org/srv/code/project
    """
    if mend:
        _mend(path, flags)
    if is_url(path):
        from smartserver.verbs.repository_verify import VerifyRequest, repository_verify

        result = call(path, flags, repository_verify, VerifyRequest())
        read = result.packs, result.segments, result.records, result.size
        report = VerifyReport(*read, tuple(result.problems), result.ghosts, result.lost)
    else:
        with repository_in(path, flags) as repository:
            report = repository.verify(_progress if sys.stderr.isatty() else lambda done, total: None)
    for problem in report.problems:
        click.echo(plain(problem), err=True)
    what = [count(report.packs, "pack"), count(report.segments, "revision"), count(report.records, "record")]
    verdict = count(len(report.problems), "problem") if report.problems else "all well"
    click.echo(f"{', '.join(what)}, {size(report.size)}: {verdict}")
    if report.lost:
        lost = count(report.lost, "change")
        click.echo(f"{lost} on disk that the log lacks: smartserver recover lists them")
    if report.problems:
        sys.exit(1)


def _mend(path: str, flags: frozenset[str]) -> None:
    """Correct the false claims that earlier releases stored, and print each correction."""
    from smartserver.cli.copying import repository_at  # Imports both ends of a connection.
    from smartserver.verbs.repository_mend import MendRequest, MendResult, repository_mend

    left = True
    with one_line(path), repository_at(path, flags) as remote:
        while left:
            (result,) = remote.ask((repository_mend, MendRequest())).results
            if isinstance(result, CodedError):
                raise result
            assert isinstance(result, MendResult), "the answer of the verb"
            left = result.left
            for line in result.mended:
                click.echo(plain(f"mended: {line}"))
            if result.count > len(result.mended):
                click.echo(f"mended: and {result.count - len(result.mended)} more")


def _progress(done: int, total: int) -> None:
    click.echo(f"\rverify: {100 * done // max(total, 1)} %", err=True, nl=done >= total)
