"""Breezy of this interpreter, with our plugin and without; its server; and its branches, as read off the disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import smartserver

BRZ = (sys.executable, "-m", "breezy")
"""The command of brz for this interpreter."""

PLUGIN = "hpss"
"""The name of our plugin."""

WITHOUT_PLUGIN: Mapping[str, str] = {"BRZ_DISABLE_PLUGINS": PLUGIN}
"""The environment of a stock brz, beside which our plugin may be installed."""


def settings(folder: Path) -> dict[str, str]:
    """Return the environment of a brz that has its configuration below `folder` and no log."""
    return {
        "BRZ_HOME": str(folder / "brz"), "BRZ_EMAIL": "Demo <demo@example.org>", "BRZ_LOG": "/dev/null",
        "BRZ_PROGRESS_BAR": "none",
    }  # fmt: skip


def plugin_at() -> str:
    """Return the value of BRZ_PLUGINS_AT that loads our plugin from here: it need not be installed beside Breezy."""
    return f"{PLUGIN}@{Path(smartserver.__file__).parent / 'plugins' / 'breezy_shim'}"


def last_revision(branch: Path) -> str:
    """Return revno and tip of the branch at a path; empty if there is none."""
    place = branch / ".bzr" / "branch" / "last-revision"
    return place.read_text(encoding="utf-8").strip() if place.exists() else ""


def serve_options(served: Path, host: str, port: int) -> Sequence[str]:
    """Return the words after `brz` that serve a folder, writable."""
    where = (f"--listen={host}", f"--port={port}", f"--directory={served}")
    return "serve", "--protocol=bzr", "--allow-writes", *where
