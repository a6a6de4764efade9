"""The names of Breezy that have moved between its releases, or will, and the types of what a repository gives. Tests
run with 3.3; for 3.4 its source was read.

The rule of this file: nothing else under `vcs` imports Breezy, the plugin imports such names from nowhere else, and
nothing imports this module before there is a Breezy repository to read.
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
    """A module that is another package's since Breezy 3.4."""
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
"""The parent of a first revision, as graphs name it."""

StoreKey = tuple[bytes, ...]
"""A key of Breezy's stores: a revision id, a page's, or a file id and a revision id."""

Keys = Iterable[StoreKey]


class ContentFactory(Protocol):
    """One record of a stream; valid until the next is asked for."""

    key: StoreKey
    parents: tuple[StoreKey, ...] | None
    sha1: bytes | None
    storage_kind: str
    """`absent` where there is none of that key."""

    def get_bytes_as(self, storage_kind: str) -> bytes:
        """The text, asked for as `fulltext`."""


class Store(Protocol):
    """One of a repository's five stores."""

    def get_record_stream(self, keys: Keys, ordering: str, include_delta_closure: bool) -> Iterator[ContentFactory]:
        """The records of `keys`, in an order that suits the store (`unordered`)."""

    def get_parent_map(self, keys: Keys) -> Mapping[StoreKey, tuple[StoreKey, ...] | None]:
        """The parents of those of `keys` that are here."""


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
        """Keep it as it is while it is read."""

    def lock_write(self) -> AbstractContextManager[object]:
        """Keep others from writing."""

    def get_graph(self) -> Any:
        """Its graph."""

    def get_parent_map(self, revision_ids: Iterable[bytes]) -> Mapping[bytes, tuple[bytes, ...]]:
        """The parents of those revisions that are here."""

    def all_revision_ids(self) -> list[bytes]:
        """Every revision that is here."""

    def get_known_graph_ancestry(self, revision_ids: Iterable[bytes]) -> Any:
        """The graph of some revisions and all their ancestors."""

    def start_write_group(self) -> None:
        """Begin to write."""

    def commit_write_group(self) -> object:
        """Make what was written visible."""

    def abort_write_group(self, suppress_errors: bool) -> None:
        """Drop what was written."""

    def add_signature_text(self, revision_id: bytes, signature: bytes) -> None:
        """Add a signature."""

    def _get_sink(self) -> Any: ...

    def _get_source(self, to_format: Any) -> Any: ...


_Blocks: Any = getattr(groupcompress, "GroupCompressVersionedFiles", None)
"""The stores whose blocks are read here."""

encode_length: Callable[[int], bytes] = groupcompress.encode_base128_int
"""A number as it lies before what it is the length of."""

differences: Any = getattr(groupcompress, "DeltaIndex", None)
"""The class that finds in a text what another has too, where Breezy has its compiled parts."""

VersionedFiles: Any = versionedfile.VersionedFiles

AbsentContentFactory: Any = versionedfile.AbsentContentFactory
ChunkedContentFactory: Any = versionedfile.ChunkedContentFactory
FulltextContentFactory: Any = versionedfile.FulltextContentFactory
"""The records that a store gives: nothing of that key, a text in pieces, a text."""

ExistingContent: type[BaseException] = versionedfile.ExistingContent
"""Raised by a store that has a text already which it is told not to take."""


def format_2a() -> Any:
    """The one format of control directories whose content can be sent."""
    return format_registry.make_controldir("2a")


def load_formats() -> None:
    """Have Breezy's own formats registered, and what goes between them."""
    importlib.import_module("breezy.bzr.vf_repository")


def dirstate_tree() -> Any:
    """The class of working trees, if any was loaded."""
    found = sys.modules.get("breezy.bzr.workingtree_4")
    return None if found is None else found.DirStateWorkingTree


def git_directory() -> Any:
    """The class of git's control directories, if any was loaded."""
    found = sys.modules.get("breezy.git.dir")
    return None if found is None else found.GitDir


def debug_flags() -> set[str]:
    """The flags the user has given with `-D`, or in his configuration."""
    given = getattr(debug, "get_debug_flags", None)  # Since 3.4
    return set(debug.debug_flags if given is None else given())


def put_block(
    store: Store, block: bytes, places: Iterable[tuple[StoreKey, tuple[StoreKey, ...] | None, int, int]]
) -> None:
    """Put a block into a store, as it is; `places`: of each text its key and parents, where it begins and ends.

    A text that is there already is not put there again.
    """
    inside: Any = store
    _, at, size = inside._access.add_raw_record(None, len(block), [block])
    inside._index.add_records(
        [(key, b"%d %d %d %d" % (at, size, begin, end), (parents,)) for key, parents, begin, end in places]
    )


Read = tuple[StoreKey, bytes, tuple[StoreKey, ...] | None]
"""A key, its text and its parents."""


def read_texts(store: Store, keys: Keys) -> Iterator[Read]:
    """The texts of the `keys` that are here, in an order that suits the store."""
    left = set(keys)
    if _is_plain(store):
        # Whatever goes wrong below, a pack joined to others meanwhile or a Breezy that keeps them otherwise, its own
        # stream can do as well, or says what is wrong.
        with contextlib.suppress(Exception):
            for read in _from_blocks(store, list(left)):
                left.discard(read[0])
                yield read
            return  # What is left is not here.
    for found in store.get_record_stream(left, "unordered", True):
        if found.storage_kind != "absent":
            yield tuple(found.key), found.get_bytes_as("fulltext"), found.parents


def _is_plain(store: Any) -> bool:
    """True if all that a store has lies in blocks of its own, in a form that is known here."""
    # Of Breezy 3.4's stores, which are another package's, it is not known; nor of a class that somebody has derived.
    plain = groupcompress.__name__ == "breezy.bzr.groupcompress" and type(store) is _Blocks
    plain = plain and "get_record_stream" not in vars(store)  # Nobody has put another in its place.
    # What it is stacked on has the rest; and what was just added is still in its compressor, and in no block.
    return plain and not store._immediate_fallback_vfs and not store._unadded_refs


def _from_blocks(store: Any, keys: list[StoreKey]) -> Iterator[Read]:
    """The same without the objects of which Breezy's stream makes six for each text."""
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
