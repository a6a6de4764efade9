"""`smartserver log`: show the history of a repository."""

from __future__ import annotations

import sys
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache, partial

import click

from smartserver.cli.as_json import json_option, text_of, write_json
from smartserver.cli.browsing import browsing, name_of, revision_argument, split_revision
from smartserver.client.plain import plain, plain_lines
from smartserver.records.browse import LogEntry, LogSelector


@click.command(short_help="Show the history of a repository.")
@revision_argument
@click.option("-v", "--verbose", is_flag=True, help="The paths that each revision changed, too (A added, D deleted).")
@click.option("-q", "--quiet", is_flag=True, help="A line each: id, date and author.")
@click.option("-n", "--limit", type=click.IntRange(1), help="So many of the newest.")
@click.option("-r", "--range", "span", metavar="A..B", help="What B has and A has not; either may be left out.")
@click.option("--path", default="", help="Revisions that changed what is there.")
@json_option
@click.pass_obj
def command(
    flags: frozenset[str],
    place: str,
    verbose: bool,
    quiet: bool,
    limit: int | None,
    span: str | None,
    path: str,
    as_json: bool,
) -> None:
    """Show REV of the repository at URL and its ancestors, the newest first.

    URL names a repository on a server (hpss://), in a store (sftp://, s3://, vfs://), or in a folder. It may continue
    with a Breezy branch and a path in the tree; a path limits the log to revisions that changed it. REV is a branch, a
    tag, a Breezy revision number, or the beginning of an id. The default is the revision that a clone would check out.

    \b
    smartserver log hpss://example.org/project
    smartserver log -v -n 5 hpss://example.org/project@v1.2
    smartserver log -q -r v1.1..v1.2 --path doc ~/repositories/project
    """
    place, revision = split_revision(place)
    oldest, newest = _ends(span, revision)
    selector = LogSelector(newest, oldest, name_of(path), limit or 0, messages=not quiet, changes=verbose)
    with browsing(place, flags, selector) as stream:
        if as_json:
            write_json(map(partial(_fields, quiet=quiet), stream.log()))
        else:
            sys.stdout.writelines(map(_line if quiet else _whole, stream.log()))


def _ends(span: str | None, revision: str) -> tuple[str, str]:
    """Return the oldest and the newest revision that the user named; each is empty if it was not named."""
    if span is None:
        return "", revision
    oldest, dots, newest = span.partition("..")
    if not dots:
        raise click.UsageError(f"-r takes two revisions with .. between, got {span!r}; for one: URL@{span} -n 1")
    if newest and revision:
        raise click.UsageError(f"two newest revisions were given: @{revision} and ..{newest}")
    return oldest, newest or revision


def date_of(entry: LogEntry) -> str:
    """Return the date of a revision in its author's time zone, as 2026-11-26 12:00:00 +0100."""
    days, seconds = divmod(entry.seconds + 60 * entry.zone, 86_400)
    minutes = seconds // 60
    time = f"{_TWO_DIGITS[minutes // 60]}:{_TWO_DIGITS[minutes % 60]}:{_TWO_DIGITS[seconds % 60]}"
    try:
        return f"{_day(days)} {time} {_offset(entry.zone)}"
    except (ValueError, OverflowError):
        return f"{entry.seconds} seconds after 1970"  # An absurd date, as the year 20,000 or a zone of two days.


_TWO_DIGITS = [f"{number:02}" for number in range(60)]


# `datetime` takes six times as long to write a date, which was half of the time of a long log.
@lru_cache(maxsize=4096)
def _day(days: int) -> str:
    return str(date(1970, 1, 1) + timedelta(days))


@lru_cache(maxsize=64)
def _offset(minutes: int) -> str:
    """Return a time zone in git's form."""
    return f"{datetime.fromtimestamp(0, timezone(timedelta(minutes=minutes))):%z}"


def _line(entry: LogEntry) -> str:
    line = plain(f"{entry.id}  {date_of(entry)}  {entry.author}") + "\n"
    return line + _changes(entry) if entry.changes else line


def _whole(entry: LogEntry) -> str:
    message = plain_lines(entry.message.rstrip("\n")).replace("\n", "\n    ")
    parents = plain(f"parents: {' '.join(entry.parents)}") + "\n" if len(entry.parents) > 1 else ""
    head = f"revision: {plain(entry.id)}\n{parents}author: {plain(entry.author)}\ndate: {date_of(entry)}\n"
    return f"{head}{_changes(entry)}\n    {message}\n\n"


def _changes(entry: LogEntry) -> str:
    return "".join([plain(f"    {action} {text_of(path)}") + "\n" for action, path in entry.changes or ()])


def _fields(entry: LogEntry, *, quiet: bool) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": entry.id,
        "author": entry.author,
        "date": date_of(entry),
        "seconds": entry.seconds,
        "zone": entry.zone,
    }
    if not quiet:
        fields |= {"parents": entry.parents, "message": entry.message}
    if entry.changes is not None:
        fields["changes"] = [{"action": action, "path": text_of(path)} for action, path in entry.changes]
    return fields
