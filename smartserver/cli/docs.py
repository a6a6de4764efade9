"""`smartserver docs`: write the generated reference pages."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(hidden=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("doc/built"),
    show_default=True,
    help="Where the pages are written.",
)
def command(folder: Path) -> None:
    """Write the reference pages of commands, verbs, errors, bans, counters and traces."""
    from smartserver.cli.reference import pages

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        click.echo(path)
