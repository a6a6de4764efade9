"""The question before an operation that cannot be undone."""

from __future__ import annotations

import click

from smartserver.cli.errors import CommandError


def confirm(question: str, otherwise: str) -> None:
    """Ask a question, and return only if the answer is yes. `otherwise`: the option that skips the question.

    Raises:
        click.Abort: the user pressed ^C.
        CommandError: the answer was no, or no answer could be read.
    """
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        click.echo(err=True)
        raise CommandError(f"no answer: nothing was done (with {otherwise} no question is asked)") from None
    raise CommandError("nothing was done")
