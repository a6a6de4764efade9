"""`smartserver setup`: make version-control tools know hpss://."""

from __future__ import annotations

import shutil
import subprocess

import click

from smartserver.cli.errors import CommandError

PROGRAM = "git-remote-hpss"
"""What git looks for on PATH when it meets hpss://."""


@click.group()
def command() -> None:
    """Make a version-control tool know hpss:// URLs."""


@command.command()
def git() -> None:
    """Let git use hpss:// in submodules too (`git config --global protocol.hpss.allow always`).

    \b
    smartserver setup git
    git clone --recurse-submodules hpss://example.org/project
    """
    if shutil.which("git") is None:
        raise CommandError("git is not on PATH: install it first")
    done = subprocess.run(
        ["git", "config", "--global", "protocol.hpss.allow", "always"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise CommandError(f"git config --global: {said[-1]}")
    click.echo("protocol.hpss.allow = always")
    if shutil.which(PROGRAM) is None:
        raise CommandError(f"{PROGRAM} is not on PATH: add the folder that has it (where pip puts commands)")
