"""Makes the segments of a push: `plan` finds the changesets to send, and `HgExport` reads them.

The rule of this file: a candidate for a base is a parent of the changeset, the parent's manifest, or the parent's
version of the same file. Or it is the version that a file was copied from. So an ancestor introduced it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Self

from smartserver.errors import shown
from smartserver.records import limits
from smartserver.records.bases import Candidate, HeldRecord, NewRecord, SegmentWriter
from smartserver.records.cache import Cache
from smartserver.records.delta import TextParts
from smartserver.records.hunks import Hunk, apply_hunks
from smartserver.records.model import GraphNode, Key, Parent, RevisionId
from smartserver.vcs.base import CannotSend
from smartserver.vcs.collector import rare_collections
from smartserver.vcs.hg.compat import Abort, LookupError, Revlog, RevlogError, unchecked  # noqa: A004
from smartserver.vcs.hg.delta import hunks, unpacked
from smartserver.vcs.hg.format import changeset_manifest, copied_from, differing, differing_in
from smartserver.vcs.hg.kinds import CHANGESET, FILE, MANIFEST, NULL, Node, file_key, meta_of, path_of
from smartserver.vcs.hg.repository import HgRepository
from smartserver.vcs.sending import Job, segment

FEW = 64
"""The most changesets for which the writer uses the direct predecessor as base."""

_CACHE: Final = 32 << 20
"""The most bytes of texts that are cached as possible bases."""

_MANIFESTS: Final = 16 << 20
"""The most bytes of cached manifests. Deltas of the next manifests are computed against these."""

_CHANGESETS: Final = 10_000
"""The number of changesets whose manifests are remembered for their children."""

_STORES: Final = 500
"""The most files whose revlogs are kept open."""

_ELSEWHERE: Final = 0xE000
"""Revlog flags of a text that is not stored in the revlog: censored, ellipsis, stored externally. All other flags
describe how a text is stored, such as the flag of 7.2 for a merged file with copy metadata."""

_PART: Final = 1 << 20
"""The size of each part of a large text, in bytes; the last part may be smaller."""

Candidates = dict[Key, None]


class HgPlan:
    """The content of a push; see `plan`. A plan is used for one repository only."""

    def __init__(self, repository: HgRepository, nodes: Sequence[Node], excluded: frozenset[Key] = frozenset()) -> None:
        """`nodes`: the changesets, parents first."""
        self._repository = repository
        self._nodes = nodes
        self._excluded = excluded
        self.graph: Sequence[GraphNode] = [
            GraphNode(node, tuple([Parent(parent) for parent in repository.parents(node)])) for node in nodes
        ]

    @property
    def bulk(self) -> bool:
        """True if the push has more than `FEW` changesets."""
        return len(self.graph) > FEW

    def without_bases(self, keys: Collection[Key]) -> Self:
        """Return the same plan with none of `keys` as a delta base."""
        return type(self)(self._repository, self._nodes, self._excluded | frozenset(keys))

    def segments(self) -> Iterator[bytes]:
        """Yield the segments in the order of `graph`. A segment with a large text is yielded in parts. The method may
        be called again."""
        if self.graph:
            with rare_collections():
                yield from HgExport(self._repository, self.bulk, self._excluded).segments(self.graph)


def plan(repository: HgRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> HgPlan:
    """Return the plan of a push after which a server that has `haves` also has `tips`."""
    repository.check_format()
    tips = list(tips)
    for tip in tips:
        if not repository.has(tip):
            raise CannotSend(f"cannot push: changeset {shown(tip)} is missing in this repository")
    return HgPlan(repository, repository.missing(tips, haves))


class HgExport:
    """Reads the records of a plan once, and makes the segments."""

    def __init__(self, repository: HgRepository, bulk: bool, excluded: frozenset[Key]) -> None:
        self._repository = repository
        self._changesets: Revlog = repository.changesets
        self._manifests = repository.manifests()
        self._files = Cache[bytes, Revlog](_STORES, lambda store: 1)
        self._excluded = excluded
        self._bulk = bulk
        self._texts = Cache[Node, bytes](_MANIFESTS, len)
        self._read: tuple[tuple[Key, Key], list[Hunk]] = (b"", b""), []
        """The hunks that were read last, after the keys of their two records."""
        self._manifest_of = Cache[Node, Node](_CHANGESETS, lambda manifest: 1)
        self._writer = SegmentWriter(repository.kinds, bulk=bulk, texts=self._text, cache=_CACHE, hunks=self._hunks)

    def segments(self, graph: Sequence[GraphNode]) -> Iterator[bytes]:
        """Yield the segments in the order of `graph`. A segment with a large text is yielded in parts."""
        # The server checks the texts, and hashing them here takes a tenth of a push.
        with unchecked(self._changesets, self._manifests):
            for node, parents in graph:
                try:
                    yield from self._segment(node, parents)
                except (Abort, LookupError, RevlogError, ValueError) as error:
                    raise _refusal(node, f"{error} (run `hg verify`)") from error

    def _segment(self, node: Node, parents: Sequence[Parent]) -> list[bytes]:
        before = [parent.id for parent in parents]
        candidates = {} if self._bulk else dict.fromkeys(before)  # In a bulk stream, it is shorter without a base.
        records = [self._record(CHANGESET, node, self._changesets, candidates)]
        manifest = self._manifest_in(node)
        of_parents = dict.fromkeys([self._manifest_in(parent) for parent in before])
        of_parents.pop(NULL, None)
        if manifest != NULL and manifest not in of_parents:
            records += self._tree(manifest, list(of_parents))
        for record in records:
            _check_limits(node, record)
        return segment(self._writer, Job(f"changeset {shown(node)}", node, parents, records))

    def _tree(self, manifest: Node, of_parents: Sequence[Node]) -> Iterator[NewRecord | HeldRecord]:
        """Yield a manifest, and the versions of files that no parent has."""
        yield self._record(MANIFEST, manifest, self._manifests, dict.fromkeys(of_parents))
        new: dict[Key, Candidates] = {}
        for number, parent in enumerate(of_parents or [NULL]):
            found, others = self._differing(manifest, parent)
            here: dict[Key, Candidates] = {}
            for path, version in found.items():
                key = file_key(path, version)
                # If only the flag of the line differs, the version is the parent's.
                if version not in (NULL, others.get(path)) and (not number or key in new):
                    here[key] = new.get(key, {})
                    if path in others:
                        here[key][file_key(path, others[path])] = None
            new = here
        for key, candidates in new.items():
            yield self._file(key, candidates)

    def _differing(self, manifest: Node, parent: Node) -> tuple[dict[bytes, Node], dict[bytes, Node]]:
        """Return the entries that only `manifest` has, and those that only `parent` has."""
        old = b"" if parent == NULL else self._manifest(parent)
        found = differing_in(self._hunks(MANIFEST, manifest, parent), old) if old else None
        return differing(self._manifest(manifest), old) if found is None else found

    def _file(self, key: Key, candidates: Candidates) -> NewRecord | HeldRecord:
        path, version = path_of(key), key[-len(NULL) :]
        store = self._store(path)
        source = None
        if not candidates and store.parents(version)[0] == NULL:
            source = copied_from(store.rawdata(version))
        if source is not None:
            candidates = {file_key(*source): None}
        return self._record(FILE, key, store, candidates, path)

    def _record(
        self, kind: int, key: Key, store: Revlog, candidates: Candidates, path: bytes = b""
    ) -> NewRecord | HeldRecord:
        node = key[-len(NULL) :]
        rev = store.rev(node)
        if store.flags(rev) & _ELSEWHERE:
            what = f"a version of {shown(path)}" if path else "a changeset or manifest"
            raise CannotSend(f"cannot push: {what} is stored elsewhere, in part or censored (it has revlog flags)")
        usable = [Candidate(candidate) for candidate in candidates if candidate not in self._excluded]
        meta = meta_of(*store.parents(node))
        if self._bulk and usable:
            return HeldRecord(kind, key, meta, usable, path, store.rawsize(rev))
        text = self._text(kind, key)
        if len(text) <= limits.MAX_BASED:
            return NewRecord(kind, key, meta, text, usable, path)
        store.clearcaches()  # Mercurial keeps the text that was read last.
        parts = TextParts(text[at : at + _PART] for at in range(0, len(text), _PART))
        return NewRecord(kind, key, meta, b"", (), path, parts)

    # ---- texts

    def _hunks(self, kind: int, key: Key, base: Key) -> list[Hunk]:
        """Return the hunks from the text of `base` to that of `key`: those of the stored delta if there is one."""
        if self._read[0] != (key, base):
            self._read = (key, base), self._find_hunks(kind, key, base)
        return self._read[1]

    def _find_hunks(self, kind: int, key: Key, base: Key) -> list[Hunk]:
        path = key[: -len(NULL)]
        if path == base[: -len(NULL)]:
            store = self._store(path_of(key)) if path else self._manifests
            rev, base_rev = store.rev(key[-len(NULL) :]), store.rev(base[-len(NULL) :])
            if store.deltaparent(rev) == base_rev:
                return unpacked(store.revdiff(base_rev, rev))
        return hunks(self._text(kind, key), self._text(kind, base))

    def _manifest_in(self, changeset: Node) -> Node:
        manifest = self._manifest_of.get(changeset)
        if manifest is None:
            manifest = changeset_manifest(self._changesets.rawdata(changeset))
            self._manifest_of.put(changeset, manifest)
        return manifest

    def _manifest(self, node: Node) -> bytes:
        text = self._texts.get(node)
        if text is None:
            store = self._manifests
            rev = store.rev(node)
            parent = store.deltaparent(rev)
            base = None if parent < 0 else self._texts.get(store.node(parent))
            if base is None:
                text = store.rawdata(node)
            else:  # With the histories of two branches in turn, Mercurial would begin at a whole text each time.
                text = apply_hunks(unpacked(store.revdiff(parent, rev)), store.rawsize(rev), base)
            self._texts.put(node, text)
        return text

    def _store(self, path: bytes) -> Revlog:
        store = self._files.get(path)
        if store is None:
            store = self._repository.file(path)
            self._files.put(path, store)
        return store

    def _text(self, kind: int, key: Key) -> bytes:
        if kind == CHANGESET:
            return self._changesets.rawdata(key)
        if kind == MANIFEST:
            return self._manifest(key)
        return self._store(path_of(key)).rawdata(key[-len(NULL) :])


def _check_limits(node: Node, record: NewRecord | HeldRecord) -> None:
    if isinstance(record, HeldRecord):
        length = record.length
    else:
        length = len(record.text) if record.parts is None else record.parts.length
    for what, size, most in (
        ("the path of a file", len(record.key), limits.MAX_ID),
        ("a text", length, limits.MAX_TAKEN),
    ):
        if size > most:
            raise _refusal(node, f"{what} has {size} bytes, expected no more than {most}")


def _refusal(node: Node, why: object) -> CannotSend:
    return CannotSend(f"cannot push changeset {shown(node)}: {why}")
