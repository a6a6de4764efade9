"""`smartserver break-lock`: reports that repositories no longer have locks. It is kept for one release."""

from __future__ import annotations

import click


@click.command("break-lock", hidden=True)
@click.argument("path")
@click.option("--force", is_flag=True)
def command(path: str, force: bool) -> None:
    """Report that there are no locks to break."""
    click.echo(f"{path}: there are no locks any more, so there is nothing to break")
