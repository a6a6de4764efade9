"""`file-lock`: a lock is a matter of file-level calls."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest, paths_of
from smartserver.verbs.declare import AnyVerb, Arguments

ENDINGS = ("lock", "locks", "lockdir", "lockfile")
"""Of names of locks, as a word: `lock`, `index.lock`, `branch-lock`, and Mercurial's `wlock`."""

MAKES, REMOVES = ("mkdir", "put"), ("rmdir", "delete", "withdraw")
MOVES = ("rename", "publish")


class FileLock(Ban):
    """A request that does nothing but take, look at or release a lock, by file-level verbs.

    Seen: the paths of VFS calls, and what they make, rename and remove. A request counts when each of its calls is
    about a name of a lock (`lock`, `index.lock`, `branch-lock`) or about something below one; and when it only removes
    what this client made in the same operation, whatever its name. The first one is too many: a verb that changes a
    repository needs no lock, and over files the lock is taken and released in requests that do something else as well.
    After a refusal what was made is forgotten, since it may be removed for that.
    """

    name: ClassVar[str] = "file-lock"
    remedy: ClassVar[str] = (
        "Change the repository by a verb, which needs no lock; over files, lock and unlock in requests that do more."
    )

    def __init__(self) -> None:
        self._made: dict[str, list[int]] = {}
        """Path -> the requests that did nothing but make it."""

    def begin(self) -> None:
        """Nothing was made."""
        self._made.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Look what it is about."""
        if not all(verb.is_vfs for verb, _ in asked.calls):
            return None
        paths = [paths_of(asked.path, *call)[1:] for call in asked.calls]
        verb = asked.calls[-1][0].name
        if all(map(_is_lock, paths)):
            return Finding(verb, f"{paths[-1][-1] if paths[-1] else asked.path} is a lock")
        makers = self._made.copy()
        gone = [path for call in asked.calls for path in _change(makers, asked, *call)]
        if not gone or not all(verb.name in (*REMOVES, *MOVES, "sync_dir") for verb, _ in asked.calls):
            return None
        number = asked.number
        requests = sorted({number, *(each for path in gone for each in self._made.get(path, ()))})
        return Finding(verb, f"{gone[-1]} was made to be removed", requests=tuple(requests))

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember what was made."""
        if answered.fault is not None or None in answered.results:
            self._made.clear()
            return
        for call in asked.calls:
            _change(self._made, asked, *call)


def _change(made: dict[str, list[int]], asked: WatchedRequest, verb: AnyVerb, arguments: Arguments) -> list[str]:
    """Keep account of what a call makes and renames; the paths of `made` that it removes."""
    paths = paths_of(asked.path, verb, arguments)[1:] if verb.is_vfs else []
    if verb.name in MAKES:
        alone = all(each.name in (*MAKES, *MOVES) for each, _ in asked.calls)
        made[paths[0]] = [asked.number] * alone
    elif verb.name in MOVES and len(paths) == 2:
        old, new = paths
        for path in [each for each in made if each == old or each.startswith(f"{old}/")]:
            made[new + path.removeprefix(old)] = made.pop(path)
    elif verb.name in REMOVES and paths[0] in made:
        made.pop(paths[0])
        return paths
    return []


def _is_lock(paths: list[str]) -> bool:
    return any(_names_lock(name.lower()) for path in paths for name in path.split("/"))


def _names_lock(name: str) -> bool:
    for ending in ENDINGS:
        if name.endswith(ending):
            before = name.removesuffix(ending).removesuffix("w")
            return not before[-1:].isalpha()
    return False
