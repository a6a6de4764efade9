"""Mercurial: its environment, its server over HTTP (`hg serve`), and the command with our extension."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mercurials import LIBRARIES, LOADER

SETTINGS: Mapping[str, str] = {"HGRCPATH": "", "HGPLAIN": "1", "HGUSER": "Demo <demo@example.org>"}
"""The environment of an hg without a configuration."""


OURS = ("hg", "--config", f"extensions.hpss={LOADER}", "--config", f"hpss.path={LIBRARIES}")
"""The first words of a command with our extension."""


def serve_options(served: Path, folder: Path, host: str, port: int) -> Sequence[str]:
    """Return the command that serves the repositories in `served`, writable; the server's own files are in `folder`."""
    collection = folder / "hgweb.conf"
    collection.write_text(f"[paths]\n/ = {served}/*\n[web]\nrefreshinterval = 0\n", encoding="utf-8")
    return (
        "hg", "serve", "--address", host, "--port", str(port), "--webdir-conf", str(collection),
        "--accesslog", os.devnull, "--config", "web.push_ssl=False", "--config", "web.allow-push=*",
    )  # fmt: skip
