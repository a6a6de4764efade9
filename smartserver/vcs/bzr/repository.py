"""Reads a Breezy repository on this machine: its format, its graph of revisions, and their signatures.

If a revision exists here, so do its ancestors except ghosts; Breezy guarantees this. A stacked repository reads the
rest through the repository that it is stacked on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from smartserver.errors import shown
from smartserver.records.model import Kind, RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.compat import NETWORK_NAME, NULL, Repository, Store
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.system import BzrSystem

_FAR = 4096
"""The distance of the farthest ancestor that is offered below a head."""

_STEPS = frozenset(1 << n for n in range(_FAR.bit_length()))
"""Distances from a head to the ancestors that are sent as haves. Because they double, the revisions received in vain
are at most as many as were added here since the newest common revision."""


def _closer() -> Iterator[int]:
    """Yield the distances below the first head, which is most likely the branch of the command. From 64 on, each is a
    16th farther."""
    distance = 1
    while distance < _FAR:
        yield distance
        distance = distance * 2 if distance < 64 else distance * 17 // 16
    yield _FAR


_FIRST_STEPS = frozenset(_closer())

_ANCESTOR_HEADS = 8

MAX_ABSENT = 4096
"""The most ghosts that a pull may name."""

STORES = {REVISION: "revisions", SIGNATURE: "signatures", INVENTORY: "inventories", CHK: "chk_bytes", TEXT: "texts"}


class WrongFormat(VcsError):
    """The repository does not have the 2a format, the only one that can be sent."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        if self.name == "git":
            return "the repository is one of git, expected one of Breezy's (2a): git itself pushes it (`git push hpss://...`)"
        return f"the repository's format is {self.name!r}, expected 2a: convert it with `brz upgrade --2a`"


