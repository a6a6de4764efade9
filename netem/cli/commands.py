"""Which commands there are: reads the command line and runs the one it names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from netem.cli import accuracy, meter, proxy
from netem.cli import run as across


class OneLineParser(argparse.ArgumentParser):
    """A parser that complains in one line, instead of with the usage block."""

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """The command line up to `--`."""
    made: argparse.ArgumentParser = OneLineParser(
        prog="netem", description="Emulate a slow link, and count the round trips on it.", allow_abbrev=False
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (proxy, across, meter, accuracy):
        command.add(commands)
    return made


def run(argv: Sequence[str] | None = None) -> int:
    """Run it; the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    # What comes after is another program's command line: argparse is to know nothing of it.
    client = words[words.index("--") + 1 :] if "--" in words else []
    arguments = parser().parse_args(words[: words.index("--")] if "--" in words else words)
    arguments.client = client
    status: int = arguments.run(arguments)
    return status
