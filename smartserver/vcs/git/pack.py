"""Encodes git's packs and indexes."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from smartserver.records.model import Key
from smartserver.records.varint import encode
from smartserver.vcs.base import VcsError, WrongContent
from smartserver.vcs.git.objects import TYPE_NAMES

OFS_DELTA: Final = 6
PACK_HEAD: Final = struct.Struct(">4sII")
_INDEX_HEAD: Final = b"\377tOc\0\0\0\2"
_FAR: Final = 1 << 31
"""Offsets from this one on are stored in the index's table of eight-byte offsets."""


def hash_of(width: int) -> Callable[..., hashlib._Hash]:
    """Return the hash whose digest has `width` bytes."""
    return hashlib.sha256 if width == 32 else hashlib.sha1


def check_id(kind: int, key: Key, text: bytes) -> None:
    """Check that the id of an object is its key."""
    hashed = hash_of(len(key))(b"%s %d\0" % (TYPE_NAMES[kind], len(text)))
    hashed.update(text)
    if hashed.digest() != key:
        raise WrongContent(key, f"its content has the id {hashed.hexdigest()}")


def entry_head(kind: int, n: int) -> bytes:
    """Return the head of a pack entry: its type and the inflated length of its data."""
    low, n = kind << 4 | n & 15, n >> 4
    return bytes((low | 128,)) + encode(n) if n else bytes((low,))


def offset_back(n: int) -> bytes:
    """Encode the distance from an entry back to the base of its delta."""
    out = bytearray((n & 127,))
    n >>= 7
    while n:
        n -= 1
        out.insert(0, 128 | n & 127)
        n >>= 7
    return bytes(out)


def index(entries: Sequence[tuple[Key, int, int]], pack_hash: bytes) -> bytes:
    """Return the index file (version 2) of a pack with the hash `pack_hash`. `entries`: key, CRC-32, offset; sorted."""
    firsts = Counter(key[0] for key, _, _ in entries)
    out = bytearray(_INDEX_HEAD)
    for count in accumulate(firsts[first] for first in range(256)):
        out += count.to_bytes(4, "big")
    out += b"".join([key for key, _, _ in entries])
    out += b"".join([check.to_bytes(4, "big") for _, check, _ in entries])
    far: list[bytes] = []
    for _, _, offset in entries:
        if offset >= _FAR:
            out += (_FAR | len(far)).to_bytes(4, "big")
            far.append(offset.to_bytes(8, "big"))
        else:
            out += offset.to_bytes(4, "big")
    out += b"".join(far) + pack_hash
    return bytes(out) + hash_of(len(pack_hash))(out).digest()


class BaseNotHere(VcsError):
    """A delta base that should be in the repository is missing there. Most likely the repository is damaged."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return (
            f"object {self.key.hex()} is missing here, and what the server sent needs it: run `git fsck` "
            "(if it finds nothing wrong, the server left the object out)"
        )
