"""`smartserver verify`: read a repository whole and check it."""

from __future__ import annotations

import os
import sys

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.session import client_for
from smartserver.cli.user import user
from smartserver.client.plain import plain
from smartserver.client.url import parse
from smartserver.errors import NoSuchRepository
from smartserver.store.model import VerifyReport
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
    if "://" in path:
        with one_line():
            parse(path)  # Which says what it should begin with.
        from smartserver.verbs.repository_verify import VerifyRequest, repository_verify

        with one_line(path), client_for(path, flags) as (client, location):
            result = client.call(repository_verify, VerifyRequest(), location.path)
        report = VerifyReport(result.packs, result.segments, result.records, result.size, tuple(result.problems))
    else:
        report = _verify_folder(path)
    for problem in report.problems:
        click.echo(plain(problem), err=True)
    what = [_count(report.packs, "pack"), _count(report.segments, "revision"), _count(report.records, "record")]
    verdict = _count(len(report.problems), "problem") if report.problems else "all well"
    click.echo(f"{', '.join(what)}, {size(report.size)}: {verdict}")
    if report.problems:
        sys.exit(1)


def _verify_folder(path: str) -> VerifyReport:
    from smartserver.store.repository import PackRepository
    from transports.local import LocalTransport

    if not os.path.isdir(path):
        raise CommandError(f"{path!r} is {'not a folder' if os.path.exists(path) else 'not there'}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise CommandError(f"{path} cannot be read by user {user()}")
    repository = PackRepository(LocalTransport(path))
    try:
        with one_line(path):
            return repository.verify(_progress if sys.stderr.isatty() else lambda done, total: None)
    except CommandError as wrong:
        if isinstance(wrong.__cause__, NoSuchRepository):
            found = repository.instead()
            raise CommandError(
                f"{path} is not a repository of smartserver" + (f" but {found}" if found else "")
            ) from None
        raise


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _progress(done: int, total: int) -> None:
    click.echo(f"\rverify: {100 * done // max(total, 1)} %", err=True, nl=done >= total)
