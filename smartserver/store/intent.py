"""Intents: what a change is about to do, durable before the root that does it.

The problem: the root is the only file that is ever replaced. Putting an old root back removes every later change from
the repository: their packs are still there, but no file says what they are for.

The rule: a change is written down before the root is swapped, as the entry that the log will have. A push appends it to
its pack, behind the pack's hash, where it needs no sync of its own. A change without a pack gets a small file in `log`.
A repack says in the joined pack which packs it replaces.

The order: intent, sync, root, sync, answer. A crash in between leaves an intent that no root carried out. It does not
say whether the change was acknowledged: `recovery` lists it, and a person decides. An intent is deleted only when a log
file holds its entry, so an acknowledged change is always written down outside the root.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from smartserver.errors import CorruptFile
from smartserver.store.swap_log import LogEntry
from smartserver.store.tables import Bytes16
from transports.base import Transport
from transports.steps import ReadRanges

MAGIC = b"hpss-int"
VERSION = 1
SUFFIX = ".intent"
"""How the name of the small file ends that a change without a pack has in `log`."""

NAMED = 16
"""Entries that an intent names: as many writers may be at it at once, each of whom planned on the same root."""
PREFIX = 4
"""Bytes of a request that name it; of an entry that a log file has, the two of its mark."""

HEADER = struct.Struct("<8sHH")
"""Magic, version, flags (0); the msgpack of the intent follows."""
FOOTER = struct.Struct("<I16s")
"""Length of the whole intent, BLAKE2b-16 of all that precedes: it is found from the end of a file."""


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """A change that is about to be made, of the repository with that incarnation."""

    incarnation: Bytes16
    previous: tuple[tuple[int, bytes], ...]
    """The newest entries, up to `NAMED`, in the log of the root it was planned on: the version of each and the first
    bytes of its request. So those changes were made."""
    entry: LogEntry | None
    """What the log will say; the version may turn out higher. None: a repack."""
    replaces: tuple[Bytes16, ...] = ()
    """The packs, in order, that a joined pack has the segments of."""

    def is_same_change(self, other: Intent) -> bool:
        """Whether the other says the same of the repository, made on whichever version of it."""
        mine, its = self.entry, other.entry
        return (
            mine is not None
            and its is not None
            and (self.incarnation, mine.request, mine.changes) == (other.incarnation, its.request, its.changes)
        )


_DECODER = msgspec.msgpack.Decoder(Intent)


def encode_intent(intent: Intent) -> bytes:
    """The bytes behind a pack's hash, or of a file of its own."""
    content = HEADER.pack(MAGIC, VERSION, 0) + msgspec.msgpack.encode(intent)
    content += struct.pack("<I", len(content) + FOOTER.size)
    return content + blake2b(content, digest_size=16).digest()


Read = Callable[[int, int], bytes]
"""Bytes of a file, by offset and size; fewer at its end."""

TAIL = 4096
"""Bytes read from the end of a file at once: the intent of a push of some ten refs."""


def ranges_of(folder: Transport, path: str) -> Read:
    """A file's bytes, each range in a trip of its own."""

    def read(offset: int, size: int) -> bytes:
        step = ReadRanges(path, [(offset, size)])
        folder.perform([step])
        return step.result[0]

    return read


def read_intent(tail: bytes, read: Read, size: int, path: str) -> tuple[int, Intent | None]:
    """Where the intent at the end of a file of that size begins, and what it says; the size and None where there is
    none. `tail`: its last `TAIL` bytes.

    Raises:
        CorruptFile: it is damaged.
    """
    length = _length(tail)
    if not HEADER.size + FOOTER.size < length <= size:
        return size, None
    content = tail[-length:] if length <= len(tail) else read(size - length, length)
    if not content.startswith(MAGIC):
        return size, None
    return size - length, _decode(content, path, size - length)


def intent_behind(content: bytes, read: Read, length: int, path: str) -> Intent | None:
    """The intent that follows the first `length` bytes of a file; None where nothing follows. `content`: the `TAIL`
    bytes that follow.

    Raises:
        CorruptFile: what follows is no intent, or damaged.
    """
    while len(content) % TAIL == 0 and (more := read(length + len(content), TAIL)):
        content += more
    if not content:
        return None
    if _length(content) != len(content) or not content.startswith(MAGIC):
        raise CorruptFile(path, length, f"{len(content)} bytes follow that are no intent")
    return _decode(content, path, length)


def _length(tail: bytes) -> int:
    """What a footer says, or 0."""
    length: int = FOOTER.unpack_from(tail, len(tail) - FOOTER.size)[0] if len(tail) >= FOOTER.size else 0
    return length


def _decode(content: bytes, path: str, offset: int) -> Intent:
    _, version, flags = HEADER.unpack_from(content)
    if (version, flags) != (VERSION, 0):
        raise CorruptFile(path, offset, f"intent version {version} flags {flags}, this release reads version 1")
    if blake2b(memoryview(content)[:-16], digest_size=16).digest() != content[-16:]:
        raise CorruptFile(path, offset, "the intent does not match its check")
    try:
        return _DECODER.decode(memoryview(content)[HEADER.size : -FOOTER.size])
    except msgspec.DecodeError as wrong:
        raise CorruptFile(path, offset, f"the intent cannot be read: {wrong}") from wrong


def intent_path(version: int, name: bytes) -> str:
    """Where the intent of a change without a pack lies; `name`: 8 random bytes."""
    return f"log/{version}-{name.hex()}{SUFFIX}"
