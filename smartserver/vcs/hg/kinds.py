"""The kinds of the records of `hg sha1`, their keys and their meta.

The key of a changeset or manifest is its node. The key of a file's version is the file's path, a NUL and the node. The
meta is the two parents in Mercurial's own store, without null parents at the end: a node is a hash of them and the
text.
"""

from __future__ import annotations

import hashlib
from typing import Final

from smartserver.records.check import Hash
from smartserver.records.model import Key, Kind

CHANGESET: Final = 0
MANIFEST: Final = 1
FILE: Final = 2

NODE_CHECK: Final = "hg-node"
FILE_CHECK: Final = "hg-file"

KINDS: Final = (Kind("changeset", NODE_CHECK, True), Kind("manifest", NODE_CHECK, True), Kind("file", FILE_CHECK, True))

PUBLISHING: Final = "publishing"
"""The setting that says whether pushed changesets become public: `yes`, which is the default, or `no`."""

EVOLUTION: Final = "evolution"
"""The setting that says whether obsolescence markers are exchanged: `yes`, or `no`, which is the default."""

YES: Final = b"yes"

NO: Final = b"no"

BOOKMARKS: Final = "bookmarks"
"""The map of bookmarks: their names in UTF-8, and their changesets."""

PUBLIC: Final = "public"
"""The map of public changesets, by their ids in hex. Their ancestors are public, too."""

OBSOLETE: Final = "obsolete"
"""The map of obsolescence markers; see `markers`."""

NODE_BYTES: Final = 20

NULL: Final = bytes(NODE_BYTES)
"""The node that denotes a missing parent or an empty manifest."""

Node = bytes


def meta_of(first: Node, second: Node) -> bytes:
    """Return the meta of a record with the given parents."""
    if second != NULL:
        return first + second
    return first if first != NULL else b""


def parents_of(meta: bytes) -> tuple[Node, Node]:
    """Return the two parents in a meta; null for an absent parent."""
    both = meta[: 2 * NODE_BYTES].ljust(2 * NODE_BYTES, b"\0")
    first, second = both[:NODE_BYTES], both[NODE_BYTES:]
    if meta_of(first, second) != meta:
        raise ValueError(f"its meta of {len(meta)} bytes is not two parents")
    return first, second


def node_of(meta: bytes, text: bytes) -> Node:
    """Return the node of a text, whose parents are in `meta`."""
    digest = begin_node(meta)
    digest.update(text)
    return digest.digest()


def begin_node(meta: bytes) -> Hash:
    """Return the hash of a node before its text is added."""
    return hashlib.sha1(b"".join(sorted(parents_of(meta))))


def file_key(path: bytes, node: Node) -> Key:
    """Return the key of a file's version."""
    return path + b"\0" + node


def path_of(key: Key) -> bytes:
    """Return the path in the key of a file's version."""
    path = key[: -NODE_BYTES - 1]
    if not path or key[len(path)] or b"\0" in path or b"\n" in path or b"\r" in path:
        raise ValueError("its key is not a path, a NUL and a node")
    return path


def checked_file_key(key: Key, node: Node) -> Key:
    """Return the key of a file's version with the path of `key` and the node of its text. The manifest that refers to
    this key proves that the two belong together."""
    return file_key(path_of(key), node)
