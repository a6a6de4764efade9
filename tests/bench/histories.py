"""The histories to measure: the same revisions and files for every tool, made here, the same each time; and a Bazaar
branch, or a git repository or bundle, converted for Breezy."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.breezy import BRZ
from bench.git_histories import copy, file, head, import_stream
from bench.servers import run
from smartserver.cli.errors import CommandError

REVISIONS, FILES = 100, 50
BRZ_REVISIONS, BRZ_FILES = 300, 120
"""The size of the history that is made for Breezy."""

MOST = 3000
"""The number of revisions that are converted of a git history: the first ones."""

CHANGED_AT_ONCE = 2
"""The number of files that a revision changes."""

LINES = 40
"""The number of lines in a file."""

LEAST_LINE = 36
"""The length in bytes of the shortest line."""

_WORDS = ("branch", "commit", "distance", "harbour", "ledger", "meadow", "packet", "river", "signal", "winter")


def revisions(count: int = REVISIONS, files: int = FILES) -> Iterator[dict[str, bytes]]:
    """Yield the changes of each revision: names and whole texts. The first revision adds all files."""
    chance = random.Random("compare")
    names = [f"{'abcde'[number % 5]}{number:02}" for number in range(files)]
    texts = {name: [_line(chance) for _ in range(LINES)] for name in names}
    yield {name: _text(lines) for name, lines in texts.items()}
    for _ in range(count - 1):
        changed = chance.sample(names, min(CHANGED_AT_ONCE, files))
        for name in changed:
            texts[name][chance.randrange(LINES)] = _line(chance)
        yield {name: _text(texts[name]) for name in changed}


def _line(chance: random.Random) -> str:
    return " ".join([*chance.choices(_WORDS, k=6), str(chance.randrange(1_000_000))])


def lines_of(chance: random.Random, size: int) -> bytes:
    """Return a text of so many bytes."""
    text = _text([_line(chance) for _ in range(size // LEAST_LINE + 1)])
    return text[: size - 1] + b"\n"


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def git_stream(count: int = REVISIONS, files: int = FILES) -> bytes:
    """Return the history as a `git fast-import` stream."""
    parts: list[bytes] = []
    for number, changed in enumerate(revisions(count, files)):
        parts.append(head("main", number, b"Revision %d\n" % number, b"mark :%d\n" % (number + 1)))
        if number:
            parts.append(b"from :%d\n" % number)  # Breezy's importer needs it said.
        parts += [file(name, text) for name, text in changed.items()]
    return b"".join(parts)


def prepare(source: Path | None, folder: Path, environment: Mapping[str, str], most: int = MOST) -> str:
    """Make `brz`, a shared repository with the branch `trunk`, in one pack, below `folder`; return a note on it."""

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
        stream.write_bytes(git_stream(BRZ_REVISIONS, BRZ_FILES))
        made_from = "made here"
    else:
        _first_revisions(source, folder / "git", environment, stream, most)
        made_from = f"git, its first {most} revisions at most"
    if stream.exists():
        _import(stream, folder / "brz", environment)
        (folder / "brz" / "main").rename(trunk)
    brz("pack", "--quiet", str(trunk))
    return made_from


def prepare_hg(source: Path | None, target: Path, environment: Mapping[str, str]) -> None:
    """Make a Mercurial repository: a copy, a conversion of a git repository or bundle, or a history made here."""
    if source is not None and (source / ".hg").is_dir():
        run(["hg", "clone", "--quiet", "--noupdate", "--pull", str(source), str(target)], None, environment)
        return
    git = target.parent.parent / "git"
    if source is None:
        run(["git", "init", "--quiet", "--bare", str(git)], None, environment)
        import_stream(git, environment, git_stream())
    else:
        copy(source, git, environment)
        for tag in run(["git", "tag"], git, environment).split():  # The converter goes by branches alone.
            run(["git", "branch", f"tag-{tag}", f"{tag}^{{commit}}"], git, environment)
    run(["hg", "--config", "extensions.convert=", "convert", "--quiet", str(git), str(target)], None, environment)


def _import(stream: Path, repository: Path, environment: Mapping[str, str]) -> None:
    """Run Breezy's importer on a pipe. With a file it would count the commits first, and that fails on merges."""
    words = [*BRZ, "fast-import", "--quiet", "-", str(repository)]
    with stream.open("rb") as file:
        done = subprocess.run(words, env=environment, stdin=file, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").splitlines() or [f"status {done.returncode}"]
        raise CommandError(f"brz fast-import: {next((line for line in said if 'ERROR' in line), said[-1])}")


def _first_revisions(source: Path, folder: Path, environment: Mapping[str, str], stream: Path, most: int) -> None:
    """Write the newest main-line revision among the first `most`, with its history, as `git fast-import` reads it."""
    branch = copy(source, folder, environment)
    first = run(["git", "rev-list", "--topo-order", "--reverse", branch], folder, environment).split()[:most]
    main_line = set(run(["git", "rev-list", "--first-parent", branch], folder, environment).split())
    newest = next(revision for revision in reversed(first) if revision in main_line)
    run(["git", "update-ref", "refs/heads/main", newest], folder, environment)
    words = ["git", "fast-export", "--reencode=yes", "--signed-tags=strip", "refs/heads/main"]
    with stream.open("wb") as file:
        done = subprocess.run(words, cwd=folder, env=environment, stdout=file, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise CommandError(f"git fast-export: status {done.returncode}: {done.stderr.decode('utf-8', 'replace')}")
