"""`smartserver baseline`: the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from smartserver.cli.errors import CommandError

PAGES = (Path("doc/performance.md"), Path("doc/explanation/why-rpc.md"))
"""Where the table stands, in a checkout."""


@click.command(short_help="Count the same operations by SFTP, by file-level verbs and by RPC.")
@click.option("--rtt", default="1000ms", show_default=True, help="Round-trip time of the link.")
@click.option("--only", multiple=True, metavar="WAY", help="Some ways: rpc, vfs, sftp; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--write", is_flag=True, help=f"Also write {PAGES[0]} and {PAGES[1]}, here.")
def command(rtt: str, only: Sequence[str], as_json: bool, write: bool) -> None:
    """The same operations three ways over the same link: by SFTP, by the file-level (VFS) verbs, and by RPC.

    It starts its own servers on loopback, an OpenSSH server among them, with an emulated link in front, and counts what
    passes: round trips, bytes, seconds. Beside them stands what Breezy needs. Each outcome is looked at. Exit status 1
    when one is wrong or takes more round trips than it may. Takes about six minutes; with --rtt 20ms, one. With less,
    what is answered while more is being sent counts as more round trips than it takes.

    \b
    smartserver baseline
    smartserver baseline --rtt 20ms --only sftp
    """
    from netem.units import parse_time
    from smartserver.cli.baseline.measure import names, run_baseline
    from smartserver.cli.baseline.table import BEGIN, END, markdown, page
    from smartserver.cli.compare.table import put

    if unknown := [name for name in only if name not in names()]:
        raise click.UsageError(f"--only {unknown[0]!r}: there is {', '.join(names())}")
    if write and only:
        raise click.UsageError("--write takes no --only: the pages show every way")
    try:
        seconds = parse_time(rtt)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from None
    before = [each.read_text(encoding="utf-8") for each in PAGES] if write else []
    for text in before:
        put(text, "", BEGIN, END)  # What is wrong with a page is said before anything is measured.
    found = run_baseline(seconds, only, lambda words: click.echo(words, err=True))
    for path, text, inside in zip(PAGES, before, (markdown(found), page(found)), strict=False):
        path.write_text(put(text, inside, BEGIN, END), encoding="utf-8")
    click.echo(json.dumps(found.as_json()) if as_json else markdown(found))
    for problem in found.problems:
        click.echo(f"wrong: {problem}", err=True)
    if found.problems:
        sys.exit(1)
