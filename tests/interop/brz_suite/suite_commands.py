"""The rules by which the locations of a test's command become remote, in each arrangement."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from suite_moves import Places, is_branch

READ = (
    "annotate ancestry bind branch branches cat cat-revision check checkout config diff export "
    "find-merge-base info join log ls merge missing nick pack pull push re-sign reconcile "
    "resolve-location revision-history revision-info revno rmbranch send sign-my-commits switch tag tags "
    "testament uncommit verify-signatures version-info "
)
"""Commands for which a location may be a URL; the others work in a tree, which is on this disk."""

ALIASES = {
    "ann": "annotate",
    "blame": "annotate",
    "praise": "annotate",
    "clone": "branch",
    "co": "checkout",
    "get": "branch",
}

INSIDE = ("annotate", "branches", "cat", "diff", "export", "log", "ls")
"""Commands that accept files and folders in a branch as locations."""

VALUED = ("-r", "-m", "-o", "-F", "-l", "-c", "-x", "--revision", "--message", "--output", "--file")
"""Options with a value that is no location."""

DIRECTORY = ("-d", "--directory")

TREES = ("bind", "checkout", "join", "merge", "pull", "switch", "uncommit")
"""Commands that work in a tree, though their locations may be remote: the folder of the tree stays local."""


def _words(words: Sequence[str], places: Places, base: Path) -> list[str]:
    """Return a command with a URL in place of each location that leads to a branch."""
    if not words or ALIASES.get(words[0], words[0]) not in READ.split():
        return list(words)
    command, *rest = words
    made, before = [command], command
    for word in rest:
        made.append(_word(word, before, command, places, base))
        before = word
    return made


def _word(word: str, before: str, command: str, places: Places, base: Path) -> str:
    if before in VALUED or not word or (command in TREES and before in DIRECTORY):
        return word
    if word.startswith("-"):
        name, equals, value = word.partition("=")
        if not equals or name in VALUED:
            return word
        url = places.replace(value, base)
        return word if url is None else f"{name}={url}"
    url = places.replace(word, base, inside=ALIASES.get(command, command) in INSIDE)
    if url is None and command == "push" and before not in DIRECTORY:
        url = places.make(word, base)
    return word if url is None else url


def _own(words: Sequence[str], places: Places, base: Path) -> Path | None:
    """Return the branch that a command works in: around the current folder, or around the one that an option names."""
    where = base
    for before, word in pairwise(words):
        if before in DIRECTORY:
            where = Path(os.path.normpath(base / word))
    found = places.find(str(where), base)
    return None if found is None else found[0]


def _is_standalone(path: Path | None) -> bool:
    """Tell whether a path is a branch with a tree and revisions that was never bound: it can be moved whole."""
    if path is None or not is_branch(path) or not (path / ".bzr" / "checkout").is_dir():
        return False
    options, tip = (path / ".bzr" / "branch" / name for name in ("branch.conf", "last-revision"))
    if not tip.exists() or tip.read_bytes().startswith(b"0 "):
        return False
    return not options.exists() or "bound" not in options.read_text()


Command = Callable[[list[str]], int]


def run_named(words: Sequence[str], places: Places, base: Path, command: Command) -> int:
    """Run a command with the locations that it names remote."""
    return command(_words(words, places, base))


def run_defaults(words: Sequence[str], places: Places, base: Path, command: Command) -> int:
    """Run a command with the locations that it names, and those that its branch remembers, remote."""
    own = _own(words, places, base)
    if own is not None:
        places.point(own)
    return command(_words(words, places, base))


def run_light(words: Sequence[str], places: Places, base: Path, command: Command) -> int:
    """Run a command in a tree that is made a lightweight checkout."""
    own = _own(words, places, base)
    if own is None or not _is_standalone(own):
        return command(list(words))
    places.reference(own)
    try:
        return command(list(words))
    finally:
        places.dereference(own)


def run_bound(words: Sequence[str], places: Places, base: Path, command: Command) -> int:
    """Run a command in a branch that is made a bound one."""
    own = _own(words, places, base)
    if own is None or not _is_standalone(own):
        return command(list(words))
    places.bind(own)
    try:
        return command(list(words))
    finally:
        places.unbind(own)


RUNS = {"named": run_named, "defaults": run_defaults, "light": run_light, "bound": run_bound}
"""The function of each of `suite_reasons.ARRANGEMENTS`."""
