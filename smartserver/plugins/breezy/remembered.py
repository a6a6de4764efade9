"""Changes that are decided on what is remembered of a branch. Each carries what makes the server refuse it where that
is not so any more; then what is there is known, and the change is decided again.

What is remembered never refuses anything by itself: before a command says no, the server is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from smartserver.client.updates import Pushed, RefUpdate
from smartserver.errors import StaleEntry, StaleLease
from smartserver.records.model import RevisionId
from smartserver.verbs.fields import HERE
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest, Verdict
from smartserver.verbs.rules import Create, Rule

if TYPE_CHECKING:
    from smartserver.client.knowledge import Knowledge
    from smartserver.plugins.breezy.remote import Remote

TAGS = "tags"
CONFIG = "config"


def tags_of(knowledge: Knowledge, branch: bytes) -> dict[str, RevisionId]:
    """The tags of a branch as last seen."""
    return {name.decode("utf-8", "replace"): tag for name, tag in knowledge.map(TAGS, branch).items()}


class NotAsRemembered(Exception):
    """The branch is not what was remembered; what it is is known now."""


def set_tags(remote: Remote, changes: Mapping[str, RevisionId | None]) -> set[str]:
    """Set tags that are as remembered, to revisions that are if the tip is; those that were so before.

    Raises:
        NotAsRemembered: something is not.
    """
    there = remote.state().tags
    entries = [EntryChange(name.encode(), tag, How.EQUAL, there.get(name)) for name, tag in changes.items()]
    sets = any(tag is not None for tag in changes.values())
    update = MapUpdateRequest(TAGS, MapKind.IDS, entries, HERE, True)
    done = _change(remote, [stays(remote)] if sets else [], update)
    outcomes = done.maps[0].entries
    return {name for name, each in zip(changes, outcomes, strict=True) if each.verdict is Verdict.UNCHANGED}


def set_config(remote: Remote, content: bytes) -> None:
    """Replace a configuration that is as remembered.

    Raises:
        NotAsRemembered: it is not.
    """
    change = EntryChange(b"", content or None, How.EQUAL, remote.state().config or None)
    _change(remote, [], MapUpdateRequest(CONFIG, MapKind.OPAQUE, [change], HERE, True))


def stays(remote: Remote) -> RefUpdate:
    """The update that does nothing where the branch's tip is the remembered one, and else is refused."""
    tip = remote.state().tip
    return RefUpdate(HERE, tip, Rule.LEASE, Create.NO, tip, remote.attributes())


def _change(remote: Remote, updates: Sequence[RefUpdate], update: MapUpdateRequest) -> Pushed:
    with remote.words():
        try:
            return remote.change(updates, [update])
        except (StaleLease, StaleEntry):
            remote.learn_refusal()
            raise NotAsRemembered from None
