"""The command `netem`: reads the command line and runs the command it names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from netem.cli import accuracy, meter, proxy, run
from netem.cli.words import OneLineParser


def parser() -> argparse.ArgumentParser:
    """The command line up to `--`."""
    made: argparse.ArgumentParser = OneLineParser(
        prog="netem", description="Emulate a slow link, and count the round trips on it.", allow_abbrev=False
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    proxy.add(commands)
    run.add(commands)
    meter.add(commands)
    accuracy.add(commands)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `netem`; the exit status. Wrong arguments end it with status 2 and one line."""
    words = list(sys.argv[1:] if argv is None else argv)
    # What comes after is another program's command line: argparse is to know nothing of it.
    client = words[words.index("--") + 1 :] if "--" in words else []
    arguments = parser().parse_args(words[: words.index("--")] if "--" in words else words)
    arguments.client = client
    status: int = arguments.run(arguments)
    return status
