"""The history both sides get: made here, or from a Bazaar branch or a git repository or bundle, in Breezy's form."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from smartserver.cli import histories
from smartserver.cli.compare import history
from smartserver.cli.errors import CommandError
from smartserver.cli.peers.brz import Brz
from smartserver.cli.servers import run

REVISIONS, FILES = 300, 120
"""Of the history that is made."""

MOST = 3000
"""Revisions of a git history that are converted, the first ones."""

Run = Callable[..., str]
"""Runs brz in the folder of the fixtures."""


def prepare(source: Path | None, folder: Path, brz: Run, environment: Mapping[str, str]) -> str:
    """Make `brz`, a shared repository with the branch `trunk`, in one pack, below `folder`; what it was made from.

    Raises:
        CommandError: `source` is nothing that can be converted.
    """
    if source is not None and (source / ".bzr").is_dir():
        brz("init-shared-repository", "--quiet", "--no-trees", "brz")
        brz("branch", "--quiet", str(source.resolve()), "brz/trunk")
        brz("pack", "--quiet", "brz/trunk")
        # That has the branch for its parent, which no server may be asked for.
        (folder / "brz" / "trunk" / ".bzr" / "branch" / "branch.conf").write_text("", encoding="utf-8")
        return "a bzr branch"
    if source is None:
        (folder / "stream").write_bytes(history.git_stream(REVISIONS, FILES))
    else:
        _first_revisions(source, folder / "git", environment, folder / "stream")
    Brz.convert(lambda _, *words: brz(*words), folder)
    (folder / "stream").unlink()
    return "made here" if source is None else f"git, its first {MOST} revisions at most"


def _first_revisions(source: Path, copy: Path, environment: Mapping[str, str], stream: Path) -> None:
    """Write the newest revision of the main line with only first ones behind it as `git fast-import` reads it."""
    branch = histories.copy(source, copy, environment)
    first = run(["git", "rev-list", "--topo-order", "--reverse", branch], copy, environment).split()[:MOST]
    main_line = set(run(["git", "rev-list", "--first-parent", branch], copy, environment).split())
    newest = next(revision for revision in reversed(first) if revision in main_line)
    run(["git", "update-ref", "refs/heads/main", newest], copy, environment)
    words = ["git", "fast-export", "--reencode=yes", "--signed-tags=strip", "refs/heads/main"]
    with stream.open("wb") as file:
        done = subprocess.run(words, cwd=copy, env=environment, stdout=file, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise CommandError(f"git fast-export: status {done.returncode}: {done.stderr.decode('utf-8', 'replace')}")
