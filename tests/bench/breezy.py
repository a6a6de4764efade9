"""Breezy run by this interpreter, with our plugin and without: where both are found."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import smartserver
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import attempt

BRZ = (sys.executable, "-m", "breezy")
"""The brz of this interpreter."""

PLUGIN = "hpss"
"""What our plugin is called."""

WITHOUT_PLUGIN: Mapping[str, str] = {"BRZ_DISABLE_PLUGINS": PLUGIN}
"""The environment of a stock brz: ours may be installed beside it."""


def settings(folder: Path) -> dict[str, str]:
    """The environment of a brz with a configuration below `folder`, and no log."""
    return {
        "BRZ_HOME": str(folder / "brz"), "BRZ_EMAIL": "Demo <demo@example.org>", "BRZ_LOG": "/dev/null",
        "BRZ_PROGRESS_BAR": "none",
    }  # fmt: skip


def breezy_library(tools: Path | None) -> Mapping[str, str]:
    """The environment in which this interpreter finds Breezy.

    `tools`: where the programs of an environment that has it are, for where this one has not.
    """
    if importlib.util.find_spec("breezy.bzr") is not None:
        return {}
    if tools is not None:
        where = "import os, sys, breezy.bzr; print(os.path.dirname(breezy.__path__[0]), sys.version_info[:2])"
        done = attempt([str(tools / "python"), "-c", where], None, os.environ)
        folder, _, version = done.stdout.strip().partition(" ")
        if done.returncode == 0 and version == str(tuple(sys.version_info[:2])):
            return {"PYTHONPATH": folder}
    raise CommandError("there is no Breezy for this Python: pip install 'smartserver[brz]'")


def plugin_at() -> str:
    """What BRZ_PLUGINS_AT says for our plugin to be loaded from here: it need not be installed beside Breezy."""
    return f"{PLUGIN}@{Path(smartserver.__file__).parent / 'plugins' / 'breezy_shim'}"
