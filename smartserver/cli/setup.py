"""`smartserver setup`: set up version-control tools for hpss:// URLs."""

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
from smartserver.cli import hgrc
from smartserver.cli.errors import CommandError
from smartserver.client.places import SCHEMES
from smartserver.programs import exit_reason, repository_environment

PROGRAMS = tuple(f"git-remote-{scheme}" for scheme in SCHEMES)
"""The programs that git looks for on PATH for the URLs of hpss."""

PLUGIN = "hpss"
"""The name of Breezy's plugin."""

LOADER = '''"""Finds the smartserver that `smartserver setup brz` was run from."""

import sys

sys.path += [folder for folder in {folders!r} if folder not in sys.path]
from smartserver.plugins.breezy_shim import *  # noqa: E402, F403
'''
"""The content of the plugin's file in Breezy's folder for a user's plugins, for `str.format` with `folders`."""


@click.group()
def command() -> None:
    """Set up a version-control tool for hpss:// URLs."""


@command.command()
def git() -> None:
    """Let git use URLs of hpss://, hpss+tls://, hpss+ssh://, hpss+sftp://, hpss+s3:// and hpss+vfs:// in submodules
    too (`git config --global protocol.hpss.allow always`). With a C compiler (CC, else cc), replace the programs that
    pip made for git, and smartserver itself, by programs in C, which start faster.

    \b
    smartserver setup git
    git clone --recurse-submodules hpss://example.org/project
    """
    if shutil.which("git") is None:
        raise CommandError("git is not on PATH: install it first")
    for scheme in SCHEMES:
        name = f"protocol.{scheme}.allow"
        done = subprocess.run(
            ["git", "config", "--global", name, "always"],
            env=repository_environment(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip().splitlines() or [exit_reason(done.returncode)]
            raise CommandError(f"cannot set {name} in git's configuration: {said[-1]}")
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
    """Let brz find the plugin, by a file in Breezy's folder of plugins.

    \b
    smartserver setup brz
    brz branch hpss://example.org/project
    """
    if shutil.which("brz") is None:
        raise CommandError("brz is not on PATH: install Breezy first (pip install 'smartserver[brz]')")
    said = _brz("version")
    if re.search(r"^Breezy \(brz\) 3\.3\.", said, re.MULTILINE) is None:
        raise CommandError(f"this is {said.splitlines()[0] if said else 'not Breezy'}: the plugin needs Breezy 3.3")
    found = _location()
    if found:
        click.echo(f"brz has the plugin: {found}")
        return
    interpreter = re.search(r"Python interpreter: (\S+) (\d+\.\d+)", said)
    if interpreter is not None and interpreter[2] != ".".join(platform.python_version_tuple()[:2]):
        with_it = f"{interpreter[1]} -m pip install --user smartserver"
        runs = f"brz runs on Python {interpreter[2]} and this smartserver on {platform.python_version()}"
        raise CommandError(f"{runs}: install it for brz's Python with `{with_it}`")
    configuration = re.search(r"Breezy configuration: (.+)", said)
    if configuration is None:
        raise CommandError("brz version does not say where Breezy's configuration is")
    folder = Path(configuration[1].strip()) / "plugins" / PLUGIN
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(LOADER.format(folders=_places()), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    if not _location():
        raise CommandError(f"brz does not load {folder}: run `brz plugins` to see why")
    click.echo(f"brz has the plugin: {folder}")


@command.command()
def hg() -> None:
    """Let hg find the extension, by an item of `[extensions]` in the user's configuration.

    \b
    smartserver setup hg
    hg clone hpss://example.org/project
    """
    if shutil.which("hg") is None:
        raise CommandError("hg is not on PATH: install Mercurial first (pip install 'smartserver[hg]')")
    said = _hg().stdout
    found = re.search(r"version (\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < (6, 3):
        raise CommandError(f"this is {said.strip() or 'not Mercurial'}: the extension needs Mercurial 6.3 or newer")
    loader = Path(__file__).parents[2] / "hgext3rd" / "hpss.py"
    folders = os.pathsep.join(place for place in _places() if place != str(loader.parents[1]))
    with_path = [("extensions", "hpss", str(loader)), *([("hpss", "path", folders)] if folders else [])]
    for items in ([("extensions", "hpss", "")], with_path):
        problem = _hg(*[f"--config={section}.{name}={value}" for section, name, value in items]).stderr
        if "hpss" not in problem:
            break
    else:
        raise CommandError(f"hg does not load the extension: {problem.strip()}")
    file = hgrc.location(os.environ)
    try:
        before = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
        after = before
        for item in items:
            after = hgrc.with_item(after, *item)
        if after != before:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(after, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    for section, name, value in items:
        click.echo(f"{file}: [{section}] {name} = {value}".rstrip())


def _hg(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `hg version` and return its output. Standard error has messages about extensions that cannot be loaded."""
    environment = {**os.environ, "HGPLAIN": "1"}
    words = ("hg", "version", "--quiet", *words)
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [exit_reason(done.returncode)]
        raise CommandError(f"hg version: {lines[-1]}")
    return done


def _places() -> list[str]:
    """Return the folders of the package `smartserver` and of the libraries that its plugins need."""
    modules = [importlib.util.find_spec(name) for name in ("smartserver", "msgspec", "zstandard")]
    places = [os.path.dirname(os.path.dirname(found.origin)) for found in modules if found and found.origin]
    return list(dict.fromkeys(places))


def _brz(*words: str) -> str:
    """Return the output of a command of brz."""
    # If its log cannot be written, `brz version` ends with a traceback.
    environment = {**os.environ, "BRZ_LOG": os.devnull}
    done = subprocess.run(["brz", *words], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [exit_reason(done.returncode)]
        raise CommandError(f"brz {' '.join(words)}: {lines[-1]}")
    return done.stdout


def _location() -> str:
    """Return the path of the plugin in brz; empty if brz does not have it."""
    found = re.search(rf"^{PLUGIN}\b.*\n(?: .*\n)*?   (/.*)$", _brz("plugins", "-v"), re.MULTILINE)
    return found[1] if found else ""
