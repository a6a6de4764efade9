"""Computes the phases of changesets on a server. If its repository publishes, all are public. Otherwise those in the
map `public` and their ancestors are public, and all others are drafts.

Public changesets stay public: entries are only ever added to the map, so those of two users cannot conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from smartserver.vcs.hg.repository import HgRepository

DRAFT = b"1"
"""The phase draft in the form of Mercurial's own tables."""


def draft_roots(
    local: HgRepository | None,
    received: Mapping[bytes, tuple[bytes, ...]],
    common: Collection[bytes],
    public: Collection[bytes],
) -> list[bytes]:
    """Return the changesets, of those that are local or received, that are drafts on the server and have no draft
    parent. `received`: changesets and their parents; they may be local by now. `common`: heads of the changesets on
    both sides. `public`: heads of the public changesets."""
    public_received = _public_received(received, public)
    drafts: dict[bytes, tuple[bytes, ...]] = {}
    if local is not None and common:
        public_here = _public_here(local, received, public, public_received)
        revisions = _unfiltered(local).revs(b"::%ln - ::%ln", list(common), public_here)
        drafts = {node: local.parents(node) for node in map(local.changesets.node, revisions)}
    drafts |= {node: parents for node, parents in received.items() if node not in public_received}
    return [node for node, parents in drafts.items() if drafts.keys().isdisjoint(parents)]


class PhaseHeads(NamedTuple):
    """The heads of public changesets, and of drafts."""

    public: list[bytes]
    draft: list[bytes]


def phase_heads(
    local: HgRepository | None,
    received: Mapping[bytes, tuple[bytes, ...]],
    public: Collection[bytes],
    heads: Collection[bytes],
) -> PhaseHeads:
    """Return the phases of `heads` and their ancestors, each of which is local or received. The other arguments are as
    in `draft_roots`."""
    known = _public_received(received, public)
    found = PhaseHeads([], [])
    here: set[bytes] = set()
    seen: set[bytes] = set()
    todo = list(heads)
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in known:
            found.public.append(node)
        elif node in received:
            todo += received[node]
        elif local is not None and local.has(node):
            here.add(node)
    if local is not None and here:
        public_here = _public_here(local, received, public, known)
        repository, node_of = _unfiltered(local), local.changesets.node
        found.public.extend(map(node_of, repository.revs(b"heads(::%ln and ::%ln)", list(here), public_here)))
        known.update(map(node_of, repository.revs(b"%ln and ::%ln", list(here), public_here)))
    found.draft.extend(head for head in heads if head not in known)
    return found


def _public_received(received: Mapping[bytes, tuple[bytes, ...]], public: Collection[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    todo = [node for node in public if node in received]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += [parent for parent in received[node] if parent in received]
    return found


def _public_here(
    local: HgRepository,
    received: Mapping[bytes, tuple[bytes, ...]],
    public: Collection[bytes],
    public_received: Collection[bytes],
) -> list[bytes]:
    """Return local changesets that are public on the server. All other public changesets are ancestors of the returned
    ones.

    The server reports the heads of public changesets. If such a head is a received changeset, its local ancestors are
    used.
    """
    parents = [parent for node in public_received for parent in received[node]]
    return [node for node in {*public, *public_received, *parents} if local.has(node)]


def _unfiltered(local: HgRepository) -> Any:
    return local.mercurial.unfiltered()
