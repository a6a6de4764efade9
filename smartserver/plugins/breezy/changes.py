"""Changes of a branch on a server: each is one request, all of it or nothing.

A change is decided on what was read of the branch, or on what is remembered of it. It carries what makes the server
refuse it where that is not so any more; then what is there is known, and the change is decided again. What is
remembered never refuses anything by itself: before a command says no, the server is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from breezy.errors import BzrError

from smartserver.client.plain import plain
from smartserver.client.updates import MapUpdateOutcome, PushOutcome, RefUpdate
from smartserver.errors import StaleEntry, StaleLease
from smartserver.plugins.breezy.remote import Remote
from smartserver.records.model import HERE, RevisionId
from smartserver.vcs.bzr.kinds import CONFIG, TAGS
from smartserver.verbs.fields import MAX_IDS, MAX_NAME
from smartserver.verbs.map_update import EntryChange, EntryOutcome, How, MapKind, MapUpdateRequest, Verdict
from smartserver.verbs.rules import Create, Rule

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
    _change(remote, [], _options(content, remote.state().config))


def options_are(content: bytes) -> MapUpdateRequest:
    """The condition that these are the branch's options: a change that changes nothing."""
    return _options(content, content)


def options_become(content: bytes) -> list[MapUpdateRequest]:
    """The options of a branch that has none."""
    return [_options(content, b"")] if content else []


def _options(content: bytes, before: bytes) -> MapUpdateRequest:
    change = EntryChange(b"", content or None, How.EQUAL, before or None)
    return MapUpdateRequest(CONFIG, MapKind.OPAQUE, [change], HERE, True)


class NotAsRemembered(Exception):
    """The branch is not what was remembered; what it is is known now."""


def set_remembered_tags(remote: Remote, changes: Mapping[str, RevisionId | None]) -> set[str]:
    """Set tags that are as remembered, to revisions that are if the tip is; those that were so before.

    Raises:
        NotAsRemembered: something is not.
    """
    there = remote.state().tags
    entries = [EntryChange(name.encode(), tag, How.EQUAL, there.get(name)) for name, tag in changes.items()]
    sets = any(tag is not None for tag in changes.values())
    done = _change(remote, [stays(remote)] if sets else [], MapUpdateRequest(TAGS, MapKind.IDS, entries, HERE, True))
    outcomes = done.maps[0].entries
    return {name for name, each in zip(changes, outcomes, strict=True) if each.verdict is Verdict.UNCHANGED}


def stays(remote: Remote) -> RefUpdate:
    """The update that does nothing where the branch's tip is the remembered one, and else is refused."""
    state = remote.state()
    return RefUpdate(HERE, state.tip, Rule.LEASE, Create.NO, state.tip, state.attributes)


def _change(remote: Remote, updates: Sequence[RefUpdate], update: MapUpdateRequest) -> PushOutcome:
    """Make a change."""
    was_remembered = remote.is_assumed
    with remote.words():
        try:
            return remote.change(updates, [update])
        except (StaleLease, StaleEntry):
            if not was_remembered:
                raise
            remote.learn_refusal()
            raise NotAsRemembered from None


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


def outcomes(done: Sequence[MapUpdateOutcome]) -> dict[str, EntryOutcome]:
    """What became of each tag of calls that were done."""
    return {
        change.key.decode("utf-8", "replace"): outcome
        for each in done
        for change, outcome in zip(each.update.entries, each.entries, strict=True)
    }
