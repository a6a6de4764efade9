"""`smartserver setup`: make version-control tools know hpss://."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import click

from smartserver.agent import compiled
from smartserver.cli.errors import CommandError
from smartserver.client.places import SCHEMES

PROGRAMS = tuple(f"git-remote-{scheme}" for scheme in SCHEMES)
"""What git looks for on PATH when it meets one of our URLs."""

PLUGIN = "hpss"
"""The name of Breezy's plugin."""

LOADER = '''"""Finds the smartserver that `smartserver setup brz` was run from."""

import sys

sys.path += [folder for folder in {folders!r} if folder not in sys.path]
from smartserver.plugins.breezy_shim import *  # noqa: E402, F403
'''
"""The file that is written where Breezy looks for a user's plugins."""


@click.group()
def command() -> None:
    """Make a version-control tool know hpss:// URLs."""


@command.command()
def git() -> None:
    """Let git use hpss:// URLs in submodules too, and those of hpss+tls://, hpss+ssh://, hpss+sftp://
    and hpss+vfs://
    (`git config --global protocol.hpss.allow always`). With a C compiler (CC, else cc), the programs that pip
    made for git become programs in C, which start faster.

    \b
    smartserver setup git
    git clone --recurse-submodules hpss://example.org/project
    """
    if shutil.which("git") is None:
        raise CommandError("git is not on PATH: install it first")
    for scheme in SCHEMES:
        name = f"protocol.{scheme}.allow"
        done = subprocess.run(
            ["git", "config", "--global", name, "always"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise CommandError(f"git config --global: {said[-1]}")
        click.echo(f"{name} = always")
    for program in PROGRAMS:
        if shutil.which(program) is None:
            raise CommandError(f"{program} is not on PATH: add the folder that has it (where pip puts commands)")
    paths = compiled.installed()
    if paths:
        try:
            compiled.compile_to(paths, os.environ)
        except compiled.NotCompiled as why:
            click.echo(f"{', '.join(compiled.PROGRAMS)}: unchanged, as {why}")
        else:
            click.echo(f"{', '.join(compiled.PROGRAMS)}: in C")


@command.command()
def brz() -> None:
    """Let brz find the plugin (a file in Breezy's folder of plugins).

    \b
    smartserver setup brz
    brz branch hpss://example.org/project
    """
    if shutil.which("brz") is None:
        raise CommandError("brz is not on PATH: install Breezy first (pip install 'smartserver[brz]')")
    said = _brz("version")
    if re.search(r"^Breezy \(brz\) 3\.3\.", said, re.MULTILINE) is None:
        raise CommandError(f"this is {said.splitlines()[0] if said else 'no Breezy'}: the plugin needs Breezy 3.3")
    found = _location()
    if found:
        click.echo(f"brz has the plugin: {found}")
        return
    interpreter = re.search(r"Python interpreter: (\S+) (\d+\.\d+)", said)
    if interpreter is not None and interpreter[2] != ".".join(platform.python_version_tuple()[:2]):
        with_it = f"{interpreter[1]} -m pip install --user smartserver"
        raise CommandError(f"brz runs on Python {interpreter[2]}, this is {platform.python_version()}: {with_it}")
    configuration = re.search(r"Breezy configuration: (.+)", said)
    if configuration is None:
        raise CommandError("brz version does not say where Breezy's configuration is")
    folder = Path(configuration[1].strip()) / "plugins" / PLUGIN
    modules = [importlib.util.find_spec(name) for name in ("smartserver", "msgspec", "zstandard")]
    places = [os.path.dirname(os.path.dirname(found.origin)) for found in modules if found and found.origin]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(LOADER.format(folders=list(dict.fromkeys(places))), encoding="utf-8")
    except OSError as wrong:
        raise CommandError(f"{wrong.filename}: {wrong.strerror}") from wrong
    if not _location():
        raise CommandError(f"brz does not load {folder}: run `brz plugins` to see why")
    click.echo(f"brz has the plugin: {folder}")


def _brz(*words: str) -> str:
    """What a command of brz says."""
    # Where its log cannot be written `brz version` ends with a traceback.
    environment = {**os.environ, "BRZ_LOG": os.devnull}
    done = subprocess.run(["brz", *words], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise CommandError(f"brz {' '.join(words)}: {lines[-1]}")
    return done.stdout


def _location() -> str:
    """Where brz has the plugin; empty where it has none."""
    found = re.search(rf"^{PLUGIN}\b.*\n(?: .*\n)*?   (/.*)$", _brz("plugins", "-v"), re.MULTILINE)
    return found[1] if found else ""
