"""hg with our extension, as tests run it: the first on PATH. `make hg-versions` puts other releases there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
from sources import ROOT

LOADER = ROOT / "hgext3rd/hpss.py"

LIBRARIES = Path(msgspec.__file__).parents[1]
"""The folder of our compiled libraries."""

HGRC = """[ui]
username = A <a@example.org>
[extensions]
hpss = {loader}
[hpss]
path = {libraries}
"""


class Mercurial:
    """A user of hg with a home of its own."""

    def __init__(self, home: Path, hgrc: str = HGRC) -> None:
        self.home = home
        (home / ".hgrc").write_text(hgrc.format(loader=LOADER, libraries=LIBRARIES))
        kept = ("LANG", "LC_ALL", "PATH", "TMPDIR", "SMARTSERVER_DEBUG", "SMARTSERVER_AGENT")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        self.environment |= {"HOME": str(home), "HGRCPATH": str(home / ".hgrc"), "HGPLAIN": "1"}

    def run(self, *words: str, where: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail, and return its result."""
        return subprocess.run(
            ["hg", *words],
            cwd=where or self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def __call__(self, *words: str, where: Path | None = None) -> str:
        """Run a command that must succeed without a warning, and return its output."""
        done = self.run(*words, where=where)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout
