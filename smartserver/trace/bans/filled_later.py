"""`filled-later`: what is made empty is filled by another request."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest, paths_of, place, value_of
from smartserver.trace.bans.operations import call_site
from smartserver.verbs.declare import AnyVerb, Arguments

CREATES = "Repository.create"
BRINGS = ("put", "append", "rename", "publish")
"""File-level verbs that bring something into a folder; the last name of each says where."""
ENDS = ("rmdir", "delete", "rename", "publish", "withdraw", "Repository.delete")
"""Their first name is gone."""
BESIDE = ("Repository.configure", "sync_dir")
"""They bring no content."""
FILLS = ("Repository.insert_pack", "Branch.create", "Branch.set_last_revision", "Branch.add_heads")


class FilledLater(Ban):
    """A repository, folder or file is made empty by one request, and filled by a later one.

    Seen: requests that do nothing but make a repository, folders or empty files, once the answer says that they are
    made, and later changes on that path, in the folder or of the file. It counts when one of them brings content. The
    first time is one too many: a request makes it with its content, and nobody sees it empty. What was there before
    does not count, and neither does a folder that got something in the request that made it.
    """

    name: ClassVar[str] = "filled-later"
    remedy: ClassVar[str] = "Make it with its content, in one request."

    def __init__(self) -> None:
        self._empty: dict[str, tuple[int, str]] = {}
        """What was made -> the number of the request, and where in the program it was."""
        self._makes: dict[int, str] = {}

    def begin(self) -> None:
        """Nothing was made."""
        self._empty.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Look whether it fills what was made."""
        if any(_makes(*call) for call in asked.calls) and all(
            _makes(verb, arguments) or verb.name in BESIDE for verb, arguments in asked.calls
        ):
            self._makes[asked.number] = call_site().partition(" < ")[0]
            return None
        filled = dict.fromkeys(path for call in asked.calls for path in self._filled(asked, *call))
        found = [(path, *self._empty.pop(path)) for path in filled]
        if not found:
            return None
        path, _, where = found[0]
        requests = sorted({number for _, number, _ in found})
        return Finding(asked.calls[0][0].name, f"{path} was made empty, in {where}", requests=tuple(requests))

    def _filled(self, asked: WatchedRequest, verb: AnyVerb, arguments: Arguments) -> list[str]:
        if not verb.is_vfs:
            return [place(asked.path)] if verb.name in FILLS and place(asked.path) in self._empty else []
        if verb.name not in BRINGS:
            return []
        path = paths_of(asked.path, verb, arguments)[-1]
        return [made for made in self._empty if f"{path}/".startswith(f"{made}/")]

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember what was made."""
        where = self._makes.pop(asked.number, "")
        for (verb, arguments), result in zip(asked.calls, answered.results, strict=False):
            paths = paths_of(asked.path, verb, arguments)[verb.is_vfs :]
            if verb.name in ENDS:
                self._empty.pop(paths[0], None)
            elif where and _makes(verb, arguments) and result is not None and getattr(result, "created", True):
                self._empty[paths[0]] = (asked.number, where)


def _makes(verb: AnyVerb, arguments: Arguments) -> bool:
    """Whether a call makes something empty."""
    if verb.name == "put":
        return not value_of(arguments, "content") and not value_of(arguments, "rest")
    return verb.name in (CREATES, "mkdir")
