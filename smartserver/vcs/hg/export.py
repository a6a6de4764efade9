"""`Export`: one reading of what a push sends, as segments.

The rule of this file: a candidate for a base is what a parent of the changeset has: the changeset itself, its manifest,
its version of the same file; or what a file was copied from. So an ancestor introduced it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from smartserver.errors import LimitExceeded, shown
from smartserver.records import limits
from smartserver.records.bases import Candidate, NewRecord, SegmentWriter
from smartserver.records.cache import Cache
from smartserver.records.model import GraphNode, Key, Parent
from smartserver.records.varint import decode
from smartserver.vcs.base import CannotSend
from smartserver.vcs.hg.compat import Abort, LookupError, RevlogError, Store  # noqa: A004
from smartserver.vcs.hg.format import changeset_manifest, copied_from, differing
from smartserver.vcs.hg.kinds import CHANGESET, FILE, MANIFEST, NULL, Node, file_key, meta_of, path_of
from smartserver.vcs.hg.repository import HgRepository

_CACHE: Final = 32 << 20
"""Bytes of text kept as bases."""

_MANIFESTS: Final = 16 << 20
"""Bytes of manifests kept, of which the next ones differ little."""

_STORES: Final = 500
"""Files whose stores are kept open."""

_ELSEWHERE: Final = 0xE000
"""Revlog flags of a text that is not in the store: censored, ellipsis, stored externally. Others say how it is kept,
such as that of 7.2 for a merged file with copy metadata."""

Candidates = dict[Key, None]


class Export:
    """One reading of what a plan sends."""

    def __init__(self, repository: HgRepository, bulk: bool, excluded: frozenset[Key]) -> None:
        self._repository = repository
        self._changesets: Store = repository.changesets
        self._manifests = repository.manifests()
        self._files = Cache[bytes, Store](_STORES, lambda store: 1)
        self._excluded = excluded
        self._texts = Cache[Node, bytes](_MANIFESTS, len)
        self._writer = SegmentWriter(repository.kinds, bulk=bulk, texts=self._text, cache=_CACHE, alike=True)

    def segments(self, graph: Sequence[GraphNode]) -> Iterator[bytes]:
        """Whole segments in that order.

        Raises:
            CannotSend: something is missing or broken here, or larger than a server takes.
        """
        self._writer.begin(graph)
        for node, parents in graph:
            try:
                yield self._segment(node, parents)
            except (Abort, LookupError, RevlogError, ValueError) as wrong:
                raise _refusal(node, f"{wrong} (hg verify says more)") from wrong

    def _segment(self, node: Node, parents: Sequence[Parent]) -> bytes:
        text = self._changesets.rawdata(node)
        before = [parent.id for parent in parents]
        records = [self._record(CHANGESET, node, node, self._changesets, text, dict.fromkeys(before))]
        manifest = changeset_manifest(text)
        of_parents = dict.fromkeys([changeset_manifest(self._changesets.rawdata(parent)) for parent in before])
        of_parents.pop(NULL, None)
        if manifest != NULL and manifest not in of_parents:
            records += self._tree(manifest, list(of_parents))
        for record in records:
            _check_limits(node, record)
        try:
            segment = self._writer.segment(node, parents, records)
        except LimitExceeded as wrong:
            raise _refusal(node, wrong) from wrong
        size, _ = decode(segment, 0)
        if size > limits.MAX_TAKEN:
            why = f"its new content has {size} bytes (compressed), expected no more than {limits.MAX_TAKEN}"
            raise _refusal(node, why)
        return segment

    def _tree(self, manifest: Node, of_parents: Sequence[Node]) -> Iterator[NewRecord]:
        """A manifest and the versions of files that no parent has."""
        text = self._manifest(manifest)
        yield self._record(MANIFEST, manifest, manifest, self._manifests, text, dict.fromkeys(of_parents))
        new: dict[Key, Candidates] = {}
        for number, parent in enumerate(of_parents or [NULL]):
            found, others = differing(text, b"" if parent == NULL else self._manifest(parent))
            here: dict[Key, Candidates] = {}
            for path, version in found.items():
                key = file_key(path, version)
                # Where the line has another flag alone, the version is the parent's.
                if version not in (NULL, others.get(path)) and (not number or key in new):
                    here[key] = new.get(key, {})
                    if path in others:
                        here[key][file_key(path, others[path])] = None
            new = here
        for key, candidates in new.items():
            yield self._file(key, candidates)

    def _file(self, key: Key, candidates: Candidates) -> NewRecord:
        path, version = path_of(key), key[-len(NULL) :]
        store = self._store(path)
        text = store.rawdata(version)
        source = None if candidates or store.parents(version)[0] != NULL else copied_from(text)
        if source is not None:
            candidates = {file_key(*source): None}
        return self._record(FILE, key, version, store, text, candidates, path)

    def _record(
        self, kind: int, key: Key, node: Node, store: Store, text: bytes, candidates: Candidates, path: bytes = b""
    ) -> NewRecord:
        if store.flags(store.rev(node)) & _ELSEWHERE:
            what = f"a version of {shown(path)}" if path else "a changeset or manifest"
            raise CannotSend(f"cannot push: {what} is stored elsewhere, in part or censored (it has revlog flags)")
        usable = [Candidate(each) for each in candidates if each not in self._excluded]
        return NewRecord(kind, key, meta_of(*store.parents(node)), text, usable, path)

    # ---- texts

    def _manifest(self, node: Node) -> bytes:
        text = self._texts.get(node)
        if text is None:
            text = self._manifests.rawdata(node)
            self._texts.put(node, text)
        return text

    def _store(self, path: bytes) -> Store:
        store = self._files.get(path)
        if store is None:
            store = self._repository.file(path)
            self._files.put(path, store)
        return store

    def _text(self, kind: int, key: Key) -> bytes:
        """The text of a candidate."""
        if kind == CHANGESET:
            return self._changesets.rawdata(key)
        if kind == MANIFEST:
            return self._manifest(key)
        return self._store(path_of(key)).rawdata(key[-len(NULL) :])


def _check_limits(node: Node, record: NewRecord) -> None:
    for what, size, most in (
        ("the path of a file", len(record.key), limits.MAX_ID),
        ("a text", len(record.text), limits.MAX_TAKEN),
    ):
        if size > most:
            raise _refusal(node, f"{what} has {size} bytes, expected no more than {most}")


def _refusal(node: Node, why: object) -> CannotSend:
    return CannotSend(f"cannot push changeset {shown(node)}: {why}")
