"""Phases of changesets on a server: all are public, or, in a repository that does not publish, those below a map.

What is public stays so: entries are only ever added, and those of two users cannot be in each other's way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from smartserver.vcs.hg.kinds import NO, PUBLISHING
from smartserver.vcs.hg.repository import HgRepository

DRAFT = b"1"
"""A phase, as Mercurial's own tables have it."""


def is_publishing(settings: Mapping[str, bytes]) -> bool:
    """Whether everything that is pushed becomes public."""
    return settings.get(PUBLISHING) != NO


def draft_roots(
    local: HgRepository | None,
    came: Mapping[bytes, tuple[bytes, ...]],
    common: Collection[bytes],
    public: Collection[bytes],
) -> list[bytes]:
    """The draft changesets there that have no draft parent, as far as they are here or came.

    `common`: heads of what is here and there. `public`: heads of what is public there.
    """
    below = _public_received(came, public)
    here: set[bytes] = set()
    roots: list[bytes] = []
    if local is not None and common:
        known = _public_here(local, came, [*public, *below], below)
        drafts = _local(local).revs(b"::%ln - ::%ln", list(common), known)
        nodes = [local.changesets.node(rev) for rev in drafts]
        here.update(nodes)
        roots += [node for node in nodes if not any(parent in here for parent in local.parents(node))]
    drafts_came = [node for node in came if node not in below]
    every = {*here, *drafts_came}
    roots += [node for node in drafts_came if not any(parent in every for parent in came[node])]
    return list(dict.fromkeys(roots))


class PhaseHeads(NamedTuple):
    """The heads of public changesets, and of drafts."""

    public: list[bytes]
    draft: list[bytes]


def phase_heads(
    local: HgRepository | None,
    came: Mapping[bytes, tuple[bytes, ...]],
    public: Collection[bytes],
    heads: Collection[bytes],
) -> PhaseHeads:
    """The phases of `heads` and their ancestors, each of which is here or came. The other arguments are those above."""
    below = _public_received(came, public)
    found = PhaseHeads([], [])
    here: set[bytes] = set()
    seen: set[bytes] = set()
    todo = list(heads)
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in below:
            found.public.append(node)
        elif node in came:
            todo += came[node]
        elif local is not None and local.has(node):
            here.add(node)
    if local is not None and here:
        known = _public_here(local, came, public, below)
        repository, node_of = _local(local), local.changesets.node
        found.public.extend(map(node_of, repository.revs(b"heads(::%ln and ::%ln)", list(here), known)))
        below.update(map(node_of, repository.revs(b"%ln and ::%ln", list(here), known)))
    found.draft.extend(head for head in heads if head not in below)
    return found


def _public_received(came: Mapping[bytes, tuple[bytes, ...]], public: Collection[bytes]) -> set[bytes]:
    below: set[bytes] = set()
    todo = [node for node in public if node in came]
    while todo:
        node = todo.pop()
        if node not in below:
            below.add(node)
            todo += [parent for parent in came[node] if parent in came]
    return below


def _public_here(
    local: HgRepository, came: Mapping[bytes, tuple[bytes, ...]], public: Collection[bytes], below: Collection[bytes]
) -> list[bytes]:
    """Local changesets such that these and their ancestors are public there."""
    known = [node for node in public if local.has(node)]
    known += [parent for node in below for parent in came[node] if parent not in came]
    return known


def _local(local: HgRepository) -> Any:
    return local.mercurial.unfiltered()
