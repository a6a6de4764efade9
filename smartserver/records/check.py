"""What proves a record's text: its key, or a check in its header.

A kind names one of these in `Kind.check`:

a name of `KEYS`   the key follows from meta and text; a system may bring some of its own (`records.system`)
blake2b-128        the key says nothing of the text; 16 bytes in the record's header do
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Final

from smartserver.errors import shown
from smartserver.meters import HASHED, HASHED_BYTES, here
from smartserver.records import varint
from smartserver.records.model import Key, Kind

BLAKE2B: Final = "blake2b-128"
CHECK_BYTES: Final = 16
"""Bytes of a check that lies in the record's header."""


def _sha1_key(key: Key, meta: bytes, text: bytes) -> Key:
    del key, meta
    return b"sha1:" + hashlib.sha1(text).hexdigest().encode()


KEYS: Final[dict[str, Callable[[Key, bytes, bytes], Key]]] = {"sha1-key": _sha1_key}
"""The checks by which a key follows from meta and text: `sha1:` and the hex sha1 of the text; those of systems."""


def check_bytes(kind: Kind) -> int:
    """How many bytes of check a record of this kind has in its header: 0 where the key is the check.

    Raises:
        ValueError: the kind names no check.
    """
    if kind.check == BLAKE2B:
        return CHECK_BYTES
    if kind.check not in KEYS:
        raise ValueError(f"kind {kind.name!r} names an unknown check {kind.check!r}")
    return 0


def make_check(kind: Kind, key: Key, meta: bytes, text: bytes) -> bytes:
    """The check for a record's header: 16 bytes over kind, key, meta and text, or empty where the key is the check."""
    if not check_bytes(kind):
        return b""
    encode = varint.encode
    head = b"%b%b%b%b%b" % (_begin(kind.name), encode(len(key)), key, encode(len(meta)), meta)
    digest = hashlib.blake2b(head, digest_size=CHECK_BYTES)
    digest.update(text)
    return digest.digest()


@functools.lru_cache(maxsize=64)
def _begin(name: str) -> bytes:
    """What all checks of a kind begin with."""
    named = name.encode()
    return varint.encode(len(named)) + named


def verify_record(kind: Kind, key: Key, meta: bytes, text: bytes, check: bytes) -> None:
    """Check that the text is what key and header say.

    Raises:
        ValueError: it is not; the message says what was expected.
    """
    key_of = KEYS.get(kind.check)
    if key_of is not None:
        actual, expected = key_of(key, meta, text), key
    else:
        actual, expected = make_check(kind, key, meta, text), check
    tally = here.tally
    tally[HASHED] += 1
    tally[HASHED_BYTES] += len(text)
    if actual != expected:
        raise ValueError(f"the text hashes to {shown(actual)}, expected {shown(expected)}")
