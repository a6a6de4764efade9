"""The histories to measure: a copy of a git repository or bundle, or a history that is made here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import smartserver
from bench.servers import attempt, run
from smartserver.cli.errors import CommandError

GENERATED_COMMITS = 200
"""The number of commits of the history that is made here: well under 1 MB."""

REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
"""The refs of a repository that a copy has: branches and tags."""

_FIRST = 1_200_000_000
"""The time of the first generated commit."""


def own_checkout() -> Path | None:
    """Return the project's own repository; None if the project does not run from one."""
    checkout = Path(smartserver.__file__).resolve().parent.parent
    return checkout if (checkout / ".git").exists() else None


def copy(source: Path | None, target: Path, environment: Mapping[str, str]) -> str:
    """Make a bare copy of the branches and tags of a repository or bundle (None: made here); return its main branch."""
    if source is None:
        generate(target, environment)
    else:
        if not source.is_file():
            found = attempt(["git", "-C", str(source), "rev-parse", "--is-shallow-repository"], None, environment)
            if found.returncode:
                raise CommandError(f"{source} is not a git repository: {found.stderr.strip().splitlines()[-1]}")
            if found.stdout.strip() == "true":
                raise CommandError(f"{source} is a shallow clone: the whole history is needed")
        run(["git", "init", "--quiet", "--bare", str(target)], None, environment)
        fetched = attempt(["git", "fetch", "--quiet", "--no-tags", str(source), *REFSPECS], target, environment)
        if fetched.returncode:
            what = "bundle" if source.is_file() else "repository that can be read"
            raise CommandError(f"{source} is not a git {what}: {fetched.stderr.strip().splitlines()[0]}")
    branches = run(["git", "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"], target, environment).split()
    if not branches:
        raise CommandError(f"{source} has no branch to push")
    current = _current(source or target, environment)
    branch = current if current in branches else next((b for b in ("main", "master") if b in branches), branches[0])
    run(["git", "symbolic-ref", "HEAD", f"refs/heads/{branch}"], target, environment)
    return branch


def _current(source: Path, environment: Mapping[str, str]) -> str:
    """Return the branch that HEAD names; for a bundle, the branch at the revision of its HEAD."""
    if not source.is_file():
        return attempt(["git", "-C", str(source), "symbolic-ref", "--short", "HEAD"], None, environment).stdout.strip()
    heads = [
        line.split(" ", 1) for line in run(["git", "bundle", "list-heads", str(source)], None, environment).splitlines()
    ]
    at_head = {key for key, name in heads if name == "HEAD"}
    return next((name.removeprefix("refs/heads/") for key, name in heads if key in at_head and name != "HEAD"), "")


def generate(
    target: Path, environment: Mapping[str, str], branches: Iterable[str] = ("main",), count: int = GENERATED_COMMITS
) -> None:
    """Make a bare repository: `branches` without a common commit, each of `count` small commits on a few files."""
    run(["git", "init", "--quiet", "--bare", str(target)], None, environment)
    stream = []
    for branch in branches:
        for number in range(count):
            text = "".join(f"line {line} as of commit {number - number % (line + 1)}\n" for line in range(60))
            stream.append(head(branch, number, b"Commit %d\n" % number))
            stream.append(file(f"folder{number % 3}/file{number % 7}", f"{branch}\n{text}".encode()))
    import_stream(target, environment, b"".join(stream))


def add_commit(target: Path, environment: Mapping[str, str], branch: str, files: Mapping[str, bytes]) -> None:
    """Put a commit with these files on top of a branch, or begin the branch with it."""
    found = attempt(["git", "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"], target, environment)
    parent = found.stdout.strip()
    begin = b"from %s\n" % parent.encode() if parent else b""
    stream = [head(branch, 0, b"files"), begin, *(file(name, text) for name, text in files.items())]
    import_stream(target, environment, b"".join(stream))


def head(branch: str, number: int, message: bytes, mark: bytes = b"") -> bytes:
    """Return the beginning of a commit in a `git fast-import` stream; `mark` is a line."""
    return (
        b"commit refs/heads/%s\n%scommitter Demo <demo@example.org> %d +0000\ndata %d\n%s\n"
        % (branch.encode(), mark, _FIRST + number * 3600, len(message), message)
    )  # fmt: skip


def file(name: str, text: bytes) -> bytes:
    """Return a changed file of a commit."""
    return b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text)


def import_stream(target: Path, environment: Mapping[str, str], stream: bytes) -> None:
    """Import a `git fast-import` stream."""
    done = subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=target, env=environment, input=stream, capture_output=True, check=False
    )
    if done.returncode:
        raise CommandError(f"git fast-import: status {done.returncode}: {done.stderr.decode('utf-8', 'replace')}")
