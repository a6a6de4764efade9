"""Encodes the selector of `Repository.read` for a shallow or partial fetch, and the answer.

A selector is `f` and a msgpack `FetchSelector`. The answer says which commits become shallow and which are no longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from smartserver.errors import LimitExceeded, Unsupported
from smartserver.records.model import RevisionId

FETCH: Final = b"f"

MAX_DEPTH: Final = (1 << 31) - 1
"""Git's INFINITE_DEPTH: no commit stays shallow."""

MAX_SHALLOW: Final = 1 << 16
"""The most shallow commits that a client may name. A clone of depth 50 of a busy project has some hundreds."""

MAX_EXCLUDED: Final = 256
"""The most refs whose history is left out (`--shallow-exclude`)."""

MAX_FILTERS: Final = 16
"""The most filters that an object must pass (`--filter=combine:...`)."""

BLOBS: Final = 0
"""The kind of a filter that leaves out blobs of at least its limit in bytes."""
TREES: Final = 1
"""The kind of a filter that leaves out trees and blobs whose depth is at least its limit; a root tree has depth 0."""

Filter = tuple[int, int]
"""`BLOBS` or `TREES`, and its limit."""


class FetchSelector(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A fetch of the objects of the commits that the wants reach and the haves do not.

    `shallow`: commits whose parents the client lacks. `depth`: the number of commits on each path of the answer; 0
    means all. `relative`: the depth counts from the shallow commits. `since`: only commits of that Unix time or later.
    `excluded`: refs whose history is left out. `filters`: each object must pass all of them, unless it is wanted by its
    id. `follow`: prefixes of refs; an annotated tag below one is sent with its target. `thin`: a delta base may be a
    record that only the client has.
    """

    shallow: list[bytes] = []
    depth: int = 0
    relative: bool = False
    since: Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)] | None = None
    excluded: list[bytes] = []
    filters: list[Filter] = []
    follow: list[bytes] = []
    thin: bool = False


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """The commits that a fetch makes shallow, and the commits that it makes complete."""

    shallow: list[bytes] = []
    unshallow: list[bytes] = []


_decode = msgspec.msgpack.Decoder(FetchSelector).decode
_decode_cut = msgspec.msgpack.Decoder(Cut).decode


def encode(selector: FetchSelector) -> bytes:
    """Encode a selector for `Repository.read`."""
    return FETCH + msgspec.msgpack.encode(selector)


def decode(selector: bytes) -> FetchSelector:
    """Decode the selector of a fetch."""
    if not selector.startswith(FETCH):
        raise Unsupported("this selector of a git repository", "those of this server's release")
    try:
        asked = _decode(selector[len(FETCH) :])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unsupported(f"this selector of a fetch ({error})", "those of this server's release") from None
    _check("shallow commits in a fetch", len(asked.shallow), MAX_SHALLOW)
    _check("commits of depth in a fetch", asked.depth, MAX_DEPTH)
    _check("excluded refs of a fetch", len(asked.excluded), MAX_EXCLUDED)
    _check("filters of a fetch", len(asked.filters), MAX_FILTERS)
    _check("followed prefixes of a fetch", len(asked.follow), MAX_FILTERS)
    if asked.depth < 0:
        raise Unsupported(f"a depth of {asked.depth}", f"0 to {MAX_DEPTH}")
    for kind, number in asked.filters:
        if kind not in (BLOBS, TREES) or number < 0:
            raise Unsupported(f"the filter {kind}={number}", "filters 0 (blobs) and 1 (trees) of 0 or more")
    return asked


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise LimitExceeded(what, count, most)


def encode_cut(shallow: Sequence[RevisionId], unshallow: Sequence[RevisionId]) -> bytes:
    """Encode the answer, which becomes `ReadPlan.said`."""
    return msgspec.msgpack.encode((shallow, unshallow))


def decode_cut(said: bytes, width: int) -> Cut:
    """Decode the answer. `width`: bytes of an id.

    Raises:
        ValueError: the bytes are no answer.
    """
    try:
        cut = _decode_cut(said)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"expected shallow commits: {error}") from None
    for commit in (*cut.shallow, *cut.unshallow):
        if len(commit) != width:
            raise ValueError(f"a shallow commit with an id of {len(commit)} bytes, expected {width}")
    return cut
