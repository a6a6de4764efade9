"""Phases of changesets on a server: all are public, or, in a repository that does not publish, those below a map.

What is public stays so: entries are only ever added, and those of two users cannot be in each other's way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
    below: set[bytes] = set()
    todo = [node for node in public if node in came]
    while todo:
        node = todo.pop()
        if node not in below:
            below.add(node)
            todo += [parent for parent in came[node] if parent in came]
    here: set[bytes] = set()
    roots: list[bytes] = []
    if local is not None and common:
        known = [node for node in (*public, *below) if local.has(node)]
        known += [parent for node in below for parent in came[node] if parent not in came]
        drafts = local.mercurial.unfiltered().revs(b"::%ln - ::%ln", list(common), known)
        nodes = [local.changesets.node(rev) for rev in drafts]
        here.update(nodes)
        roots += [node for node in nodes if not any(parent in here for parent in local.parents(node))]
    drafts_came = [node for node in came if node not in below]
    every = {*here, *drafts_came}
    roots += [node for node in drafts_came if not any(parent in every for parent in came[node])]
    return list(dict.fromkeys(roots))
