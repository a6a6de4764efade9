"""`make bench`: measurements a user can repeat, ours beside git's, each with its bar."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

COMMANDS = (
    "demo", "cluster", "trips", "history", "brz", "hg", "commits", "pushes", "writers", "near", "papers", "shared",
    "gateway",
)  # fmt: skip
"""Each is a module or package of `bench` with a `command`."""


class Commands(click.Group):
    """Loads a measurement's module when it is run or its help is shown."""

    def __init__(self, modules: Mapping[str, str], **more: Any) -> None:
        super().__init__(**more)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return None
        command: click.Command = importlib.import_module(self._modules[cmd_name]).command
        return command


@click.command(
    name="bench",
    cls=Commands,
    modules={name: f"bench.{name}" for name in COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Measure: ours beside git's in one run, with the bar; exit status 1 when one is missed.

    Servers run on loopback, ours and `git daemon`, in a temporary folder that is removed. PATH is a git repository or
    a bundle, and only read. `bench NAME ARGUMENTS` is `make bench ARGS="NAME ARGUMENTS"`.

    \b
    make bench ARGS="trips"
    make bench ARGS="commits $HOME/src/project -n 100"
    """
