"""`smartserver docs`: write or check the generated pages of the reference."""

from __future__ import annotations

from pathlib import Path

import click

from smartserver.cli.errors import CommandError


@click.command(hidden=True)
@click.option("--write/--check", default=False, help="Write the pages, or say which are stale (default).")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("doc/reference"),
    show_default=True,
    help="Where they are.",
)
def command(write: bool, folder: Path) -> None:
    """Make the reference pages from the declarations."""
    from smartserver.cli.reference import pages

    if not folder.is_dir():
        raise CommandError(
            f"{folder} is not a folder: this command needs a checkout of smartserver, and to run in its top folder"
        )
    stale = []
    for name, text in pages().items():
        path = folder / name
        if write:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
    if stale:
        raise CommandError(f"stale: {', '.join(stale)}; run `smartserver docs --write`")
