"""`smartserver break-lock`: says that there are no locks any more; kept for one release."""

from __future__ import annotations

import click


@click.command("break-lock", hidden=True)
@click.argument("path")
@click.option("--force", is_flag=True)
def command(path: str, force: bool) -> None:
    """Say that there is nothing to break."""
    click.echo(f"{path}: there are no locks any more, so there is nothing to break")
