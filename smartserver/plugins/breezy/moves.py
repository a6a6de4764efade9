"""Moving a branch's tip: what its options forbid, and which tags go with the revisions that are removed.

A branch with `append_revisions_only` is moved only to what has its tip in the line of first parents.

The server does not read a branch's options. A change that rests on what they are goes with the condition that they are
just that; where they are not, it is refused, they are known, and it is decided again.

An uncommit removes the tags of revisions that neither the branch nor a pending merge reaches then. Breezy removes each
tag by itself, after it has moved the tip. Here the request that moves the tip removes the tags too. So they are chosen
before, by Breezy's rule.

The graph that was read ends below the removed revisions. On such a graph Breezy would take older revisions that a
removed merge names for removed ones. Here a revision whose parents were not read counts as kept, and Breezy's own
search is turned off (`HpssBranch.supports_tags`).

A bound branch has a tree that is not known here. Its tags are left to Breezy, which removes them in its own branch and
then in this one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from breezy import config, errors
from breezy.revision import NULL_REVISION

from smartserver.plugins.breezy.checkouts import Checkout, checkout_of
from smartserver.plugins.breezy.commands import running
from smartserver.plugins.breezy.effects import EffectiveStack
from smartserver.plugins.breezy.given import given, is_ours
from smartserver.plugins.breezy.repository import HpssRepository
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import make_graph

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


def check_append(repository: HpssRepository, url: str, revision: RevisionId) -> None:
    """See to it that a branch's tip may become a revision that is there.

    Raises:
        AppendRevisionsOnlyViolation: the branch's options forbid it.
    """
    remote = repository.remote
    if only_appends(url, remote.state().config):
        remote.confirm()
        tip, graph = remote.state().tip or NULL_REVISION, repository.get_graph()
        is_backwards = running().removes_revisions or not is_on_top(graph, revision, tip)
        if is_backwards and only_appends(url, remote.state().config):
            raise errors.AppendRevisionsOnlyViolation(url)


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


def removes_tags() -> bool:
    """Whether an uncommit runs whose tags are removed with the tip."""
    if not running().removes_revisions or given("keep_tags"):
        return False
    return is_ours(_location()) or _checkout() is not None


def removed_tags(repository: HpssRepository, new_tip: RevisionId) -> list[str]:
    """The tags that go when this becomes the tip."""
    state, graph, checkout = repository.remote.state(), repository.get_graph(), _checkout()
    tip = state.tip
    kept = [new_tip]
    if checkout is not None:
        removed = itertools.takewhile(lambda each: each != new_tip, graph.iter_lefthand_ancestry(tip))
        merged = [parent for each in removed for parent in graph.get_parent_map([each])[each][1:]]
        # The checkout gets them as pending merges. They are read before the move, so that nothing fails after it.
        list(repository.revision_trees(graph.get_parent_map(merged).keys() - checkout.parents()))
        kept += [*checkout.parents()[1:], *merged]
    if not state.tags:
        return []
    if repository.remote.content is not None:
        graph = make_graph([_Read(repository.remote.content.parents)])
    gone = graph.get_parent_map(graph.find_unique_ancestors(tip, kept))
    return [name for name, tag in state.tags.items() if tag in gone]


class _Read:
    """What was read of the graph. The local repository may have what a removed merge names, and not what is kept."""

    def __init__(self, parents: Mapping[RevisionId, tuple[RevisionId, ...]]) -> None:
        self._parents = parents

    def get_parent_map(self, revisions: Iterable[RevisionId]) -> dict[RevisionId, tuple[RevisionId, ...]]:
        """The parents of those of `revisions` that came."""
        return {each: self._parents[each] or (NULL_REVISION,) for each in revisions if each in self._parents}


def _location() -> str:
    return str(given("location") or ".")


def _checkout() -> Checkout | None:
    return None if is_ours(_location()) else checkout_of(_location())
