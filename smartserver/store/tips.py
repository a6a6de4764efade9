"""`TipProof`: the attributes of tips, as the repository's system proves them by records and by the graph.

What a client says of a tip (what a tag peels to, the number of a revision) is shown to everybody else. So nothing of
it is stored: the system is asked, once the revisions of the request are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from smartserver.records.announced import AnnouncedGraph, AnnouncedRevisions
from smartserver.records.model import RefValue, RevisionId, Tip
from smartserver.records.system import System
from smartserver.store.allowance import Allowance
from smartserver.store.graph import Graph
from smartserver.store.snapshot import Snapshot

AHEAD = 256
"""Revisions whose headers are read at once where the store lies behind a link: those that arrived one after the other
are mostly in one line."""


class TipProof:
    """Implements `records.content.TipReader`, over a repository and the revisions that a request brought."""

    def __init__(
        self,
        system: System,
        snapshot: Snapshot | None,
        graph: Graph,
        announced: AnnouncedGraph | AnnouncedRevisions,
        fact: Callable[[RevisionId], bytes | None],
        allowance: Allowance,
    ) -> None:
        """`graph`: of what is stored and what is announced. `fact`: the `System.tip_fact` of a revision that came."""
        self._system = system
        self._snapshot = snapshot
        self._stored = 0 if snapshot is None else snapshot.graph.count
        self._graph = graph
        self._announced = announced
        self._fact = fact
        self._allowance = allowance
        self._first_parents: dict[int, int | None] = {}
        self._proved: dict[RevisionId, Tip] = {}
        self._trusts_stored = True

    def values(
        self, claimed: Mapping[bytes, RefValue], stored: Mapping[bytes, RefValue], *, trusts_stored: bool = True
    ) -> dict[bytes, RefValue]:
        """The values of refs with proved attributes. `stored`: what the refs hold now. `trusts_stored`: whether the
        attributes of stored refs count as proved. An earlier release stored any."""
        self._trusts_stored = trusts_stored
        self._allowance.charge(len(claimed))
        # Where the ref says which type its tip has, no record adds to that.
        any_type = {name: value for name, value in claimed.items() if self._system.tip_meta(name) is None}
        known = {name: {tip.id: tip for tip in stored.get(name, ()) if trusts_stored} for name in any_type}
        self._prove(tip.id for name, value in any_type.items() for tip in value if tip.id not in known[name])
        return {
            name: tuple([self._proved.get(tip.id) or known[name][tip.id] for tip in value])
            if name in known
            else self._plain(value)
            for name, value in claimed.items()
        }

    def proved(self) -> Iterator[Tip]:
        """The tips of stored refs, where these are trusted."""
        if self._snapshot is not None and self._trusts_stored:
            for value in self._snapshot.state.refs().values():
                self._allowance.charge(1)
                yield from value

    def ordinal(self, revision: RevisionId) -> int | None:
        """The ordinal of a revision that is stored or announced."""
        return self._graph.ordinal(revision)

    def first_parent(self, ordinal: int) -> int | None:
        """The first parent of a revision; None where it has none, or that is absent."""
        self._allowance.charge(1)
        if ordinal >= self._stored:
            place = self._announced.find(self._graph.revision(ordinal))
            assert place is not None, "it is stored or announced"
            parents = self._announced[place].parents
            return self._graph.ordinal(parents[0].id) if parents and not parents[0].absent else None
        assert self._snapshot is not None, "something is stored"
        if not self._snapshot.far:
            return self._snapshot.first_parent(ordinal)
        if ordinal not in self._first_parents:
            self._first_parents |= self._snapshot.first_parents(range(max(0, ordinal + 1 - AHEAD), ordinal + 1))
        return self._first_parents[ordinal]

    def facts(self, revisions: Sequence[RevisionId]) -> Sequence[bytes]:
        """The facts of revisions: those that came are known, the records of the others are read."""
        self._allowance.charge(len(revisions))
        found = {revision: self._fact(revision) for revision in revisions}
        snapshot, kind = self._snapshot, self._system.own_kind
        if snapshot is not None and kind is not None:
            read = [each for each, fact in found.items() if fact is None and snapshot.ordinal(each) is not None]
            if self._system.label is not None:  # Nothing else has facts, and a header takes less than a record.
                metas = snapshot.metas([(kind, each) for each in read])
                read = [each for each, meta in zip(read, metas, strict=True) if meta == self._system.label]
            places = {each: place for each in read if (place := snapshot.first(kind, each)) is not None}
            if snapshot.far:
                snapshot.fetch(places.values())
            for each, place in places.items():
                self._allowance.decode(place.chain_kib << 10)
                record = snapshot.record(place)
                found[each] = self._system.tip_fact(record.meta, record.text)
        return [found[revision] or b"" for revision in revisions]

    def _prove(self, tips: Iterable[RevisionId]) -> None:
        new = list(dict.fromkeys(tip for tip in tips if tip not in self._proved))
        if new:
            self._proved |= {tip.id: tip for tip in self._system.prove_tips(self, new)}

    @staticmethod
    def _plain(value: RefValue) -> RefValue:
        return tuple([Tip(tip.id) for tip in value])
