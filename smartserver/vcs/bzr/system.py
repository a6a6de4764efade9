"""Describes the records of `bzr 2a` to the store: the parents of revisions, and the references of records.

A revision refers to its inventory, an inventory to the root pages of its maps, and a page of pages to its pages. A leaf
of `id_to_entry` refers to the text of each of its entries, even of a folder or link. All references of one record are
of one kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from smartserver.errors import shown
from smartserver.records.model import Key, RevisionId, Tip
from smartserver.records.system import NOTHING, MapType, References, System, register
from smartserver.vcs.bzr.kinds import CHK, CONFIG, INVENTORY, KINDS, REVISION, SIGNATURE, SIGNATURES, TAGS, TEXT
from smartserver.vcs.bzr.left_hand import count_lines
from smartserver.vcs.bzr.pages import is_node, leaf_texts, read_node
from smartserver.vcs.bzr.revision import read_inventory, read_revision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smartserver.records.browse import Contents
    from smartserver.records.content import ReadScope, RepositoryView, TipReader

BZR: Final = "bzr 2a"


class BzrSystem(System):
    """The system of format 2a. A parent may be a ghost."""

    name = BZR
    kinds = KINDS

    own_kind = REVISION
    of_revision = frozenset((REVISION, SIGNATURE, INVENTORY))
    maps = {  # A tag may name a ghost.
        TAGS: MapType("ids", of_refs=True),
        CONFIG: MapType("opaque", of_refs=True),
        SIGNATURES: MapType("opaque"),
    }

    def entry_revision(self, table: str, key: bytes, value: bytes) -> RevisionId:
        """Return the revision of a signature; empty for any other entry."""
        return key if table == SIGNATURES else b""

    def prove_tips(self, stored: TipReader, tips: Sequence[RevisionId]) -> Sequence[Tip]:
        """Return the tips, each with its number in decimal digits as its attributes."""
        return [Tip(tip, b"%d" % number) for tip, number in zip(tips, count_lines(stored, tips), strict=True)]

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        """Return the parents that a revision names, in order, including ghosts."""
        revision = read_revision(text)
        if revision.id != key:
            raise ValueError(f"its text is that of the revision {shown(revision.id)}")
        return revision.parents

    def may_refer(self, kind: int, meta: bytes) -> bool:
        """Tell whether a record is a revision, an inventory or a page."""
        return kind in (REVISION, INVENTORY, CHK)

    def id_text(self, revision: RevisionId) -> str:
        """Return a revision id as text. In Breezy it is text already."""
        return revision.decode("utf-8", "backslashreplace")

    def is_file(self, kind: int, meta: bytes) -> bool:
        """Tell whether a record is a text."""
        return kind == TEXT

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        """Return the references of a record. Its meta is checked, too, because the key does not cover the meta."""
        if kind in (INVENTORY, TEXT):
            if meta and not all(meta.split(b"\0")):
                raise ValueError("its meta is not revision ids joined with NUL")
        elif meta:
            raise ValueError("its meta is not empty")
        if kind == CHK:
            if is_node(text):
                return ((CHK, None, list(read_node(text).children.values())),)
            return ((TEXT, None, list(leaf_texts(text))),)
        if kind == INVENTORY:
            inventory = read_inventory(text)
            if inventory.revision != key:
                raise ValueError(f"its text is the inventory of {shown(inventory.revision)}")
            return ((CHK, None, (inventory.id_to_entry, inventory.by_name)),)
        if kind == REVISION:
            return ((INVENTORY, None, (key,)),)
        return NOTHING

    def contents(self, stored: RepositoryView, question: ReadScope) -> Contents:
        """Return the `Contents` of a Breezy repository."""
        from smartserver.vcs.bzr.content import BzrContents  # Imported late: a client answers no reads.

        return BzrContents(stored, question.ref)


register(BzrSystem())
