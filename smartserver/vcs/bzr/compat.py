"""Imports the names of Breezy that differ between its releases, and declares the types of a repository's parts. Tests
run with 3.3; for 3.4 its source was read.

The rule of this file: nothing else under `vcs` imports Breezy, and the plugin imports such names from nowhere else.
Nothing imports this module before there is a Breezy repository to read.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from breezy import debug
from breezy.branch import _fix_overwrite_type as overwritten
from breezy.bzr.bzrdir import BzrDir, BzrDirMetaFormat1
from breezy.bzr.testament import StrictTestament3, Testament
from breezy.controldir import format_registry
from breezy.errors import BzrError


def _moved(name: str) -> Any:
    """Import a module that was moved to another package in Breezy 3.4."""
    try:
        return importlib.import_module(f"breezy.bzr.{name}")
    except ImportError:
        return importlib.import_module(f"bzrformats.{name}")


groupcompress = _moved("groupcompress")
versionedfile = _moved("versionedfile")

try:
    from vcsgraph.errors import GhostRevisionsHaveNoRevno, RevisionNotPresent
    from vcsgraph.tsort import topo_sort
except ImportError:  # Before 3.3.12
    from breezy.errors import GhostRevisionsHaveNoRevno, RevisionNotPresent
    from breezy.tsort import topo_sort

__all__ = [
    "BzrDir",
    "BzrDirMetaFormat1",
    "BzrError",
    "GhostRevisionsHaveNoRevno",
    "RevisionNotPresent",
    "StrictTestament3",
    "Testament",
    "overwritten",
    "topo_sort",
]

NETWORK_NAME = b"Bazaar repository format 2a (needs bzr 1.16 or later)\n"
"""The name of the format that Breezy itself uses on the wire."""

NULL = b"null:"
"""The revision id that Breezy's graphs use as the parent of a revision without parents."""

StoreKey = tuple[bytes, ...]
"""A key of Breezy's stores: a revision id, the key of a page, or a file id and a revision id."""

Keys = Iterable[StoreKey]


class ContentFactory(Protocol):
    """One record of a stream. It is valid until the next record is read."""

    key: StoreKey
    parents: tuple[StoreKey, ...] | None
    sha1: bytes | None
    storage_kind: str
    """`absent` if the store has no record of the key."""

    def get_bytes_as(self, storage_kind: str) -> bytes:
        """Return the text; `storage_kind` is `fulltext`."""


class Store(Protocol):
    """One of a repository's five stores of texts, such as that of inventories."""

    def get_record_stream(self, keys: Keys, ordering: str, include_delta_closure: bool) -> Iterator[ContentFactory]:
        """Yield the records of `keys`, in an order that suits the store (`unordered`)."""

    def get_parent_map(self, keys: Keys) -> Mapping[StoreKey, tuple[StoreKey, ...] | None]:
        """Return the parents of each of `keys` that the store has."""


class Repository(Protocol):
    """The parts of a `breezy.repository.Repository` that are used here."""

    revisions: Store
    signatures: Store
    inventories: Store
    chk_bytes: Store
    texts: Store
    _format: Any
    _fallback_repositories: Sequence[Repository]

    def lock_read(self) -> AbstractContextManager[object]:
        """Lock the repository for reading."""

    def lock_write(self) -> AbstractContextManager[object]:
        """Lock the repository for writing."""

    def get_graph(self) -> Any:
        """Return the graph of revisions."""

    def get_parent_map(self, revision_ids: Iterable[bytes]) -> Mapping[bytes, tuple[bytes, ...]]:
        """Return the parents of each of these revisions that the repository has."""

    def all_revision_ids(self) -> list[bytes]:
        """Return the ids of all revisions of the repository."""

    def get_known_graph_ancestry(self, revision_ids: Iterable[bytes]) -> Any:
        """Return the graph of these revisions and all their ancestors."""

    def start_write_group(self) -> None:
        """Begin a group of writes."""

    def commit_write_group(self) -> object:
        """Make the group of writes visible."""

    def abort_write_group(self, suppress_errors: bool) -> None:
        """Drop the group of writes."""

    def add_signature_text(self, revision_id: bytes, signature: bytes) -> None:
        """Add the signature of a revision."""

    def _get_sink(self) -> Any: ...

    def _get_source(self, to_format: Any) -> Any: ...


_Blocks: Any = getattr(groupcompress, "GroupCompressVersionedFiles", None)
"""The class of stores whose blocks are read directly."""

encode_length: Callable[[int], bytes] = groupcompress.encode_base128_int
"""Encodes a length in the form that precedes a text."""

differences: Any = getattr(groupcompress, "DeltaIndex", None)
"""The class that finds common parts of two texts; None without Breezy's compiled parts."""

VersionedFiles: Any = versionedfile.VersionedFiles

