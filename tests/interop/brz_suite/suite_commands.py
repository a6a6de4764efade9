"""What of a command of a test becomes remote, in each arrangement."""

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
"""Commands a location of which may be a URL; the others work in a tree, which is on this disk."""

ALIASES = {
    "ann": "annotate",
    "blame": "annotate",
    "praise": "annotate",
    "clone": "branch",
    "co": "checkout",
    "get": "branch",
}

INSIDE = ("annotate", "branches", "cat", "diff", "export", "log", "ls")
"""Commands that are told of files and folders in a branch."""

VALUED = ("-r", "-m", "-o", "-F", "-l", "-c", "-x", "--revision", "--message", "--output", "--file")
"""Options whose value is no location."""

DIRECTORY = ("-d", "--directory")

TREES = ("bind", "checkout", "join", "merge", "pull", "switch", "uncommit")
"""Commands that work in a tree, though what they name may be remote: the folder they work in stays."""


def _words(words: Sequence[str], places: Places, base: Path) -> list[str]:
    """A command with each location that leads to a branch replaced by a URL."""
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
    """The branch a command works in: around the current folder, or the one that is said."""
    where = base
    for before, word in pairwise(words):
        if before in DIRECTORY:
            where = Path(os.path.normpath(base / word))
    found = places.find(str(where), base)
    return None if found is None else found[0]


def _is_standalone(path: Path | None) -> bool:
    """Whether it is a branch with a tree and with revisions, never bound to another: one that can be moved whole."""
    if path is None or not is_branch(path) or not (path / ".bzr" / "checkout").is_dir():
        return False
    options, tip = (path / ".bzr" / "branch" / name for name in ("branch.conf", "last-revision"))
    if not tip.exists() or tip.read_bytes().startswith(b"0 "):
        return False
    return not options.exists() or "bound" not in options.read_text()


Command = Callable[[list[str]], int]


def run_named(words: Sequence[str], places: Places, base: Path, command: Command) -> int:
    """Locations that a command names are remote."""
    return command(_words(words, places, base))


def run_defaults(words: Sequence[str], places: Places, base: Path, command: Command) -> int:
    """Those that a branch remembers are, too."""
    own = _own(words, places, base)
    if own is not None:
        places.point(own)
    return command(_words(words, places, base))


def run_light(words: Sequence[str], places: Places, base: Path, command: Command) -> int:
    """The tree a command works in is a lightweight checkout."""
    own = _own(words, places, base)
    if own is None or not _is_standalone(own):
        return command(list(words))
    places.reference(own)
    try:
        return command(list(words))
    finally:
        places.dereference(own)


def run_bound(words: Sequence[str], places: Places, base: Path, command: Command) -> int:
    """The branch a command works in is bound."""
    own = _own(words, places, base)
    if own is None or not _is_standalone(own):
        return command(list(words))
    places.bind(own)
    try:
        return command(list(words))
    finally:
        places.unbind(own)


RUNS = {"named": run_named, "defaults": run_defaults, "light": run_light, "bound": run_bound}
"""By the names of `suite_names.ARRANGEMENTS`."""
