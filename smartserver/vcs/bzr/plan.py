"""Makes the segments of a push: `plan` finds the revisions to send, and `BrzExport` reads them.

The rule of this file: a candidate for a base is a parent's page at the same place, its text of the same file, its
revision or its inventory. So an ancestor introduced it, whatever Breezy's own index says. Inventories and pages are
read for some revisions together, then their texts, so that only so much is in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import NamedTuple, Self

from smartserver.errors import shown
from smartserver.records import limits
from smartserver.records.bases import Candidate, NewRecord, SegmentWriter
from smartserver.records.model import GraphNode, Key, Parent, RevisionId, made
from smartserver.vcs.base import CannotSend
from smartserver.vcs.bzr.compat import StoreKey, read_texts
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.meta import inventory_meta, text_meta
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.vcs.bzr.revision import Inventory, read_inventory, read_revision
from smartserver.vcs.bzr.trees import Asking, Difference, MapPage
from smartserver.vcs.collector import rare_collections
from smartserver.vcs.sending import Job, segment

FEW = 64
"""The most revisions for which the writer uses the direct predecessor as base."""

CHUNK = 64
"""The number of revisions whose inventories and pages are read together."""

BATCH = 32 << 20
"""The most bytes of new texts that are read together, unless one revision alone has more."""

_CACHE = 32 << 20
"""The most bytes of texts that are cached as possible bases."""

_PAGES = 16 << 20
"""The most bytes of pages that are kept from one chunk to the next."""

_ROOTS = 20_000
"""The number of inventories whose roots are kept in memory."""


class BrzPlan:
    """The content of a push; see `plan`. A plan is used for one repository only."""

    def __init__(
        self,
        repository: BrzRepository,
        graph: Mapping[RevisionId, tuple[RevisionId, ...]],
        here: Collection[RevisionId],
        excluded: frozenset[Key] = frozenset(),
        *,
        partial: bool = False,
    ) -> None:
        """`here`: the parents outside `graph` that are in the repository.

        `partial`: the texts of these parents may be missing; missing texts are not used as delta bases.
        """
        self._partial = partial
        self._repository = repository
        self._parents = graph
        self._here = here
        self._excluded = excluded
        self.graph: Sequence[GraphNode] = [
            GraphNode(revision, tuple([Parent(parent, not self._has(parent)) for parent in parents]))
            for revision, parents in graph.items()
        ]

    @property
    def bulk(self) -> bool:
        """True if the push has more than `FEW` revisions."""
        return len(self.graph) > FEW

    def without_bases(self, keys: Collection[Key]) -> Self:
        """Return the same plan with none of `keys` as a delta base."""
        excluded = self._excluded | frozenset(keys)
        return type(self)(self._repository, self._parents, self._here, excluded, partial=self._partial)

    def segments(self) -> Iterator[bytes]:
        """Yield whole segments in the order of `graph`. The method may be called again."""
        if self.graph:
            with self._repository.locked(), rare_collections():
                export = BrzExport(self._repository, self.bulk, self._excluded, partial=self._partial)
                yield from export.segments(self.graph)

    def _has(self, revision: RevisionId) -> bool:
        return revision in self._parents or revision in self._here


def plan(repository: BrzRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> BrzPlan:
    """Return the plan of a push after which a server that has `haves` also has `tips`."""
    repository.check_format()
    tips = list(tips)
    with repository.locked():
        missing = set(tips).difference(repository.parents(tips))
        if missing:
            raise CannotSend(f"cannot push: revision {shown(min(missing))} is missing in this repository")
        graph = repository.ancestry(tips, list(haves))
        outside = {parent for parents in graph.values() for parent in parents if parent not in graph}
        return BrzPlan(repository, graph, set(repository.parents(outside)))


class _Tree(NamedTuple):
    """The parts of a revision that are read before its texts."""

    revision: RevisionId
    records: list[NewRecord]
    """The revision's own record, signature and inventory."""
    difference: Difference
    size: int
    """Bytes of the texts that the revision introduced."""


