"""Parses obsolescence markers (which changesets replace another), and finds the markers that matter to some changesets.

The map `obsolete` has one entry for each marker. The value is Mercurial's own encoding of it (version 1). The key is
the node of the predecessor and the start of a hash of the value, both in hex. So the markers of a changeset are found
by the start of their keys, and one marker that two users push is one entry.

The map grows with every amend and is not sent with the refs. A pull of everything gets the markers that were added
since the version of the last such pull; the first pull gets every marker. A marker that matters to no changeset of the
server is sent, too: its changeset may be added later, and nothing would tell then that the marker began to matter. A
pull of a part leaves out markers that do not matter to that part, and its version is not remembered.
"""

from __future__ import annotations

import math
import struct
from binascii import unhexlify
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from smartserver.errors import Unsupported
from smartserver.vcs.hg.kinds import NODE_BYTES, NULL, Node

MARKERS: Final = b"o"
"""The first byte of a selector of a history with its markers."""

WHOLE: Final = b"O"
"""The first byte of a selector of the map's entries after a key."""

VERSION: Final = b"\x01"
"""The first byte of a stream of markers in Mercurial's encoding of version 1."""

_KNOWN: Final = struct.Struct(">16sQH")
"""The version of the last pull of markers: incarnation, version, mark; all zero for none."""

_HEAD: Final = struct.Struct(">IdhHBBB")
"""Size, date, time zone, flags; the numbers of successors, parents and pairs of metadata."""

_COUNTS: Final = _HEAD.size - 3
"""The offset of the three numbers in `_HEAD`."""

_SECOND: Final = _HEAD.size + NODE_BYTES
"""The offset of the nodes that follow the predecessor."""

_LONG_NODES: Final = 2
"""The flag of a marker with nodes of 32 bytes."""

_NO_PARENTS: Final = 3
"""The value in place of the number of parents, in a marker that does not record the parents of its predecessor."""

_HASH_BYTES: Final = 8

KnownVersion = tuple[bytes, int, int]


class Marker(NamedTuple):
    """The changesets that a marker names."""

    predecessor: Node
    successors: tuple[Node, ...]
    parents: tuple[Node, ...]
    """The parents of the predecessor, if the marker names them."""

    @property
    def anchors(self) -> tuple[Node, ...]:
        """The changesets to which the marker is relevant: its successors or, if it has none, the predecessor and its
        parents."""
        return self.successors or (self.predecessor, *self.parents)


def parse(encoded: bytes) -> Marker:
    """Parse a marker."""
    if len(encoded) < _HEAD.size:
        raise ValueError(f"a marker of {len(encoded)} bytes")
    size, date, _zone, flags, successors, parents, pairs = _HEAD.unpack_from(encoded)
    parents = 0 if parents == _NO_PARENTS else parents
    at = _HEAD.size
    end = at + NODE_BYTES * (1 + successors + parents)
    nodes = [encoded[start : start + NODE_BYTES] for start in range(at, end, NODE_BYTES)]
    at = end
    lengths = encoded[at : at + 2 * pairs]
    if flags & _LONG_NODES or parents > 2 or len(lengths) != 2 * pairs or at + 2 * pairs + sum(lengths) != len(encoded):
        raise ValueError("a marker that cannot be read")
    if size != len(encoded) or nodes[0] in nodes[1 : 1 + successors]:
        raise ValueError("a marker of another size, or of a changeset that replaces itself")
    if NULL in nodes[1 : 1 + successors] or not math.isfinite(date):
        raise ValueError("a marker with a successor or a date that is none")  # Mercurial refuses such a marker.
    return Marker(nodes[0], tuple(nodes[1 : 1 + successors]), tuple(nodes[1 + successors :]))


def key_of(encoded: bytes) -> bytes:
    """Return the key of a marker's entry.

    Raises:
        ValueError: the marker cannot be parsed.
    """
    start = blake2b(encoded, digest_size=_HASH_BYTES).hexdigest()
    return f"{parse(encoded).predecessor.hex()}{start}".encode()


def relevant(entries: Mapping[bytes, bytes], is_wanted: Callable[[Node], bool]) -> set[bytes]:
    """Return the keys of the entries that are relevant to some changesets, as Mercurial's `obsstore.relevantmarkers`
    does. A marker is relevant if its anchor is one of these changesets, or the predecessor of a relevant marker."""
    predecessors = set(map(_predecessor, entries))
    found: set[bytes] = set()
    others: dict[Node, list[bytes]] = {}
    """The remaining entries, by the anchors of each that are predecessors. A marker may have 255 anchors."""
    for key, value in entries.items():
        anchors = _anchors(value)
        if any(map(is_wanted, anchors)):
            found.add(key)
            continue
        for anchor in anchors:
            if anchor in predecessors:
                others.setdefault(anchor, []).append(key)
    todo = list(found)
    while todo:
        new = [key for key in others.pop(_predecessor(todo.pop()), ()) if key not in found]
        found.update(new)
        todo += new
    return found


def _predecessor(key: bytes) -> Node:
    return unhexlify(key[: 2 * NODE_BYTES])


def _anchors(encoded: bytes) -> Sequence[Node]:
    """Return the same as `Marker.anchors`, in a third of the time. The marker was parsed when it was received."""
    successors = encoded[_COUNTS]
    if successors == 1:  # Nearly always.
        return (encoded[_SECOND : _SECOND + NODE_BYTES],)
    if successors:
        return [encoded[at : at + NODE_BYTES] for at in range(_SECOND, _SECOND + NODE_BYTES * successors, NODE_BYTES)]
    return parse(encoded).anchors


def encode_selector(known: KnownVersion | None, names: bytes) -> bytes:
    """Encode a selector of a history and of the markers added since `known`. The history is the one that `names`
    selects; if `names` is empty, it is that of the wants. With names, only markers that matter to that history are
    selected.

    The answer begins with the answer to the names. The markers follow, one after the other.
    """
    return MARKERS + _KNOWN.pack(*(known or (b"", 0, 0))) + names


def decode_selector(selector: bytes) -> tuple[KnownVersion, bytes]:
    """Return the version and the names of a selector with markers."""
    if len(selector) < 1 + _KNOWN.size:
        raise Unsupported("a selector of another release", "markers")
    incarnation, version, mark = _KNOWN.unpack_from(selector, 1)
    return (incarnation, version, mark), selector[1 + _KNOWN.size :]
