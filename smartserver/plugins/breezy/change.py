"""Makes the updates of a request that changes a branch, each with its conditions.

The server refuses a change if the branch has changed meanwhile. The conditions are a lease on the tip, and the old
values of tags and options. A change of the tip also requires that the options are as known, since they may forbid it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from breezy import errors
from breezy.bzr.tag import BasicTags
from breezy.revision import NULL_REVISION

from smartserver.client.plain import plain
from smartserver.client.updates import MapUpdateOutcome, RefUpdate
from smartserver.plugins.breezy.place import BranchState
from smartserver.plugins.breezy.words import HAS_A_REVISION, NotOnServer
from smartserver.records.model import HERE, Plan, RevisionId
from smartserver.vcs.bzr.kinds import CONFIG, TAGS
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.fields import MAX_IDS, MAX_NAME
from smartserver.verbs.map_update import EntryChange, EntryOutcome, How, MapKind, MapUpdateRequest
from smartserver.verbs.rules import Create, Rule

TIP_FILE, TAGS_FILE, OPTIONS_FILE = "last-revision", "tags", "branch.conf"
"""The files in which Breezy stores the state of a branch."""

SHOWN = 40
"""The most characters that a message shows of a name that is too long."""

UNMADE = b"new"
"""Attributes of a tip that no real branch has: real attributes are numbers."""

_TAGS = BasicTags.__new__(BasicTags)


class Outdated(errors.BzrError):  # type: ignore[misc]  # Breezy is not typed.
    """A change was based on an old state of the branch. The new state is known now."""

    _fmt = "%(url)s has changed since it was last seen from here: nothing was changed; try again"
    is_outdated = True

    def __init__(self, url: str) -> None:
        super().__init__(url=url)


@dataclass(frozen=True, slots=True)
class Lacking:
    """The part of a local repository that a server lacks, as the source of a push. `only`: revisions whose history is
    sent instead of that of the tips."""

    repository: BrzRepository
    only: Sequence[RevisionId] | None = None

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """Return the plan for the revisions to send, given those that the server is assumed to have."""
        from smartserver.vcs.bzr.plan import plan  # A push without new revisions does not need it.

        return plan(self.repository, tips if self.only is None else self.only, haves)


# -- the files


def files_of(state: BranchState) -> dict[str, bytes]:
    """Return the content of the files of a branch; empty options mean no file."""
    tags = dict(state.tags)
    return {
        TIP_FILE: b"%d %s\n" % (state.revno, state.tip or NULL_REVISION),
        TAGS_FILE: _TAGS._serialize_tag_dict(tags) if tags else b"",
        OPTIONS_FILE: state.config,
    }


def tip_of(content: bytes) -> tuple[int, RevisionId]:
    """Return the number and the revision of the tip, from the content of its file."""
    number, revision = content.rstrip(b"\n").split(b" ", 1)
    if revision == NULL_REVISION:
        raise NotOnServer(HAS_A_REVISION)
    return int(number), revision


def changed_tags(before: Mapping[str, RevisionId], content: bytes) -> list[EntryChange]:
    """Return the changes from the tags `before` to those in a file. Names that a server does not accept are left
    out."""
    now: dict[str, RevisionId] = _TAGS._deserialize_tag_dict(content)
    names = [name for name in {**before, **now} if before.get(name) != now.get(name) and not objection(name)]
    return [EntryChange(name.encode(), now.get(name), How.EQUAL, before.get(name)) for name in names]


# -- the updates


def stays(state: BranchState) -> RefUpdate:
    """Return the update that does nothing if the branch's tip is unchanged, and fails otherwise."""
    return RefUpdate(HERE, state.tip, Rule.LEASE, Create.NO, state.tip or b"", state.attributes)


def made(tip: RevisionId, attributes: bytes) -> list[RefUpdate]:
    """Return updates that create a branch, and fail with the rest of the request if the branch exists.

    Creating a branch that exists already with the same attributes succeeds, so the branch is first created with other
    attributes.
    """
    return [
        RefUpdate(HERE, tip, create=Create.MUST, attributes=UNMADE),
        RefUpdate(HERE, tip, Rule.FF, Create.NO, attributes=attributes),
    ]


def options_are(content: bytes) -> MapUpdateRequest:
    """Return the condition that a branch has these options, as an update that changes nothing."""
    return options_change(content, content)


def options_become(content: bytes) -> list[MapUpdateRequest]:
    """Return the change that stores options for a branch that has none."""
    return [options_change(content, b"")] if content else []


def options_change(content: bytes, before: bytes) -> MapUpdateRequest:
    """Return a change of the options, on the condition that they are still `before`."""
    change = EntryChange(b"", content or None, How.EQUAL, before or None)
    return MapUpdateRequest(CONFIG, MapKind.OPAQUE, [change], HERE, True)


def tags_updates(
    entries: Sequence[EntryChange], branch: bytes = HERE, *, strict: bool = False
) -> list[MapUpdateRequest]:
    """Return the calls that change a branch's tags, each with at most `MAX_IDS` changes. With `strict`, a conflict
    refuses the request."""
    parts = [entries[at : at + MAX_IDS] for at in range(0, len(entries), MAX_IDS)]
    return [MapUpdateRequest(TAGS, MapKind.IDS, list(part), branch, strict) for part in parts]


def outcomes(done: Sequence[MapUpdateOutcome]) -> dict[str, EntryOutcome]:
    """Return the outcome of each tag in finished calls."""
    return {
        change.key.decode("utf-8", "replace"): outcome
        for map_outcome in done
        for change, outcome in zip(map_outcome.update.entries, map_outcome.entries, strict=True)
    }


def objection(tag: str) -> str:
    """Return the reason why a server does not accept a tag of that name; empty if it does."""
    try:
        tag.encode()
    except UnicodeEncodeError:
        return plain(f"the tag {tag[:SHOWN]}: its name is not UTF-8")
    size = len(tag.encode())
    if size <= MAX_NAME:
        return ""
    return plain(f"the tag {tag[:SHOWN]}...: its name has {size} bytes, expected no more than {MAX_NAME}")


# -- the direction in which a tip moves


def is_on_top(graph: Any, revision: RevisionId, tip: RevisionId) -> bool:
    """Tell whether `tip` is on the line of first parents of a revision."""
    at: RevisionId = revision
    while at != tip:
        parents = graph.get_parent_map([at]).get(at)
        if not parents:
            return False
        at = parents[0]
    return True


def is_linear(graph: Any, revision: RevisionId, tip: RevisionId | None) -> bool:
    """Tell whether the history between `tip` and a revision has no merges; a `tip` of None means the beginning of the
    history.

    Any branch that can be moved forward along that line has its tip on it.
    """
    at: RevisionId = revision
    while at != tip:
        parents = graph.get_parent_map([at]).get(at, ())
        if parents == (NULL_REVISION,):
            return tip is None
        if len(parents) != 1:
            return False
        (at,) = parents
    return True