class BrzExport:
    """Reads the records of a plan once, and makes the segments."""

    def __init__(self, repository: BrzRepository, bulk: bool, excluded: frozenset[Key], *, partial: bool) -> None:
        self._partial = partial
        self._stores = repository.stores
        self._excluded = excluded
        self._writer = SegmentWriter(repository.kinds, bulk=bulk, texts=self._text, cache=_CACHE)
        self._pages: dict[Key, MapPage] = {}
        self._roots: dict[RevisionId, Inventory] = {}
        self._before: dict[tuple[int, Key], bytes] = {}
        """Texts of candidates that are not sent."""
        self._sent: set[tuple[int, Key]] = set()

    def segments(self, graph: Sequence[GraphNode]) -> Iterator[bytes]:
        """Yield whole segments in the order of `graph`."""
        for at in range(0, len(graph), CHUNK):
            chunk = graph[at : at + CHUNK]
            parents = {node.revision: node.parents for node in chunk}
            for batch in _batches(self._trees(chunk)):
                texts = self._read_texts(batch)
                for tree in batch:
                    named, records = f"revision {shown(tree.revision)}", self._records(tree, texts)
                    yield from segment(self._writer, Job(named, tree.revision, parents[tree.revision], records))
                self._before.clear()
            self._forget()

    # ---- reading

    def _read(self, kind: int, keys: Iterable[StoreKey]) -> dict[StoreKey, tuple[bytes, tuple[StoreKey, ...] | None]]:
        return {key: (text, parents) for key, text, parents in read_texts(self._stores[kind], keys)}

    def _text(self, kind: int, key: Key) -> bytes:
        if kind == CHK and key in self._pages:
            return self._pages[key].text
        name = tuple(key.split(b"\0")) if kind == TEXT else (key,)
        found = self._read(kind, [name])
        if name not in found:
            raise CannotSend(f"cannot push: {_named(kind, key)} is missing in this repository")
        return found[name][0]

    def _read_pages(self, keys: Iterable[Key]) -> None:
        wanted = [(key,) for key in keys]
        for (key,), (text, _) in self._read(CHK, wanted).items():
            self._pages[key] = MapPage(text)
        for (key,) in wanted:
            if key not in self._pages:
                raise _missing(CHK, key)

    def _trees(self, chunk: Sequence[GraphNode]) -> list[_Tree]:
        keys = [(node.revision,) for node in chunk]
        records = self._read(REVISION, keys)
        signatures = self._read(SIGNATURE, keys)
        before = {parent.id for node in chunk for parent in node.parents if not parent.absent}
        outside = [(parent,) for parent in before if parent not in self._roots and (parent,) not in records]
        inventories = self._read(INVENTORY, [*keys, *outside])
        for (name,), (text, _) in inventories.items():
            self._roots[name] = _roots(name, text)
        for (name,) in outside:
            if (name,) in inventories and name not in self._excluded:
                self._before[INVENTORY, name] = inventories[name,][0]
        for (name,), (text, _) in self._read(
            REVISION, [key for key in outside if key[0] not in self._excluded]
        ).items():
            self._before[REVISION, name] = text
        trees: list[tuple[RevisionId, list[NewRecord], Difference]] = []
        asking: list[Asking] = []
        for revision, parents in chunk:
            own: list[NewRecord] = []
            here = [parent.id for parent in parents if not parent.absent]
            for kind, found in ((REVISION, records), (SIGNATURE, signatures), (INVENTORY, inventories)):
                row = found.get((revision,))
                if row is not None:
                    meta = inventory_meta(row[1], [parent.id for parent in parents]) if kind == INVENTORY else b""
                    candidates = () if kind == SIGNATURE else self._candidates(kind, here[:1])
                    own.append(made(NewRecord, (kind, revision, meta, row[0], candidates, b"", None)))
                elif kind != SIGNATURE:
                    raise _missing(kind, revision)
            _check_revision(revision, parents, own)
            olds = [self._roots[parent] for parent in here if parent in self._roots]
            new = self._roots[revision]
            difference = Difference(self._pages)
            asking.append(difference.compare(new.id_to_entry, [old.id_to_entry for old in olds], entries=True))
            asking.append(difference.compare(new.by_name, [old.by_name for old in olds], entries=False))
            trees.append((revision, own, difference))
        self._answer(asking)
        return [_Tree(revision, own, found, _size(revision, found)) for revision, own, found in trees]

    def _answer(self, asking: list[Asking]) -> None:
        """Run all generators to their ends. The pages that they request are read together."""
        try:
            while asking:
                wanted: set[Key] = set()
                going: list[Asking] = []
                for generator in asking:
                    keys = next(generator, None)
                    if keys is not None:
                        wanted.update(keys)
                        going.append(generator)
                if wanted:
                    self._read_pages(wanted)
                asking = going
        except ValueError as error:
            raise CannotSend(f"cannot push: {error} (run `brz check`)") from error

    def _read_texts(self, batch: Sequence[_Tree]) -> dict[StoreKey, tuple[bytes, tuple[StoreKey, ...] | None]]:
        """Return the texts that the trees introduced. The texts of candidates that are not sent go to `_before`."""
        wanted: dict[StoreKey, None] = {}
        before: dict[StoreKey, None] = {}
        for tree in batch:
            for entry, candidates in tree.difference.texts:
                wanted[entry.file_id, entry.revision] = None
                for revision in candidates:
                    name = entry.file_id + b"\0" + revision
                    if (TEXT, name) not in self._sent and name not in self._excluded:
                        before[entry.file_id, revision] = None
        found = self._read(TEXT, [*wanted, *[key for key in before if key not in wanted]])
        for key in before:
            if key not in wanted and key in found:
                self._before[TEXT, b"\0".join(key)] = found[key][0]
        return found

    # ---- segments

    def _candidates(self, kind: int, keys: Iterable[Key]) -> list[Candidate]:
        before, excluded = self._before, self._excluded
        found = [made(Candidate, (key, before.get((kind, key)))) for key in keys if key not in excluded]
        if not self._partial or kind == CHK:
            return found
        return [candidate for candidate in found if candidate.text is not None or (kind, candidate.key) in self._sent]

    def _records(
        self, tree: _Tree, texts: Mapping[StoreKey, tuple[bytes, tuple[StoreKey, ...] | None]]
    ) -> list[NewRecord]:
        """Return the records that a revision introduced."""
        records = list(tree.records)
        done: set[Key] = set()
        for page, candidates in tree.difference.pages:
            if page not in done:
                done.add(page)
                text, before = self._pages[page].text, self._candidates(CHK, candidates)
                records.append(made(NewRecord, (CHK, page, b"", text, before, b"", None)))
        for entry, revisions in tree.difference.texts:
            key = entry.file_id + b"\0" + entry.revision
            if key in done:
                continue
            done.add(key)
            found = texts.get((entry.file_id, entry.revision))
            if found is None:
                raise _missing(TEXT, key)
            try:
                meta = text_meta(entry.file_id, found[1])
            except ValueError as error:
                raise _refusal(tree.revision, error) from error
            before = self._candidates(TEXT, [entry.file_id + b"\0" + revision for revision in revisions])
            path = entry.parent_id + b"/" + entry.name
            records.append(made(NewRecord, (TEXT, key, meta, found[0], before, path, None)))
        for record in records:
            self._sent.add((record.kind, record.key))
            _check_limits(record)
        return records

    def _forget(self) -> None:
        """Drop the oldest pages and roots beyond their limits."""
        size = sum([page.size for page in self._pages.values()])
        for key in list(self._pages):
            if size <= _PAGES:
                break
            size -= self._pages.pop(key).size
        for name in list(self._roots)[: max(0, len(self._roots) - _ROOTS)]:
            del self._roots[name]


