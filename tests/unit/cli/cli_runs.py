"""Commands as a user runs them, and where they find repositories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from smartserver.cli.errors import CommandError
from smartserver.cli.main import group

Places = tuple[Path, Callable[[str], str]]
"""The folder of the repositories, and a function that names one of them on the command line."""


def run(*words: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(group, [str(each) for each in words], input=answer)


def program(path: Path, script: str) -> str:
    """Write a program of the shell; its path."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def why(result: Result) -> str:
    """The line the command would end with."""
    assert isinstance(result.exception, CommandError), (result.exception, result.output)
    return str(result.exception)
