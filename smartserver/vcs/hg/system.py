"""Describes Mercurial's records to the store: the parents of changesets, and the references of records.

A changeset refers to its manifest, and a manifest to the version of each of its files. A manifest and a file's version
refer to their parents in Mercurial's store, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from smartserver.records.check import KeyCheck
from smartserver.records.model import Key, Record, RevisionId, Tip
from smartserver.records.system import (
    NOTHING,
    Beyond,
    Changes,
    EntryRight,
    EntryValues,
    MapType,
    References,
    System,
    Tips,
    register,
)
from smartserver.vcs.hg.format import (
    CENSORED,
    all_entries,
    changeset_manifest,
    closes_branch,
    copied_from,
    differing,
    keys,
)
from smartserver.vcs.hg.kinds import (
    BOOKMARKS,
    CHANGESET,
    EVOLUTION,
    FILE,
    FILE_CHECK,
    KINDS,
    MANIFEST,
    NO,
    NODE_CHECK,
    NULL,
    OBSOLETE,
    PUBLIC,
    PUBLISHING,
    YES,
    Node,
    begin_node,
    checked_file_key,
    file_key,
    parents_of,
    path_of,
)
from smartserver.vcs.hg.markers import WHOLE, key_of
from smartserver.vcs.hg.selector import GRAPH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from smartserver.records.browse import Contents
    from smartserver.records.content import MapReader, ReadPlan, ReadScope, RepositoryView, TipReader

HG: Final = "hg sha1"


class HgSystem(System):
    """Mercurial with nodes of SHA-1 and one manifest for the whole tree."""

    name = HG
    kinds = KINDS
    keys = {
        NODE_CHECK: KeyCheck(lambda _, meta, __: begin_node(meta)),
        FILE_CHECK: KeyCheck(lambda _, meta, __: begin_node(meta), checked_file_key),
    }
    own_kind = CHANGESET
    ghosts = False
    maps = dict.fromkeys((BOOKMARKS, OBSOLETE, PUBLIC), MapType("opaque"))
    untold = {OBSOLETE: WHOLE}
    graph = GRAPH
    settings_matter = True
    in_hunks = True

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        """Return the parents of a changeset."""
        return _present(meta)

    def may_refer(self, kind: int, meta: bytes) -> bool:
        """Return True: records of each kind have references."""
        return True

    def is_list(self, kind: int, meta: bytes) -> bool:
        """Tell whether a record may have many references. A file's version refers to at most two parents."""
        return kind != FILE

    def is_file(self, kind: int, meta: bytes) -> bool:
        """Tell whether a record is a file's version."""
        return kind == FILE

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        """Return the references of a record."""
        if kind == CHANGESET:
            manifest = changeset_manifest(text)
            return NOTHING if manifest == NULL else ((MANIFEST, None, (manifest,)),)
        parents = _present(meta)
        if kind == MANIFEST:
            return ((FILE, None, keys(all_entries(text))), (MANIFEST, None, parents))
        path = path_of(key)
        if text.startswith(CENSORED):
            raise ValueError("it is a version that was taken away (censored)")
        if parents_of(meta)[0] == NULL:  # With a first parent, Mercurial does not read the source of a copy.
            copied_from(text)  # It may name a version that is on another branch, or nowhere.
        return ((FILE, None, [file_key(path, parent) for parent in parents]),) if parents else NOTHING

    def changes(self, record: Record, base: Record) -> Changes | None:
        """Return the references that only `record` has and those that only `base` has, if they are manifests; else
        None. The parents of `record` are always returned."""
        if record.kind != MANIFEST:
            return None
        now, before = differing(record.text, base.text)
        return ((FILE, None, keys(now)), (MANIFEST, None, _present(record.meta))), ((FILE, None, keys(before)),)

    def setting_problem(self, name: str, value: bytes) -> str:
        """Return the reason why a setting cannot have this value, or an empty string. `publishing` and `evolution` must
        be yes or no."""
        return "" if name not in (PUBLISHING, EVOLUTION) or value in (YES, NO) else "expected yes or no"

    def read(self, stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
        """Return changesets by their names, with their history."""
        from smartserver.vcs.hg.reading import read  # Imported late: a client answers no reads.

        return read(stored, selector, question)

    def contents(self, stored: RepositoryView, question: ReadScope) -> Contents:
        """Return the `Contents` of a Mercurial repository."""
        from smartserver.vcs.hg.content import HgContents  # Imported late: a client answers no reads.

        return HgContents(stored, question.ref)

    def settings_entries(
        self, old: Mapping[str, bytes], new: Mapping[str, bytes], tips: Iterable[RevisionId]
    ) -> Mapping[str, Mapping[bytes, bytes]]:
        """Return entries for the changesets that stay public after a repository stops publishing."""
        if not is_publishing(old) or is_publishing(new):
            return {}
        return {PUBLIC: {tip.hex().encode(): b"1" for tip in tips}}

    def part_entries(
        self,
        settings: Mapping[str, bytes],
        maps: Mapping[str, Mapping[bytes, bytes]],
        tips: Sequence[RevisionId],
        beyond: Beyond,
    ) -> Mapping[str, Mapping[bytes, bytes]]:
        """Return the public entries of the part of a repository that `tips` reach. An entry outside the part makes its
        ancestors in the part public, too."""
        public = _nodes(maps.get(PUBLIC, {}))
        if not public or is_publishing(settings):
            return {}
        drafts = {draft.revision: draft.parents for draft in beyond(tips, public)}
        below = {parent.id for parents in drafts.values() for parent in parents}
        heads = ({*tips, *below} - drafts.keys()) | drafts.keys() & set(public)
        return {PUBLIC: {head.hex().encode(): b"1" for head in sorted(heads)}}

    def ref_problem(self, name: bytes) -> str:
        """Return an empty string: old repositories have names that Mercurial refuses for new branches."""
        del name
        return ""

    def superseded(self, stored: MapReader, tips: Sequence[RevisionId]) -> tuple[Tips, Tips]:
        """Return the drafts with an obsolescence marker, in two groups: drafts without a bookmark, and drafts with one.
        Mercurial shows a draft with a bookmark to clients."""
        if stored.settings.get(EVOLUTION) != YES or is_publishing(stored.settings):
            return (), ()
        replaced = stored.with_entries(OBSOLETE, [tip.hex().encode() for tip in tips])
        if not replaced:
            return (), ()
        public, bookmarks = stored.map(PUBLIC), stored.map(BOOKMARKS)
        stored.charge(len(public) + len(bookmarks))
        drafts = set(stored.beyond(_nodes(replaced), _nodes(public)))
        shown = drafts.intersection(bookmarks.values())
        return drafts - shown, shown

    def entry_problem(self, table: str, key: bytes, value: bytes) -> str:
        """Return the reason why a map must not have this entry, such as an invalid bookmark name or a damaged marker;
        empty if the entry is valid."""
        if table == OBSOLETE:
            try:
                return "" if key == key_of(value) else "it is not the key of its marker"
            except ValueError as error:
                return str(error)
        if table == PUBLIC:
            if not _NODE.fullmatch(key):
                return "it is not the id of a changeset in hex"
            return "" if value == b"1" else "its value is not 1"
        if table != BOOKMARKS:
            return ""
        try:
            key.decode()
        except UnicodeDecodeError:
            return "a bookmark's name is not UTF-8"
        if len(value) != len(NULL):
            return f"a bookmark is on {len(value)} bytes, expected the {len(NULL)} of a changeset"
        if _NO_BOOKMARK.search(key):
            return "a bookmark's name has a tab or the end of a line in it, or a space at its end"
        return ""

    def entry_revision(self, table: str, key: bytes, value: bytes) -> RevisionId:
        """Return the changeset of a bookmark or of a public entry, else an empty id. A null bookmark has none, and a
        marker may be about a changeset that the repository never had."""
        if table == BOOKMARKS:
            return b"" if value == NULL else value
        return bytes.fromhex(key.decode()) if table == PUBLIC else b""

    def entry_rights(self, stored: MapReader, table: str, changes: Sequence[EntryValues]) -> Sequence[EntryRight]:
        """Return the right that each change needs. For a bookmark, the rights are those for a branch with one head.
        Removing a public or obsolete entry needs ADMIN, because this could hide the heads of other users."""
        if table != BOOKMARKS:
            return [EntryRight.WRITE if new is not None else EntryRight.ADMIN for _, new in changes]
        rights = [_bookmark_right(stored, *change) for change in changes]
        aside = {
            old for (old, new), right in zip(changes, rights, strict=True) if old and new and right is EntryRight.FORCE
        }
        # A bookmark that leaves a replaced draft moves forward, too.
        replaced = set().union(*self.superseded(stored, sorted(aside)))
        return [
            EntryRight.WRITE if new is not None and old in replaced else right
            for (old, new), right in zip(changes, rights, strict=True)
        ]

    def tip_fact(self, meta: bytes, text: bytes) -> bytes:
        """Return a non-empty value if a changeset closes its branch."""
        return b"closed" if closes_branch(text) else b""

    def prove_tips(self, stored: TipReader, tips: Sequence[RevisionId]) -> Sequence[Tip]:
        """Return the tips, each with a flag that tells whether it closes its branch."""
        return [Tip(tip, closed=bool(fact)) for tip, fact in zip(tips, stored.facts(tips), strict=True)]


_NODE: Final = re.compile(rb"[0-9a-f]{40}")

_NO_BOOKMARK: Final = re.compile(rb"[\t\n\r]|\s\Z")
"""Matches bytes that separate bookmarks in Mercurial's file and answers, or that Mercurial strips. A bookmark with such
bytes would make every pull fail."""


def is_publishing(settings: Mapping[str, bytes]) -> bool:
    """Tell whether all pushed changesets become public."""
    return settings.get(PUBLISHING) != NO


def _bookmark_right(stored: MapReader, old: Node | None, new: Node | None) -> EntryRight:
    if old is None:
        return EntryRight.CREATE
    # A missing `old` was accepted by an earlier release, or is null. Nothing is lost with it.
    leads_forward = new not in (None, NULL) and (not stored.has_revision(old) or stored.is_ancestor(old, new))
    return EntryRight.WRITE if leads_forward else EntryRight.FORCE


def _nodes(names: Iterable[bytes]) -> list[Node]:
    return [bytes.fromhex(name.decode()) for name in names]


def _present(meta: bytes) -> tuple[bytes, ...]:
    return tuple([parent for parent in parents_of(meta) if parent != NULL])


register(HgSystem())
