"""smartserver.cli.asking: only a yes goes on; a no and the end of the input say that nothing was done."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from smartserver.cli.asking import confirm
from smartserver.cli.errors import CommandError


def asked(answer: str) -> Result:
    @click.command()
    def command() -> None:
        confirm("Break it?", "--force")
        click.echo("broken")

    return CliRunner().invoke(command, input=answer)


def test_yes() -> None:
    result = asked("y\n")
    assert (result.exit_code, result.stdout) == (0, "broken\n")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("n\n", "nothing was done"),
        ("\n", "nothing was done"),
        ("", "nobody answered: nothing was done (--force does not ask)"),
    ],
)
def test_anything_else(answer: str, why: str) -> None:
    result = asked(answer)
    assert isinstance(result.exception, CommandError)
    assert str(result.exception) == why
    assert result.stdout == ""
    assert result.stderr.startswith("Break it? [y/N]: ")


def test_an_interrupt_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.termui, "visible_prompt_func", interrupted)
    with pytest.raises(click.Abort):
        confirm("Break it?", "--force")
