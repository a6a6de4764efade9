"""`append_revisions_only`: a branch with that option is moved only to what has its tip in the line of first parents.

The server does not read a branch's options. A change that rests on what they are goes with the condition that they are
just that; where they are not, it is refused, they are known, and it is decided again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from breezy import config, errors
from breezy.revision import NULL_REVISION

from smartserver.plugins.breezy.commands import running
from smartserver.plugins.breezy.effects import EffectiveStack
from smartserver.plugins.breezy.remembered import CONFIG
from smartserver.records.model import RevisionId
from smartserver.verbs.fields import HERE
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest

if TYPE_CHECKING:
    from smartserver.plugins.breezy.branch import HpssBranch

OPTION = "append_revisions_only"


class _Options:
    """What Breezy reads a branch's options off."""

    def __init__(self, url: str, content: bytes) -> None:
        self.base = url
        self._content = content

    def _get_config_store(self) -> Any:
        store = config.IniFileStore()
        store._load_from_string(self._content)
        return store


def only_appends(url: str, content: bytes) -> bool:
    """Whether a branch with these options of its own may only get revisions on top."""
    return bool(EffectiveStack(_Options(url, content)).get(OPTION))


def check(branch: HpssBranch, revision: RevisionId) -> None:
    """See to it that a branch's tip may become a revision that is there.

    Raises:
        AppendRevisionsOnlyViolation: the branch's options forbid it.
    """
    remote = branch.remote
    if only_appends(branch.base, remote.state().config):
        remote.confirm()
        tip, graph = branch.last_revision(), branch.repository.get_graph()
        is_backwards = running().removes_revisions or not is_on_top(graph, revision, tip)
        if is_backwards and only_appends(branch.base, remote.state().config):
            raise errors.AppendRevisionsOnlyViolation(branch.base)


def options_are(content: bytes) -> MapUpdateRequest:
    """The condition that these are the branch's options: a change that changes nothing."""
    same = EntryChange(b"", content or None, How.EQUAL, content or None)
    return MapUpdateRequest(CONFIG, MapKind.OPAQUE, [same], HERE, True)


def options_become(content: bytes) -> list[MapUpdateRequest]:
    """The options of a branch that has none."""
    change = EntryChange(b"", content, How.EQUAL, None)
    return [MapUpdateRequest(CONFIG, MapKind.OPAQUE, [change], HERE, True)] if content else []


def is_on_top(graph: Any, revision: RevisionId, tip: RevisionId) -> bool:
    """Whether `tip` is in the line of first parents from a revision."""
    at: RevisionId = revision
    while at != tip:
        parents = graph.get_parent_map([at]).get(at)
        if not parents:
            return False
        at = parents[0]
    return True


def is_linear(graph: Any, revision: RevisionId, tip: RevisionId | None) -> bool:
    """Whether nothing was merged on the way from `tip`, None: from the beginning, to a revision.

    Whatever branch can be moved ahead on that way has its tip on it.
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
