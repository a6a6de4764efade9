"""`RepositoryView`: a repository as one request sees it, with the changes that the request asked for so far.

The view combines an immutable state with a repository about to be created, the announced graph, and the changes so far.
The view reads from the store and never writes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from smartserver.errors import MissingRevision, NoSuchRepository
from smartserver.records.browse import decode_selector
from smartserver.records.content import ReadScope
from smartserver.records.model import HERE, GraphNode, Kind, RefValue, RevisionId
from smartserver.records.system import EntryValues, Tips, system_of
from smartserver.store.allowance import Allowance
from smartserver.store.browse import ContentBody, browse
from smartserver.store.bulk import BulkReader
from smartserver.store.content import ContentReader, PartReader, SnapshotView
from smartserver.store.graph import Graph, announced_graph
from smartserver.store.model import ContentPlan, PullPlan, RepositoryStats
from smartserver.store.open_pack import SegmentReader
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import MAP


class RepositoryView:
    """A snapshot with the changes of a request so far. A method that needs an existing repository raises
    NoSuchRepository. A method that walks the history from a given revision raises MissingRevision if it is unknown."""

    def __init__(
        self,
        path: str,
        snapshot: Snapshot | None,
        announced: Sequence[GraphNode] = (),
        line: str = "",
        allowance: Allowance | None = None,
        own_meta: Callable[[RevisionId], bytes | None] = lambda revision: None,
        fact: Callable[[RevisionId], bytes | None] = lambda revision: None,
    ) -> None:
        """`line`: the line of the format file. `allowance`: is charged for the work; None means no limit. `own_meta`:
        returns the meta of the own record of an uploaded revision; `fact`: returns its `System.tip_fact`."""
        self.allowance = allowance or Allowance(limited=False)
        self.snapshot = snapshot
        """The repository before the request; None if it does not exist."""
        self.created: tuple[str, tuple[Kind, ...], dict[str, bytes]] | None = None
        """The system, kinds and settings of the repository that this request creates; None if it creates none."""
        self.changes: dict[bytes, RefValue | None] = {}
        """The refs that the request changes, by name; None means that the ref is removed."""
        self.entries: dict[str, dict[bytes, bytes | None]] = {}
        """The entries that the request changes, by map and key; None means that the entry is removed."""
        self.declared: dict[str, str | None] = {}
        """The kinds of maps that the request declares, by map; None means that the map is removed."""
        self.setting_changes: dict[str, bytes | None] = {}
        """The settings that the request changes, by name; None means that the setting is removed."""
        self.deleted = False
        """True if this request deletes the repository."""
        self.remembered = False
        """True if the request must be written to the log even if nothing changes."""
        self._folders: Counter[bytes] | None = None
        """The number of refs below each folder of refs; counted on first use."""
        self._belonging: dict[bytes, set[tuple[str, bytes]]] = {}
        """The entries that this request set and that belong to a ref, by ref, each as map and key."""
        self.path = path
        self._format = line
        self._own_meta = own_meta
        self._fact = fact
        self.announced = announced_graph(announced)
        """The revisions that this request announces, parents first."""
        self.charge = self.allowance.charge
        self._stored = snapshot.graph if snapshot is not None else Graph()
        self.allowance.rests_on(self._stored.size)
        self._graph, self._missing = self._stored.with_announced(self.announced, self.charge)

    @property
    def changed(self) -> bool:
        """True if the request changes something, or must be remembered."""
        of_maps = bool(self.declared) or any(self.entries.values())
        of_rest = bool(self.created or self.changes or self.setting_changes or self.deleted)
        return of_rest or of_maps or self.remembered

    @property
    def exists(self) -> bool:
        """True if the repository exists, or this request creates it."""
        return self.snapshot is not None or self.created is not None

    @property
    def vcs(self) -> str:
        """The name of the repository's version-control system."""
        return self.created[0] if self.created is not None else self._present().state.vcs

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of records in the repository."""
        return self.created[1] if self.created is not None else self._present().state.kinds

    @property
    def is_incomplete(self) -> bool:
        """True if the repository waits for further requests of a copy."""
        return self.snapshot is not None and self.snapshot.state.is_incomplete

    @property
    def settings(self) -> Mapping[str, bytes]:
        """The settings with the changes so far, such as the name of the main branch."""
        if self.created is not None:
            return self.created[2]
        joined: dict[str, bytes | None] = {**self._present().state.settings, **self.setting_changes}
        return {name: value for name, value in joined.items() if value is not None}

    def refs(self) -> Mapping[bytes, RefValue]:
        """Return all refs with the changes so far."""
        if self.created is not None:
            stored: Mapping[bytes, RefValue] = {}
        else:
            stored = self._present().state.refs()
        if not self.changes:
            return stored
        joined: dict[bytes, RefValue | None] = {**stored, **self.changes}
        return {name: value for name, value in sorted(joined.items()) if value is not None}

    @property
    def had_refs(self) -> bool:
        """True if the repository had a ref before this request."""
        return self.created is None and bool(self._present().state.refs())

    def ref(self, name: bytes) -> RefValue | None:
        """Return the value of a ref including the changes so far, or None."""
        if name in self.changes:
            return self.changes[name]
        return self._stored_ref(name)

    def nested(self, name: bytes) -> bytes | None:
        """Return the ref that conflicts with `name`, or `name/...` if a ref below it does; None if there is no
        conflict. A client that stores refs in files cannot have both `a` and `a/b`."""
        if not system_of(self.vcs).refs_are_files:
            return None
        for above in folders_of(name):
            if self.ref(above) is not None:
                return above
        if self._folders is None:
            self._folders = Counter(folder for ref in self.refs() for folder in folders_of(ref))
        return name + b"/..." if self._folders[name] else None

    def has_revision(self, revision: RevisionId) -> bool:
        """Tell whether a revision is stored or announced."""
        return self._graph.ordinal(revision) is not None

    def is_stored(self, revision: RevisionId) -> bool:
        """Tell whether a revision is stored."""
        return self._stored.ordinal(revision) is not None

    def is_ancestor(self, ancestor: RevisionId, revision: RevisionId) -> bool:
        """Tell whether `revision` is or descends from `ancestor`, in the graph of stored and announced revisions."""
        return self._graph.is_ancestor(self._ordinal(ancestor), self._ordinal(revision), self.charge)

    def heads(self, revisions: Sequence[RevisionId]) -> list[RevisionId]:
        """Return those of `revisions` that are not ancestors of another one."""
        found = self._graph.heads([self._ordinal(revision) for revision in revisions], self.charge)
        return [self._graph.revision(ordinal) for ordinal in found]

    def beyond(self, revisions: Sequence[RevisionId], others: Sequence[RevisionId]) -> list[RevisionId]:
        """Return the `revisions` that are neither in `others` nor ancestors of a revision in it. Unknown ids in
        `others` are ignored."""
        ordinals = [self._ordinal(revision) for revision in revisions]
        reached = [ordinal for ordinal in map(self._graph.ordinal, others) if ordinal is not None]
        found = set(self._graph.missing(ordinals, reached, charge=self.charge)) if reached else set(ordinals)
        return [revision for revision, ordinal in zip(revisions, ordinals, strict=True) if ordinal in found]

    def leads_forward(self, name: bytes, old: RevisionId, new: RevisionId) -> bool:
        """Tell whether `new` is or descends from `old` or, if `old` is a label (an annotated tag), its target."""
        if self.is_ancestor(old, new):
            return True
        if system_of(self.vcs).tip_meta(name) is not None:
            return False  # Such a ref never names a label, and to look would take a read.
        target = self._stored.ordinal(old)
        while target is not None and self._is_label(target):
            self.charge(1)
            (target,) = self._stored.parents(target)
        return target is not None and self.is_ancestor(self._stored.revision(target), new)

    def maps(self) -> list[str]:
        """Return the names of all maps."""
        stored = [] if self.created is not None else self._present().state.maps
        return [name for name in dict.fromkeys([*stored, *self.declared]) if self.declared.get(name, "") is not None]

    def map_kind(self, name: str) -> str | None:
        """Return the kind of a declared map, `ids` or `opaque`: the kind that the system defines, else the declared
        one. Return None if the map is not declared."""
        declared = self.declared_kind(name)
        known = system_of(self.vcs).maps.get(name)
        return declared if declared is None or known is None else known.kind

    def declared_kind(self, name: str) -> str | None:
        """Return the declared kind of a map, even if the system defines another. None if the map is not declared."""
        if name in self.declared:
            return self.declared[name]
        return None if self.created is not None else self._present().state.map_kind(name)

    def map(self, name: str) -> Mapping[bytes, bytes]:
        """Return the entries of a map with the changes so far. If an entry belongs to a ref, its key begins with the
        ref's name and NUL."""
        stored = self._stored_map(name)
        if not self.entries.get(name):
            return stored
        self.charge(len(stored) + len(self.entries[name]))
        joined: dict[bytes, bytes | None] = {**dict(stored.items()), **self.entries[name]}
        return {key: value for key, value in sorted(joined.items()) if value is not None}

    def entry(self, name: str, key: bytes) -> bytes | None:
        """Return one entry of a map including the changes so far, or None."""
        changed = self.entries.get(name, {})
        return changed[key] if key in changed else self._stored_map(name).get(key)

    def with_entries(self, name: str, firsts: Sequence[bytes]) -> list[bytes]:
        """Return each of `firsts` that is a prefix of some key in a map, with the changes so far."""
        changed = self.entries.get(name, {})
        self.charge(len(changed) + len(firsts))
        new = sorted(key for key, value in changed.items() if value is not None)
        stored = None if self.created is not None else self._present().state.table(MAP + name)

        def begins(first: bytes) -> bool:
            at = bisect_left(new, first)
            if at < len(new) and new[at].startswith(first):
                return True
            return stored is not None and any(key not in changed for key in stored.starting(first))

        return [first for first in firsts if begins(first)]

    def superseded(self, tips: Sequence[RevisionId]) -> tuple[Tips, Tips]:
        """Return the tips of a ref that entries of maps mark as superseded (`records.system.System.superseded`)."""
        return system_of(self.vcs).superseded(self, tips)

    def entry_rights(self, name: str, changes: Sequence[EntryValues]) -> list[str]:
        """Return the name of the right that each change of an entry needs (`records.system.System.entry_rights`)."""
        return [right.value for right in system_of(self.vcs).entry_rights(self, name, changes)]

    def named(self, name: str) -> Iterator[RevisionId]:
        """Return the revisions that entries of a map keep alive (`records.system.System.named_revisions`)."""
        return system_of(self.vcs).named_revisions(name, self.map(name))

    def known_heads(self) -> list[RevisionId]:
        """Return the heads among the announced revisions that are stored already."""
        # Every revision between two stored ones is stored, so a head is no parent of a stored revision.
        inner, held = bytearray(self._stored.count), array("I")
        for revision, parents in self.announced:
            self.charge(1 + len(parents))
            ordinal = self._stored.ordinal(revision)
            if ordinal is not None:
                held.append(ordinal)
                for parent in self._stored.parents(ordinal):
                    inner[parent] = 1
        return [self._stored.revision(ordinal) for ordinal in held if not inner[ordinal]]

    def new_revisions(self) -> int:
        """Return the number of announced revisions that are not stored."""
        return self._graph.count - self._stored.count

    def followed(self, candidates: Sequence[RevisionId], tips: Sequence[RevisionId]) -> list[RevisionId]:
        """Return the `candidates` that `tips` reach, and those that are labels (annotated tags) of a reached revision.
        Unknown ids are ignored."""
        graph = self._stored
        found = sorted({ordinal for ordinal in map(graph.ordinal, candidates) if ordinal is not None})
        reached = [ordinal for ordinal in map(graph.ordinal, tips) if ordinal is not None]
        beyond = set(graph.missing(found, reached, charge=self.charge))
        rejected: set[int] = set()
        for ordinal in found:  # Ascending: a label on a label comes after it.
            # The labels between this one and a reached revision need not be candidates themselves.
            walked: list[int] = []
            left = [ordinal] if ordinal in beyond else []
            while left:
                walked.append(left.pop())
                if walked[-1] in rejected or not self._is_label(walked[-1]):
                    rejected.update(walked)
                    break
                left += [parent for parent in graph.parents(walked[-1]) if parent in beyond]
            else:
                beyond.difference_update(walked)
        return [graph.revision(ordinal) for ordinal in found if ordinal not in beyond]

    def _is_label(self, ordinal: int) -> bool:
        snapshot = self._present()
        system = system_of(snapshot.state.vcs)
        if system.own_kind is None or system.label is None or not snapshot.graph.parents(ordinal):
            return False
        location = snapshot.first(system.own_kind, snapshot.graph.revision(ordinal))
        return location is not None and snapshot.record(location).meta == system.label

    def plan_pull(
        self, wants: Sequence[RevisionId], haves: Sequence[RevisionId], absent: Sequence[RevisionId] = ()
    ) -> PullPlan:
        """Plan the segments of the revisions that `wants` reach and `haves` do not. `absent`: revisions that the client
        lacks although it has their children; the walk from `haves` stops before them."""
        if self.created is not None:
            raise NoSuchRepository(self.path)
        snapshot = self._present()
        graph = snapshot.graph
        found = [graph.ordinal(have) for have in haves]
        had = [ordinal for ordinal in found if ordinal is not None]
        cut = [ordinal for ordinal in map(graph.ordinal, absent) if ordinal is not None]
        ordinals = graph.missing([self._ordinal(want, graph) for want in wants], had, cut, self.charge)
        ranges = merge(ordinals)
        return PullPlan(ranges, len(ordinals), snapshot.size(ranges), tuple(ordinal is not None for ordinal in found))

    def stats(self) -> RepositoryStats:
        """Return counts and sizes of the repository before this request."""
        snapshot = self._present()
        state = snapshot.state
        return RepositoryStats(
            format=self._format,
            features=sorted(state.features),
            vcs=state.vcs,
            version=state.version,
            refs=len(state.refs()),
            entries=sum(len(entries) for entries in state.maps.values()),
            revisions=snapshot.graph.count,
            records=sum(entry.records for entry in state.packs),
            packs=len(state.packs),
            size=sum(entry.length + entry.index_length for entry in state.packs),
            largest=max((entry.length for entry in state.packs), default=0),
        )

    def plan_read(
        self,
        selector: bytes,
        wants: Sequence[RevisionId],
        haves: Sequence[RevisionId] = (),
        ref: bytes = b"",
        inner: str = "",
    ) -> tuple[PullPlan | ContentPlan, bytes]:
        """Plan the answer to a selector. Also return the system's message for the client. Whole revisions are sent as a
        bulk stream. `ref`: the first ref that the request named. `inner`: the part of the path below the branch."""
        if self.created is not None:
            raise NoSuchRepository(self.path)
        question = ReadScope(wants, haves, ref)
        system, view, common = (
            system_of(self.vcs),
            SnapshotView(self.refs, self.map, self._present(), self.allowance),
            decode_selector(selector),
        )
        if common is None:
            reading = system.read(view, selector, question)
        else:
            # If the path names no branch, its whole part below the repository leads into a tree.
            within = inner.encode() if ref in self.refs() else ref if ref != HERE else b""
            reading = browse(view, system.contents(view, question), common, within)
        if reading.heads is None:
            return ContentPlan(reading.pieces, reading.items), reading.said
        plan = self.plan_pull(reading.heads, haves)
        return msgspec.structs.replace(plan, bulk=True, expanded=True), reading.said

    def open_body(self, plan: PullPlan | ContentPlan, level: int = 0) -> SegmentReader | BulkReader | PartReader:
        """Open the body that a plan describes. `level`: the compression level of a content body; 0 means none."""
        if isinstance(plan, ContentPlan) and plan.items is not None:
            return ContentBody(plan.items, level)
        if isinstance(plan, ContentPlan):
            return ContentReader(SnapshotView(self.refs, self.map, self._present(), self.allowance), plan.pieces or ())
        segments = self._present().read_ranges(plan.ranges)
        if not plan.bulk:
            return segments
        return BulkReader(segments, self.kinds if plan.expanded and system_of(self.vcs).in_hunks else ())

    def _present(self) -> Snapshot:
        if self.snapshot is None:
            raise NoSuchRepository(self.path)
        return self.snapshot

    def _stored_ref(self, name: bytes) -> RefValue | None:
        return None if self.created is not None else self._present().state.ref(name)

    def _stored_map(self, name: str) -> Mapping[bytes, bytes]:
        return {} if self.created is not None else self._present().state.map(name)

    def _ordinal(self, revision: RevisionId, graph: Graph | None = None) -> int:
        """Return the ordinal of a revision in a graph; by default the graph of stored and announced revisions."""
        ordinal = (graph or self._graph).ordinal(revision)
        if ordinal is None:
            raise MissingRevision(revision)
        return ordinal


def merge(ordinals: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Merge ascending ordinals into half-open ranges."""
    if not ordinals:
        return ()
    starts = [ordinals[0]]
    stops = []
    for before, ordinal in pairwise(ordinals):
        if ordinal != before + 1:
            stops.append(before + 1)
            starts.append(ordinal)
    stops.append(ordinals[-1] + 1)
    return tuple(zip(starts, stops, strict=True))


def folders_of(name: bytes) -> list[bytes]:
    """Return the folders that contain a ref: `a` and `a/b` for `a/b/c`."""
    parts = name.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]
