"""The tags that an uncommit removes: those of revisions that neither the branch nor a pending merge reaches then.

Breezy removes each tag by itself, after it has moved the tip. Here the request that moves the tip removes the tags too.
So they are chosen before, by Breezy's rule.

The graph that was read ends below the removed revisions. On such a graph Breezy would take older revisions that a
removed merge names for removed ones. Here a revision whose parents were not read counts as kept, and Breezy's own
search is turned off (`HpssBranch.supports_tags`).

A bound branch has a tree that is not known here. Its tags are left to Breezy, which removes them in its own branch and
then in this one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from breezy.revision import NULL_REVISION

from smartserver.plugins.breezy.checkouts import Checkout, checkout_of
from smartserver.plugins.breezy.commands import running
from smartserver.plugins.breezy.given import given, is_ours
from smartserver.records.model import RevisionId
from smartserver.vcs.brz_compat import make_graph

if TYPE_CHECKING:
    from smartserver.plugins.breezy.branch import HpssBranch


def removes_tags() -> bool:
    """Whether an uncommit runs whose tags are removed with the tip."""
    if not running().removes_revisions or given("keep_tags"):
        return False
    return is_ours(_location()) or _checkout() is not None


def removed_tags(branch: HpssBranch, new_tip: RevisionId) -> list[str]:
    """The tags that go when this becomes the tip."""
    tip, graph, checkout = branch.last_revision(), branch.repository.get_graph(), _checkout()
    kept = [new_tip]
    if checkout is not None:
        removed = itertools.takewhile(lambda each: each != new_tip, graph.iter_lefthand_ancestry(tip))
        merged = [parent for each in removed for parent in graph.get_parent_map([each])[each][1:]]
        # The checkout gets them as pending merges. They are read before the move, so that nothing fails after it.
        list(branch.repository.revision_trees(graph.get_parent_map(merged).keys() - checkout.parents()))
        kept += [*checkout.parents()[1:], *merged]
    tags = branch.tags.get_tag_dict()
    if not tags:
        return []
    if branch.remote.content is not None:
        graph = make_graph([_Read(branch.remote.content.parents)])
    gone = graph.get_parent_map(graph.find_unique_ancestors(tip, kept))
    return [name for name, tag in tags.items() if tag in gone]


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
