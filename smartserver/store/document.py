"""The document in the file `root`: its fields, its bytes, and which ones this release may read and write.

Only `swap` writes it; `root` says what is in it and makes its successor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Annotated

import msgspec

from smartserver.errors import CorruptFile, LimitExceeded, Unsupported
from smartserver.records.model import Kind, RefValue, Tip, encode_ref
from smartserver.records.system import system_of
from smartserver.store.format import ROOT
from smartserver.store.model import INCOMPLETE
from smartserver.store.record import PackEntry as PackEntry
from smartserver.store.swap_log import LogEntry, LogFile
from smartserver.store.tables import Bytes16, Natural, Table

MAX_ROOT = 64 * 1024
"""Bytes of the file: read at every request, rewritten and synced at every swap."""

READ_FEATURES: frozenset[str] = frozenset()
"""Features this release understands when it reads."""
WRITE_FEATURES: frozenset[str] = frozenset()
"""Features this release keeps up when it writes."""

REFS = "refs"
DROPPED = "dropped"
MAP = "map/"
"""Names of the root's tables; a map's is `map/` and its own."""
SETTINGS = "settings"
DECLARED = "maps"
INCARNATION = "incarnation"
"""What the log calls changes of settings, the kinds of new maps and a new incarnation, where else it names a table."""


class Dropped(msgspec.Struct, frozen=True, array_like=True):
    """A pack, table or log file that root `version` stopped naming, at `time` (milliseconds since the epoch)."""

    name: bytes
    time: int
    version: int


class Root(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The document. Later releases append fields; what a reader must not overlook is a read feature.

    `log_from`: every change after this version is in `log`. `log_since`: every swap from this time on (milliseconds
    since the epoch) is in `log` or a log file. `deleted`: a tombstone. `log_mark`: the mark of the newest entry that is
    not in `log`, 0 where there is none.
    """

    incarnation: Bytes16
    version: Natural
    epoch: Natural = 0
    read_features: tuple[str, ...] = ()
    write_features: tuple[str, ...] = ()
    vcs: Annotated[str, msgspec.Meta(min_length=1)]
    kinds: tuple[Kind, ...]
    packs: tuple[PackEntry, ...] = ()
    settings: dict[str, bytes] = {}
    settings_version: Natural = 0
    tables: dict[str, Table] = {}
    changes: dict[str, dict[bytes, bytes | None]] = {}
    log: tuple[LogEntry, ...] = ()
    log_from: Natural = 0
    log_since: Natural = 0
    log_files: tuple[LogFile, ...] = ()
    deleted: bool = False
    log_mark: Natural = 0

    @property
    def is_incomplete(self) -> bool:
        """Whether a copy into the repository takes more requests than have come."""
        return INCOMPLETE in self.settings


class _Head(msgspec.Struct, array_like=True):
    """What begins every root for ever, so that a foreign one can be refused by name."""

    incarnation: Bytes16
    version: Natural
    epoch: Natural
    read_features: tuple[str, ...]
    write_features: tuple[str, ...]


_FILE = msgspec.msgpack.Decoder(tuple[bytes, bytes])
_ROOT = msgspec.msgpack.Decoder(Root)
_HEAD = msgspec.msgpack.Decoder(_Head)
_REF = msgspec.msgpack.Decoder(Annotated[tuple[Tip, ...], msgspec.Meta(min_length=1)])
_encode = msgspec.msgpack.Encoder().encode


def encode_root(root: Root) -> bytes:
    """The content of the root file: msgpack [payload, BLAKE2b-16 of payload].

    Raises:
        LimitExceeded: it takes more than 64 KiB although everything that can lies in files.
    """
    payload = _encode(root)
    content = _encode((payload, blake2b(payload, digest_size=16).digest()))
    if len(content) > MAX_ROOT:
        raise LimitExceeded("bytes of the repository's root", len(content), MAX_ROOT)
    return content


def decode_root(content: bytes) -> Root:
    """The root in a file's content.

    Raises:
        CorruptFile: damaged.
        Unsupported: it has a feature this release cannot read, or is of a system that it does not know.
    """
    if len(content) > MAX_ROOT:
        raise CorruptFile(ROOT, MAX_ROOT, f"{len(content)} bytes, expected no more than {MAX_ROOT}")
    try:
        payload, check = _FILE.decode(content)
    except msgspec.DecodeError as wrong:
        raise CorruptFile(ROOT, 0, str(wrong)) from wrong
    if blake2b(payload, digest_size=16).digest() != check:
        raise CorruptFile(ROOT, 0, "the content does not match its check")
    try:
        root = _ROOT.decode(payload)
    except msgspec.DecodeError as wrong:
        # A feature may change what follows the head.
        with contextlib.suppress(msgspec.DecodeError):
            _refuse_unknown(_HEAD.decode(payload).read_features, READ_FEATURES, "the repository feature")
        raise CorruptFile(ROOT, 0, str(wrong)) from wrong
    _refuse_unknown(root.read_features, READ_FEATURES, "the repository feature")
    system_of(root.vcs)
    return root


def _refuse_unknown(features: Sequence[str], known: frozenset[str], what: str) -> None:
    for feature in features:
        if feature not in known:
            raise Unsupported(f"{what} {feature!r}", ", ".join(sorted(known)) or "none")


def check_writable(root: Root) -> None:
    """Accept a root this release may make a successor of.

    Raises:
        Unsupported: it has a feature this release does not keep up.
    """
    _refuse_unknown(root.write_features, WRITE_FEATURES, "writing a repository with the feature")


def empty_root(incarnation: bytes, vcs: str, kinds: Sequence[Kind], *, now: float, over: Root | None = None) -> Root:
    """A repository before its first version: `next_root` of it is what a creation writes.

    `over`: the tombstone it replaces. Its dropped files stay listed; its log does not go on.
    """
    tables = {DROPPED: Table("opaque"), REFS: Table("ids")}
    root = Root(incarnation=incarnation, version=0, vcs=vcs, kinds=tuple(kinds), tables=tables)
    if over is None or not (over.log or over.log_files or over.log_since):  # Or it only held the place.
        return root
    return msgspec.structs.replace(
        root,
        tables={**tables, DROPPED: over.tables.get(DROPPED, tables[DROPPED])},
        changes={name: changes for name, changes in over.changes.items() if name == DROPPED},
        log_since=milliseconds(now),  # Earlier requests were for the repository that is gone.
    )


def milliseconds(now: float) -> int:
    """Seconds since the epoch as the document states times."""
    return int(now * 1000)


def encode_value(value: RefValue) -> bytes:
    """A ref's value as a table holds it; its tips are sorted here."""
    if not value:
        raise ValueError("a ref without tips")
    return _encode(encode_ref(sorted(value, key=attrgetter("id"))))


def decode_value(value: bytes) -> RefValue:
    """The other way round.

    Raises:
        CorruptFile: it is not one.
    """
    try:
        found: RefValue = _REF.decode(value)
    except msgspec.DecodeError as wrong:
        raise CorruptFile(ROOT, 0, f"the value of a ref: {wrong}") from wrong
    return found