AbsentContentFactory: Any = versionedfile.AbsentContentFactory
ChunkedContentFactory: Any = versionedfile.ChunkedContentFactory
FulltextContentFactory: Any = versionedfile.FulltextContentFactory
"""The classes of records in a stream: of a missing key, of a text in pieces, and of a whole text."""

ExistingContent: type[BaseException] = versionedfile.ExistingContent
"""The error that a store raises for a text that must not be stored."""


def format_2a() -> Any:
    """Return Breezy's control directory format 2a, the only one whose revisions this client can send."""
    return format_registry.make_controldir("2a")


def load_formats() -> None:
    """Register Breezy's own formats and the classes that copy between them."""
    importlib.import_module("breezy.bzr.vf_repository")


def dirstate_tree() -> Any:
    """Return the class of working trees, or None if it is not loaded."""
    found = sys.modules.get("breezy.bzr.workingtree_4")
    return None if found is None else found.DirStateWorkingTree


def git_directory() -> Any:
    """Return the class of git's control directories, or None if it is not loaded."""
    found = sys.modules.get("breezy.git.dir")
    return None if found is None else found.GitDir


def debug_flags() -> set[str]:
    """Return the flags that the user set with `-D` or in the configuration."""
    given = getattr(debug, "get_debug_flags", None)  # Since 3.4
    return set(debug.debug_flags if given is None else given())


def put_block(
    store: Store, block: bytes, places: Iterable[tuple[StoreKey, tuple[StoreKey, ...] | None, int, int]]
) -> None:
    """Put a finished block into a store. `places`: the key, parents, start and end of each text. A text that the store
    already has is not added again."""
    inside: Any = store
    _, at, size = inside._access.add_raw_record(None, len(block), [block])
    inside._index.add_records(
        [(key, b"%d %d %d %d" % (at, size, begin, end), (parents,)) for key, parents, begin, end in places]
    )


Read = tuple[StoreKey, bytes, tuple[StoreKey, ...] | None]
"""A key, its text and its parents."""


def read_texts(store: Store, keys: Keys) -> Iterator[Read]:
    """Yield the texts of those `keys` that the store has, in an order that suits the store."""
    left = set(keys)
    if _is_plain(store):
        # After any error (a pack was joined to others meanwhile, or Breezy stores texts differently), the store's own
        # stream reads the rest, or reports what is wrong.
        with contextlib.suppress(Exception):
            for read in _from_blocks(store, list(left)):
                left.discard(read[0])
                yield read
            return  # The other keys are not here.
    for found in store.get_record_stream(left, "unordered", True):
        if found.storage_kind != "absent":
            yield tuple(found.key), found.get_bytes_as("fulltext"), found.parents


def _is_plain(store: Any) -> bool:
    """Tell whether a store has all its texts in its own blocks, in a form that is known here."""
    # Breezy 3.4's stores, which are in another package, and derived classes have forms that are not known here.
    plain = groupcompress.__name__ == "breezy.bzr.groupcompress" and type(store) is _Blocks
    plain = plain and "get_record_stream" not in vars(store)  # The method was not replaced.
    # A stacked store has texts elsewhere. A text that was just added is in the compressor, and in no block.
    return plain and not store._immediate_fallback_vfs and not store._unadded_refs


def _from_blocks(store: Any, keys: list[StoreKey]) -> Iterator[Read]:
    """Yield the texts without Breezy's stream, which creates six objects for each text."""
    memos: dict[tuple[int, int], tuple[Any, int, int]] = {}
    inside: dict[tuple[int, int], list[tuple[int, int, StoreKey, tuple[StoreKey, ...] | None]]] = {}
    for key, details in store._index.get_build_details(keys).items():
        index, at, size, begin, end = details.index_memo
        place = id(index), at
        if place not in memos:
            memos[place], inside[place] = (index, at, size), []
        inside[place].append((begin, end, tuple(key), details[2]))
    batch: list[tuple[int, int]] = []
    size = 0
    for place in sorted(memos):
        batch.append(place)
        size += memos[place][2]
        if size >= groupcompress.BATCH_SIZE:
            yield from _extracted(store, batch, memos, inside)
            batch, size = [], 0
    yield from _extracted(store, batch, memos, inside)


def _extracted(
    store: Any,
    batch: list[tuple[int, int]],
    memos: Mapping[tuple[int, int], tuple[Any, int, int]],
    inside: Mapping[tuple[int, int], list[tuple[int, int, StoreKey, tuple[StoreKey, ...] | None]]],
) -> Iterator[Read]:
    for place, (_, block) in zip(batch, store._get_blocks([memos[place] for place in batch]), strict=True):
        texts = sorted(inside[place], key=lambda text: text[:2])
        block._ensure_content(max([end for _, end, _, _ in texts]))
        for begin, end, key, parents in texts:
            yield key, b"".join(block.extract(key, begin, end)), parents
