"""The history both sides get: made here, or from a Bazaar branch or a git repository or bundle, in Breezy's form."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.breezy import BRZ
from bench.compare import history
from smartserver.cli import histories
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import run

REVISIONS, FILES = 300, 120
"""Of the history that is made."""

MOST = 3000
"""Revisions of a git history that are converted, the first ones."""


def prepare(source: Path | None, folder: Path, environment: Mapping[str, str], most: int = MOST) -> str:
    """Make `brz`, a shared repository with the branch `trunk`, in one pack, below `folder`; what it was made from.

    `most`: revisions of a git history that are converted, the first ones.

    Raises:
        CommandError: `source` is nothing that can be converted.
    """

    def brz(*words: str) -> None:
        run([*BRZ, *words], folder, environment)

    brz("init-shared-repository", "--quiet", "--no-trees", "brz")
    trunk, stream = folder / "brz" / "trunk", folder / "stream"
    if source is not None and (source / ".bzr").is_dir():
        brz("branch", "--quiet", str(source.resolve()), str(trunk))
        # Its parent is the branch it came from, which no server may be asked for.
        (trunk / ".bzr" / "branch" / "branch.conf").write_text("", encoding="utf-8")
        made_from = "a bzr branch"
    elif source is None:
        stream.write_bytes(history.git_stream(REVISIONS, FILES))
        made_from = "made here"
    else:
        _first_revisions(source, folder / "git", environment, stream, most)
        made_from = f"git, its first {most} revisions at most"
    if stream.exists():
        _import(stream, folder / "brz", environment)
        (folder / "brz" / "main").rename(trunk)
    brz("pack", "--quiet", str(trunk))
    return made_from


def _import(stream: Path, repository: Path, environment: Mapping[str, str]) -> None:
    """Run Breezy's importer. From a file it would count first, in which it fails over merges."""
    words = [*BRZ, "fast-import", "--quiet", "-", str(repository)]
    with stream.open("rb") as file:
        done = subprocess.run(words, env=environment, stdin=file, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").splitlines() or [f"status {done.returncode}"]
        raise CommandError(f"brz fast-import: {next((line for line in said if 'ERROR' in line), said[-1])}")


def _first_revisions(source: Path, copy: Path, environment: Mapping[str, str], stream: Path, most: int) -> None:
    """Write the newest revision of the main line with only first ones behind it as `git fast-import` reads it."""
    branch = histories.copy(source, copy, environment)
    first = run(["git", "rev-list", "--topo-order", "--reverse", branch], copy, environment).split()[:most]
    main_line = set(run(["git", "rev-list", "--first-parent", branch], copy, environment).split())
    newest = next(revision for revision in reversed(first) if revision in main_line)
    run(["git", "update-ref", "refs/heads/main", newest], copy, environment)
    words = ["git", "fast-export", "--reencode=yes", "--signed-tags=strip", "refs/heads/main"]
    with stream.open("wb") as file:
        done = subprocess.run(words, cwd=copy, env=environment, stdout=file, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise CommandError(f"git fast-export: status {done.returncode}: {done.stderr.decode('utf-8', 'replace')}")
