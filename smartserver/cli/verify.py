"""`smartserver verify`: read a repository whole and check it."""

from __future__ import annotations

import sys

import click

from smartserver.cli.errors import one_line
from smartserver.cli.session import client_for
from smartserver.trace.text import size


@click.command()
@click.argument("path")
@click.pass_obj
def command(flags: frozenset[str], path: str) -> None:
    """Read every pack of the repository at PATH, a folder or an hpss:// URL, and check every record in it.

    Exit status 1 when something is damaged; each damage is a line that names the pack, the offset and the key.

    \b
    smartserver verify ~/repositories/project
    smartserver verify hpss://example.org/project
    """
    from smartserver.store.model import VerifyReport

    if path.startswith("hpss://"):
        from smartserver.verbs.repository_verify import VerifyRequest, repository_verify

        with one_line(path), client_for(path, flags) as (client, location):
            result = client.call(repository_verify, VerifyRequest(), location.path)
        report = VerifyReport(result.packs, result.segments, result.records, result.size, tuple(result.problems))
    else:
        from smartserver.store.repository import PackRepository
        from transports.local import LocalTransport

        with one_line():
            repository = PackRepository(LocalTransport(path))
            report = repository.verify(_progress if sys.stderr.isatty() else lambda done, total: None)
    for problem in report.problems:
        click.echo(problem, err=True)
    click.echo(
        f"{report.packs} packs, {report.segments} revisions, {report.records} records, {size(report.size)}: "
        + (f"{len(report.problems)} damaged" if report.problems else "all well")
    )
    if report.problems:
        sys.exit(1)


def _progress(done: int, total: int) -> None:
    click.echo(f"\rverify: {100 * done // max(total, 1)} %", err=True, nl=done >= total)
