"""Changes of a branch on a server, decided on what was read of it: each is one request, all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from breezy.errors import BzrError

from smartserver.client.plain import plain
from smartserver.client.updates import MapUpdated, RefUpdate
from smartserver.errors import StaleEntry, StaleLease
from smartserver.plugins import breezy_remembered
from smartserver.plugins.breezy_append import options_are
from smartserver.plugins.breezy_remembered import CONFIG, TAGS
from smartserver.records.model import RevisionId
from smartserver.verbs.fields import HERE, MAX_IDS, MAX_NAME
from smartserver.verbs.map_update import EntryChange, EntryOutcome, How, MapKind, MapUpdateRequest
from smartserver.verbs.rules import Create, Rule

if TYPE_CHECKING:
    from smartserver.plugins.breezy_remote import Remote

MOVED = (
    "the branch or its options have changed since they were last seen from here: nothing was changed; what is there is "
    "known now: try again"
)

SHOWN = 40
"""Characters of a name that is too long that a message shows."""


def objection(tag: str) -> str:
    """Why a tag cannot be on a server; empty where it can."""
    try:
        tag.encode()
    except UnicodeEncodeError:
        return plain(f"the tag {tag[:SHOWN]}: its name is not UTF-8")
    size = len(tag.encode())
    if size <= MAX_NAME:
        return ""
    return plain(f"the tag {tag[:SHOWN]}...: its name has {size} bytes, expected no more than {MAX_NAME}")


UNMADE = b"new"
"""Attributes of a tip that no branch has: theirs are numbers."""


def made(tip: RevisionId, attributes: bytes) -> list[RefUpdate]:
    """How a branch is made where there must be none, so that nothing else of the request is done where there is one.

    To make what is there already, attributes included, is success; so it is made with others first.
    """
    return [
        RefUpdate(HERE, tip, create=Create.MUST, attributes=UNMADE),
        RefUpdate(HERE, tip, Rule.FF, Create.NO, attributes=attributes),
    ]


def push_tags(remote: Remote, entries: Sequence[EntryChange]) -> dict[str, EntryOutcome]:
    """Send changes of tags; what became of each. To be called in its `words`."""
    return outcomes(remote.change([], tags_updates(entries)).maps)


def move(remote: Remote, tip: RevisionId, revno: int, tags: Iterable[str] = ()) -> None:
    """Move the tip to a revision that is there, if nobody has moved it since it was read, and remove tags."""
    update = RefUpdate(HERE, tip, Rule.LEASE, Create.NO, remote.state().tip, b"%d" % revno)
    assumed = remote.is_assumed
    with remote.words():
        try:
            there = remote.state().tags
            entries = [EntryChange(name.encode(), None, How.EQUAL, there[name]) for name in tags]
            remote.change([update], [*tags_updates(entries), options_are(remote.state().config)])
        except (StaleLease, StaleEntry):
            if not assumed:
                raise
            raise BzrError(MOVED) from None


def set_tags(remote: Remote, changes: Mapping[str, RevisionId | None]) -> None:
    """Set tags, or remove them where the revision is None."""
    entries = [EntryChange(name.encode(), tag, How.SET) for name, tag in changes.items()]
    with remote.words():
        push_tags(remote, entries)


def set_config(remote: Remote, content: bytes) -> None:
    """Replace the configuration, if nobody has changed it since it was read.

    Raises:
        NotAsRemembered: it was remembered, and is another.
    """
    if remote.is_assumed:
        breezy_remembered.set_config(remote, content)
        return
    change = EntryChange(b"", content or None, How.EQUAL, remote.state().config or None)
    change_maps(remote, [MapUpdateRequest(CONFIG, MapKind.OPAQUE, [change], HERE, True)])


def change_maps(remote: Remote, maps: Sequence[MapUpdateRequest]) -> None:
    """Change maps."""
    with remote.words():
        remote.change([], maps)


def delete(remote: Remote) -> bool:
    """Remove the branch; whether there was one."""
    with remote.words():
        return bool(remote.change([RefUpdate(HERE, None)]).refs[0].old)


def tags_updates(
    entries: Sequence[EntryChange], branch: bytes = HERE, *, strict: bool = False
) -> list[MapUpdateRequest]:
    """Changes of a branch's tags as calls, each with no more of them than one takes; `strict`: a conflict refuses."""
    parts = [entries[at : at + MAX_IDS] for at in range(0, len(entries), MAX_IDS)]
    return [MapUpdateRequest(TAGS, MapKind.IDS, list(part), branch, strict) for part in parts]


def outcomes(done: Sequence[MapUpdated]) -> dict[str, EntryOutcome]:
    """What became of each tag of calls that were done."""
    return {
        change.key.decode("utf-8", "replace"): outcome
        for each in done
        for change, outcome in zip(each.update.entries, each.entries, strict=True)
    }
