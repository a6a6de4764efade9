"""Breezy of this interpreter, with our plugin and without; its server; where branches are, read off the disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import smartserver
from bench.store import opened
from smartserver.store.repository import PackRepository

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


def plugin_at() -> str:
    """What BRZ_PLUGINS_AT says for our plugin to be loaded from here: it need not be installed beside Breezy."""
    return f"{PLUGIN}@{Path(smartserver.__file__).parent / 'plugins' / 'breezy_shim'}"


def last_revision(branch: Path) -> str:
    """Revno and tip of a branch by its path; empty where there is none."""
    place = branch / ".bzr" / "branch" / "last-revision"
    return place.read_text(encoding="utf-8").strip() if place.exists() else ""


def serve_options(served: Path, host: str, port: int) -> Sequence[str]:
    """What `brz` is told to serve a folder, writable."""
    where = (f"--listen={host}", f"--port={port}", f"--directory={served}")
    return "serve", "--protocol=bzr", "--allow-writes", *where


def stored(served: Path, branch: str) -> tuple[PackRepository, bytes]:
    """The repository of a Breezy branch below `served`, which is the first part of its path, and the branch's ref."""
    repository, _, name = branch.partition("/")
    return opened(served, repository), name.encode() or b"."


def stored_tip(served: Path, branch: str) -> str:
    """Revno and tip of a Breezy branch, as `last-revision` of Breezy's own has them; empty where there is none."""
    repository, name = stored(served, branch)
    value = repository.snapshot().state.refs().get(name) if repository.exists() else None
    return "" if value is None else f"{value[0].attributes.decode()} {value[0].id.decode()}"