class BrzRepository:
    """A repository that Breezy has opened. Its methods take the locks that they need."""

    vcs = BzrSystem.name

    def __init__(self, repository: Repository) -> None:
        self.breezy = repository

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of records: revisions, signatures, inventories, pages of maps, and texts."""
        return BzrSystem.kinds

    @property
    def stores(self) -> dict[int, Store]:
        """Breezy's store of each kind of records, by the number of the kind."""
        return {kind: getattr(self.breezy, name) for kind, name in STORES.items()}

    def check_format(self) -> None:
        """Check that the repository has format 2a.

        Raises:
            WrongFormat: it has another format.
        """
        name = self.breezy._format.network_name()
        if name != NETWORK_NAME:
            raise WrongFormat(shown(name.strip()))

    def locked(self) -> AbstractContextManager[object]:
        """Return a context that locks the repository for reading."""
        return self.breezy.lock_read()

    def parents(self, revisions: Iterable[RevisionId]) -> Mapping[RevisionId, tuple[RevisionId, ...]]:
        """Return the parents of each of `revisions` that the repository has."""
        found = self.breezy.get_parent_map(revisions)
        return {revision: tuple([p for p in parents if p != NULL]) for revision, parents in found.items()}

    def complete_haves(
        self, candidates: Iterable[RevisionId], limit: int, heads: Sequence[RevisionId] = ()
    ) -> list[RevisionId]:
        """Return at most `limit` revisions that the repository has with all ancestors and content, the most useful
        first.

        `candidates`: the last known tips of the remote. Candidates that the repository has come first, then `heads`,
        the tips of local branches. If it has no candidate, some ancestors of `heads` follow, in case these are ahead of
        the remote; if it has no `heads` either, the heads of the graph are used. Ancestors that are ghosts may be
        missing: see `absent`.
        """
        with self.locked():
            wanted = list(dict.fromkeys([*candidates, *heads]))
            here = self.breezy.get_parent_map(wanted)
            haves = dict.fromkeys([revision for revision in wanted if revision in here and revision != NULL])
            if not any(revision in haves for revision in candidates) and len(haves) < limit:
                if not haves:
                    haves = dict.fromkeys(self.heads())
                haves.update(dict.fromkeys(self._ancestors(list(haves)[:_ANCESTOR_HEADS])))
            return list(haves)[:limit]

    def absent(self, haves: Iterable[RevisionId]) -> list[RevisionId]:
        """Return the ghosts among the ancestors of `haves`; at most `MAX_ABSENT`."""
        with self.locked():
            graph = self._ancestry(haves)
            return list({p: None for parents in graph.values() for p in parents if p not in graph})[:MAX_ABSENT]

    def add_signatures(self, signatures: Mapping[RevisionId, bytes]) -> int:
        """Add signatures to revisions that the repository has without one. Return the number of signatures added."""
        with self.breezy.lock_write():
            here = self.breezy.revisions.get_parent_map([(revision,) for revision in signatures])
            signed = self.breezy.signatures.get_parent_map(here)
            new = [key[0] for key in here if key not in signed]
            if new:
                self.breezy.start_write_group()
                try:
                    for revision in new:
                        self.breezy.add_signature_text(revision, signatures[revision])
                    self.breezy.commit_write_group()
                except BaseException:
                    self.breezy.abort_write_group(suppress_errors=True)
                    raise
            return len(new)

    def signatures(self, revisions: Iterable[RevisionId]) -> dict[RevisionId, bytes]:
        """Return the signatures of those `revisions` that have one here."""
        with self.locked():
            keys = [(revision,) for revision in revisions]
            stream = self.breezy.signatures.get_record_stream(keys, "unordered", True)
            return {row.key[0]: row.get_bytes_as("fulltext") for row in stream if row.storage_kind != "absent"}

    # ---- the graph

    def _ancestry(self, revisions: Iterable[RevisionId]) -> dict[RevisionId, tuple[RevisionId, ...]]:
        """Return `revisions` and their ancestors that the repository has, each with its parents, parents first."""
        here = [revision for revision in self.parents(revisions) if revision != NULL]
        if not here:
            return {}
        order = [revision for revision in self.breezy.get_known_graph_ancestry(here).topo_sort() if revision != NULL]
        found = self.parents(order)
        return {revision: found[revision] for revision in order if revision in found}  # Ghosts are in the order, too.

    def ancestry(
        self, tips: Iterable[RevisionId], haves: Sequence[RevisionId]
    ) -> dict[RevisionId, tuple[RevisionId, ...]]:
        """Return the ancestors of `tips` that are not ancestors of `haves`, each with its parents, parents first.

        Haves that the repository lacks are ignored. The caller must hold a lock.
        """
        common = list(self.parents(haves))
        if not common:
            return self._ancestry(tips)
        graph = self.breezy.get_graph()
        found: set[RevisionId] = set()
        for tip in dict.fromkeys(tips):
            if tip not in found and tip not in common:
                found.update(graph.find_unique_ancestors(tip, common))
        return _sorted(self.parents(found - {NULL}))

    def heads(self) -> list[RevisionId]:
        """Return the revisions without a child."""
        found = self.parents(self.breezy.all_revision_ids())
        inner = {parent for parents in found.values() for parent in parents}
        return [revision for revision in found if revision not in inner]

    def _ancestors(self, heads: Sequence[RevisionId]) -> list[RevisionId]:
        """Return the first-parent ancestors at growing distances from each of `heads`, the nearest first."""
        found: list[tuple[int, RevisionId]] = []
        for number, head in enumerate(heads):
            steps = _STEPS if number else _FIRST_STEPS
            revision = head
            for distance in range(_FAR + 1):
                parents = self.parents([revision]).get(revision)
                if parents is None:
                    break
                if distance in steps:
                    found.append((distance, revision))
                if not parents:
                    break
                revision = parents[0]
        return [revision for _, revision in sorted(found, key=lambda row: row[0])]


def _sorted(graph: Mapping[RevisionId, tuple[RevisionId, ...]]) -> dict[RevisionId, tuple[RevisionId, ...]]:
    """Return the same graph, parents first."""
    found: dict[RevisionId, tuple[RevisionId, ...]] = {}
    for revision in graph:
        todo = [revision]
        while todo:
            parents = graph[todo[-1]]
            before = [parent for parent in reversed(parents) if parent in graph and parent not in found]
            if before and todo[-1] not in found:
                todo += before
            else:
                found.setdefault(todo.pop(), parents)
    return found
