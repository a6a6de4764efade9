"""Reads the command line and runs the command that it names. The list of commands is here."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from netem.cli import meter, proxy
from netem.cli import run as across
from netem.cli.words import complain, problem


class OneLineParser(argparse.ArgumentParser):
    """A parser that prints errors in one line, without the usage block."""

    def error(self, message: str) -> NoReturn:
        """Print an error and exit with status 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line up to `--`."""
    made: argparse.ArgumentParser = OneLineParser(
        prog="netem", description="Emulate a slow link, and count the round trips on it.", allow_abbrev=False
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (proxy, across, meter):
        command.add(commands)
    return made


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names and return its exit status. The status is 1 for a system error that the command
    did not handle."""
    words = list(sys.argv[1:] if argv is None else argv)
    # The words after `--` are another program's command line, so argparse must not see them.
    client = words[words.index("--") + 1 :] if "--" in words else []
    arguments = parser().parse_args(words[: words.index("--")] if "--" in words else words)
    arguments.client = client
    try:
        status: int = arguments.run(arguments)
    except OSError as error:
        complain(problem(error))
        status = 1
    _let_go()
    return status


def _let_go() -> None:
    """Discard output that stdout does not accept. Otherwise the interpreter would fail to flush it when it exits."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
