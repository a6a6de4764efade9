"""Proofs of a record's text: by its key, or by a check in its header.

A kind names one of these in `Kind.check`:

a name of `KEYS`   the key is computed from meta and text; a system may add checks of its own (`records.system`)
blake2b-128        the key does not depend on the text; the record's header has a check of 16 bytes
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from smartserver.errors import shown
from smartserver.meters import HASHED, HASHED_BYTES, here
from smartserver.records import varint
from smartserver.records.model import Key, Kind

BLAKE2B: Final = "blake2b-128"
CHECK_BYTES: Final = 16
"""The length in bytes of the check in a record's header."""


class Hash(Protocol):
    """The methods of a `hashlib` hash that this package uses."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Hash the next bytes."""

    def digest(self) -> bytes:
        """Return the digest of all bytes so far."""


def _digest(_: bytes, digest: bytes) -> bytes:
    return digest


class KeyCheck(NamedTuple):
    """A check that computes a record's key from its meta and text."""

    begin: Callable[[Key, bytes, int], Hash]
    """A function that returns the hash to which the text is then added. Its arguments are the key, the meta and the
    length of the text. It raises ValueError if no record can have these."""
    key: Callable[[Key, bytes], Key] = _digest
    """A function that returns the key that a record must have, computed from its stated key and the digest."""


KEYS: Final[dict[str, KeyCheck]] = {
    "sha1-key": KeyCheck(lambda _, __, ___: hashlib.sha1(), lambda _, digest: b"sha1:" + digest.hex().encode())
}
"""The checks in which the key proves the text, by name. The key of `sha1-key` is `sha1:` and the SHA-1 of the text in
hex; systems register further checks."""


def check_bytes(kind: Kind) -> int:
    """Return the number of bytes of the check in the header of a record of this kind; 0 if the key proves the text."""
    if kind.check == BLAKE2B:
        return CHECK_BYTES
    if kind.check not in KEYS:
        raise ValueError(f"kind {kind.name!r} names an unknown check {kind.check!r}")
    return 0


def make_check(kind: Kind, key: Key, meta: bytes, text: bytes) -> bytes:
    """Return the check for a record's header: a hash of 16 bytes of kind, key, meta and text. It is empty if the key
    proves the text."""
    if not check_bytes(kind):
        return b""
    digest = _begin_check(kind, key, meta)
    digest.update(text)
    return digest.digest()


def _begin_check(kind: Kind, key: Key, meta: bytes) -> Hash:
    encode = varint.encode
    head = b"%b%b%b%b%b" % (_begin(kind.name), encode(len(key)), key, encode(len(meta)), meta)
    return hashlib.blake2b(head, digest_size=CHECK_BYTES)


@functools.lru_cache(maxsize=64)
def _begin(name: str) -> bytes:
    """Return the encoded name of a kind, with which the hashed bytes of a check begin."""
    named = name.encode()
    return varint.encode(len(named)) + named


class TextProof:
    """Proves that a text, given in parts to `update`, matches its key and header."""

    def __init__(self, kind: Kind, key: Key, meta: bytes, length: int, check: bytes) -> None:
        """`length`: the bytes of the text.

        Raises:
            ValueError: no text can have this key and meta.
        """
        checked = KEYS.get(kind.check)
        if checked is None:
            self._hash, self._expected = _begin_check(kind, key, meta), check
        else:
            self._hash, self._expected = checked.begin(key, meta, length), key
        self._key = _digest if checked is None else checked.key
        self.update = self._hash.update
        self._length = length

    def finish(self) -> None:
        """Check the text after its last part.

        Raises:
            ValueError: the text does not match; the message has the expected hash.
        """
        _compare(self._key(self._expected, self._hash.digest()), self._expected, self._length)


def verify_record(kind: Kind, key: Key, meta: bytes, text: bytes, check: bytes) -> None:
    """Check that a text matches its key and header.

    Raises:
        ValueError: the text does not match; the message has the expected hash.
    """
    checked = KEYS.get(kind.check)
    if checked is None:
        _compare(make_check(kind, key, meta, text), check, len(text))
        return
    digest = checked.begin(key, meta, len(text))
    digest.update(text)
    _compare(checked.key(key, digest.digest()), key, len(text))


def _compare(actual: bytes, expected: bytes, length: int) -> None:
    tally = here.tally
    tally[HASHED] += 1
    tally[HASHED_BYTES] += length
    if actual != expected:
        raise ValueError(f"the text hashes to {shown(actual)}, expected {shown(expected)}")
