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
    """The draft changesets there that have no draft parent, of those that are here or came.

    `came`: received changesets and their parents; they may be here by now. `common`: heads of what is here and there.
    `public`: heads of what is public there.
    """
    received = _public_received(came, public)
    drafts: dict[bytes, tuple[bytes, ...]] = {}
    if local is not None and common:
        revisions = _unfiltered(local).revs(b"::%ln - ::%ln", list(common), _public_here(local, came, public, received))
        drafts = {node: local.parents(node) for node in map(local.changesets.node, revisions)}
    drafts |= {node: parents for node, parents in came.items() if node not in received}
    return [node for node, parents in drafts.items() if drafts.keys().isdisjoint(parents)]


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
    known = _public_received(came, public)
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
        elif node in came:
            todo += came[node]
        elif local is not None and local.has(node):
            here.add(node)
    if local is not None and here:
        public_here = _public_here(local, came, public, known)
        repository, node_of = _unfiltered(local), local.changesets.node
        found.public.extend(map(node_of, repository.revs(b"heads(::%ln and ::%ln)", list(here), public_here)))
        known.update(map(node_of, repository.revs(b"%ln and ::%ln", list(here), public_here)))
    found.draft.extend(head for head in heads if head not in known)
    return found


def _public_received(came: Mapping[bytes, tuple[bytes, ...]], public: Collection[bytes]) -> set[bytes]:
    """The public ones of the changesets that came."""
    found: set[bytes] = set()
    todo = [node for node in public if node in came]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += [parent for parent in came[node] if parent in came]
    return found


def _public_here(
    local: HgRepository,
    came: Mapping[bytes, tuple[bytes, ...]],
    public: Collection[bytes],
    received: Collection[bytes],
) -> list[bytes]:
    """Local changesets whose ancestors, with them, are what is public there and here. `received`: of the above.

    A head of what is public may be known in none but the changesets that came, which may be here by now.
    """
    below = [parent for node in received for parent in came[node] if parent not in came]
    return [node for node in (*public, *received) if local.has(node)] + below


def _unfiltered(local: HgRepository) -> Any:
    return local.mercurial.unfiltered()
