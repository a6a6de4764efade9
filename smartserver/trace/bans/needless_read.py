"""`duplicate`, `read-back`, `reopen`: reads whose answers the client already has."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import (
    Ban,
    Cost,
    Finding,
    WatchedAnswer,
    WatchedRequest,
    names_in,
    paths_of,
    place,
    value_of,
)
from smartserver.verbs.declare import AnyVerb, Arguments, Effect
from smartserver.verbs.vfs import GetResult, HasResult, NamesResult, StatResult

ABSENT = (GetResult(None), HasResult(False), NamesResult(None), StatResult(None))
"""Answers which say that a file or name is missing."""


class Duplicate(Ban):
    """The same read call twice in one operation.

    Seen: the calls of requests that only read, with their path. A request counts if each of its calls was answered
    before in the operation, or if it has the same call twice. It does not count if this client has since changed
    something on that path, above it or below it. The first repetition counts, since the client has the answer. A
    request that also asks for something new costs no round trip for its repeated calls. `Server.ping` has no result to
    remember. A missing file may be asked for again, because a client waits for a file in this way.
    """

    name: ClassVar[str] = "duplicate"
    remedy: ClassVar[str] = "Keep the first answer."

    def __init__(self) -> None:
        self._answered: list[tuple[str, str, Arguments]] = []

    def begin(self) -> None:
        """Forget the answers of the previous operation."""
        self._answered.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Return a finding if the request repeats a call, or only calls that were answered before."""
        if not asked.reads:
            return None
        calls = _calls(asked)
        twice = next((call for number, call in enumerate(calls) if call in calls[:number]), None)
        if twice is not None:
            return Finding(twice[1], "it is in one request twice")
        if all(call in self._answered for call in calls):
            return Finding(calls[-1][1], "the same was answered before")
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember the answers. After a change, forget the answers about paths near the changed one."""
        if asked.mutates:
            self._answered = [each for each in self._answered if not _near(each[0], asked.path)]
        elif answered.fault is None:
            results = zip(_calls(asked), answered.results, strict=False)
            self._answered += [call for call, result in results if result not in ABSENT]


def _near(path: str, changed: str) -> bool:
    one, other = f"{place(path)}/", f"{place(changed)}/"
    return one.startswith(other) or other.startswith(one) or "//" in (one, other)


def _calls(asked: WatchedRequest) -> list[tuple[str, str, Arguments]]:
    return [(asked.path, verb.name, arguments) for verb, arguments in asked.calls]


HELD = ("haves", "had", "mine", "absent", "after")
"""Arguments that name revisions or entries that the client has."""

PULL = "Repository.pull"

WRITTEN = ("ref", "tip")
"""Arguments that name the refs and tips that a change sets."""


class ReadBack(Ban):
    """A read of something that the client wrote in the same operation.

    Seen: the refs and tips that changes set and, for VFS verbs, the paths that they change, once the answer says that
    it is done. Also seen: the names, ids and paths that later reads ask for. These are all arguments except the ones
    with ids that the client has (`haves`, `had`, `mine`, `absent`, `after`). A read counts if it asks for a name, id or
    path that was written on the same path, or for all refs after one was set. It does not count if the client reports
    that it has a tip which was set: then it asks for later changes. The first read counts, because the answer to a
    change reports its outcome. A read in the request of the change costs no round trip.
    """

    name: ClassVar[str] = "read-back"
    remedy: ClassVar[str] = "Use the answer to the change, which says what became of it."

    def __init__(self) -> None:
        self._written: dict[str, set[bytes | str]] = {}

    def begin(self) -> None:
        """Forget the writes of the previous operation."""
        self._written.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Return a finding if a request reads something that was written in this operation."""
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
        """Remember the refs, tips and paths that a successful change wrote."""
        if not asked.mutates:
            return
        for (verb, arguments), result in zip(asked.calls, answered.results, strict=False):
            if verb.effect is Effect.MUTATE and result is not None:
                changed = paths_of(asked.path, verb, arguments)[1:] if verb.is_vfs else _names(arguments, WRITTEN)
                self._written.setdefault(_where(asked, verb), set()).update(changed)


def _where(asked: WatchedRequest, verb: AnyVerb) -> str:
    """Return the path to which the names of a call are relative. The names of VFS verbs are those of `paths_of`, which
    begin at the root."""
    return "/" if verb.is_vfs else asked.path


def _wanted(asked: WatchedRequest, verb: AnyVerb, arguments: Arguments) -> set[bytes | str]:
    if verb.is_vfs:
        return set(paths_of(asked.path, verb, arguments)[1:])
    return _names(arguments, [field for field in arguments.__struct_fields__ if field not in HELD])


def _names(arguments: Arguments, fields: tuple[str, ...] | list[str]) -> set[bytes | str]:
    return {name for field in fields for name in names_in(value_of(arguments, field))}


OPENS = "Repository.open"


class Reopen(Ban):
    """A repository that is opened again in one operation.

    Seen: the state of the repository in an answer, by the path of the request, and the version that later requests on
    that path give as known. A request without a known version counts, because all refs and the server's capabilities
    are then sent again. A request whose only calls are `Repository.open` counts, too. The first repetition counts,
    since the client has the answer. After an answer without a state, as for a missing repository, the repository may be
    opened again.
    """

    name: ClassVar[str] = "reopen"
    remedy: ClassVar[str] = (
        "Keep what the first answer said of the repository, and name its version in the next request."
    )

    def __init__(self) -> None:
        self._told: set[str] = set()

    def begin(self) -> None:
        """Forget the states of the previous operation."""
        self._told.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Return a finding if a request asks for a state that was sent before."""
        verb = asked.calls[0][0].name
        if asked.path not in self._told or _is_of_files(asked):
            return None
        if asked.known is None:
            why = f"the state of {asked.path!r} was told before, and the request says it knows nothing"
            return Finding(verb, why, Cost.BODY, share=0.0)  # The share of the state in the answer is not known.
        if all(each.name == OPENS for each, _ in asked.calls):
            return Finding(verb, f"{asked.path!r} was opened before")
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember that the state was sent."""
        if answered.state is not None:
            self._told.add(asked.path)
        elif not _is_of_files(asked):
            self._told.discard(asked.path)


def _is_of_files(asked: WatchedRequest) -> bool:
    """Return True if a request has VFS verbs, which concern files and no repository."""
    return any(verb.is_vfs for verb, _ in asked.calls)
