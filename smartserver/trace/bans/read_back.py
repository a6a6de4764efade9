"""`read-back`: a client asks for what it wrote itself."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest, names_in, paths_of, value_of
from smartserver.verbs.declare import AnyVerb, Arguments, Effect

HELD = ("haves", "had", "mine", "absent", "after")
"""Arguments that say what the client has, not what it wants."""

PULL = "Repository.pull"

WRITTEN = ("ref", "tip")
"""Arguments that name what a change writes."""


class ReadBack(Ban):
    """What was written in one operation is read in it.

    Seen: the refs and tips that changes set and, of VFS verbs, the paths they change, once the answer says that it is
    done; and the names, ids and paths that later reads ask for, which is all of them but those that say what the client
    has (`haves`, `had`, `mine`, `absent`, `after`). It counts when a read asks for one that was written on the same
    path, or for all refs after one was set, unless a tip that was set is among what the client has: then it asks what
    came later. The first time is one too many: the answer to a change says what became of it. A read in the request of
    the change costs no round trip.
    """

    name: ClassVar[str] = "read-back"
    remedy: ClassVar[str] = "Use the answer to the change, which says what became of it."

    def __init__(self) -> None:
        self._written: dict[str, set[bytes | str]] = {}

    def begin(self) -> None:
        """Nothing was written."""
        self._written.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Compare what it wants with what was written."""
        if asked.mutates:
            return None
        for verb, arguments in asked.calls:
            written = self._written.get(_where(asked, verb), set())
            if not written or not written.isdisjoint(_names(arguments, HELD)):
                continue
            back = written.intersection(_wanted(asked, verb, arguments))
            if back:
                return Finding(verb.name, f"{min(map(repr, back))} was written by this client")
            # A pull of no ref brings no revision: what it asks for is the refs.
            refs_alone = verb.name == PULL and arguments == verb.request_type(refs=[])
            if getattr(arguments, "refs", ()) is None or refs_alone:
                return Finding(verb.name, "all refs, of which this client set one")
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember what was written."""
        if not asked.mutates:
            return
        for (verb, arguments), result in zip(asked.calls, answered.results, strict=False):
            if verb.effect is Effect.MUTATE and result is not None:
                changed = paths_of(asked.path, verb, arguments)[1:] if verb.is_vfs else _names(arguments, WRITTEN)
                self._written.setdefault(_where(asked, verb), set()).update(changed)


def _where(asked: WatchedRequest, verb: AnyVerb) -> str:
    """What names of a call are relative to; the paths of VFS verbs are whole."""
    return "/" if verb.is_vfs else asked.path


def _wanted(asked: WatchedRequest, verb: AnyVerb, arguments: Arguments) -> set[bytes | str]:
    if verb.is_vfs:
        return set(paths_of(asked.path, verb, arguments)[1:])
    return _names(arguments, [field for field in arguments.__struct_fields__ if field not in HELD])


def _names(arguments: Arguments, fields: tuple[str, ...] | list[str]) -> set[bytes | str]:
    return {name for field in fields for name in names_in(value_of(arguments, field))}