def _batches(trees: Sequence[_Tree]) -> Iterator[list[_Tree]]:
    batch: list[_Tree] = []
    size = 0
    for tree in trees:
        if batch and size + tree.size > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(tree)
        size += tree.size
    if batch:
        yield batch


def _roots(revision: RevisionId, inventory: bytes) -> Inventory:
    try:
        return read_inventory(inventory)
    except ValueError as error:
        raise _refusal(revision, error) from error


def _check_revision(revision: RevisionId, parents: Sequence[Parent], records: Sequence[NewRecord]) -> None:
    """Check a revision's own record against its id, parents and inventory. With a wrong record, no client could pull
    the revision."""
    try:
        found = read_revision(records[0].text)
    except ValueError as error:
        raise _refusal(revision, error) from error
    if found.parents != tuple([parent.id for parent in parents]):
        why = "its parents are not those the index has: brz reconcile"
    elif found.id != revision:
        why = f"its record is that of {shown(found.id)}"
    elif found.inventory_sha1 != sha1(records[-1].text).hexdigest().encode():
        why = "its inventory is not the one its record names: brz check"
    else:
        return
    raise _refusal(revision, why)


def _size(revision: RevisionId, difference: Difference) -> int:
    """Return the total size in bytes of the texts that a revision introduced, as its tree says."""
    sizes = [0]
    for entry, _ in difference.texts:
        size = int(entry.size or 0)
        if size > limits.MAX_TAKEN:
            raise CannotSend(
                f"cannot push {shown(entry.name)} of revision {shown(revision)}: it has {size} bytes, expected no "
                f"more than {limits.MAX_TAKEN}"
            )
        sizes.append(size)
    return sum(sizes)


def _check_limits(record: NewRecord) -> None:
    if (
        len(record.text) <= limits.MAX_TAKEN
        and len(record.key) <= limits.MAX_ID
        and len(record.meta) <= limits.MAX_META
    ):
        return
    for what, size, most in (
        ("the key", len(record.key), limits.MAX_ID),
        ("the list of parents", len(record.meta), limits.MAX_META),
        ("the text", len(record.text), limits.MAX_TAKEN),
    ):
        if size > most:
            named = _named(record.kind, record.key)
            raise CannotSend(f"cannot push {named}: {what} has {size} bytes, expected no more than {most}")


def _refusal(revision: RevisionId, why: object) -> CannotSend:
    return CannotSend(f"cannot push revision {shown(revision)}: {why}")


def _missing(kind: int, key: Key) -> CannotSend:
    return CannotSend(f"cannot push: {_named(kind, key)} is missing in this repository (run `brz check`)")


def _named(kind: int, key: Key) -> str:
    if kind == TEXT:
        file_id, _, revision = key.partition(b"\0")
        return f"the text of {shown(file_id)} in {shown(revision)}"
    return ("revision", "the signature of", "the inventory of", "page")[kind] + " " + shown(key)
