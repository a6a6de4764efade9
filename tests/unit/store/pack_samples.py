"""Small histories with real frames, as packs on a transport, and what reading them must give."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from memory_transport import MemoryTransport

from smartserver.records.check import make_check
from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Kind, Parent, Record, RevisionId
from smartserver.records.segment import encode_segment
from smartserver.store.caches import TextCache
from smartserver.store.index_build import nowhere, rebuild
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.pack import PackReader, PackWriter
from smartserver.store.record import PackEntry
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import State
from smartserver.vcs.git.format import BLOB
from smartserver.vcs.git.system import git_key
from transports.base import Transport

KINDS = (
    Kind("object", "git-sha1", True),
    Kind("text", "blake2b-128", True),
    Kind("signature", "blake2b-128", False),
)


def blob(text: bytes) -> Record:
    """A record whose key is the check."""
    return Record(0, git_key("git-sha1", BLOB, text), BLOB, text)


def note(key: bytes, text: bytes, kind: int = 1) -> Record:
    """A record with a check of its own; kind 2 may have no base."""
    return Record(kind, key, b"", text)


@dataclass
class Revision:
    """One revision: each record with the record its frame rests on, or None."""

    id: RevisionId
    parents: Sequence[Parent] = ()
    records: Sequence[tuple[Record, Record | None]] = ()

    def segment(self) -> bytes:
        entries: list[Entry] = []
        frames: list[bytes] = []
        keys: list[tuple[int, bytes]] = []
        for record, base in self.records:
            encoding, frame = compress(record.text, base.text if base is not None else b"")
            tag, base_key = BaseTag.NONE, b""
            if base is not None and encoding:
                if (base.kind, base.key) in keys:
                    tag = BaseTag.entry(keys.index((base.kind, base.key)))
                else:
                    tag, base_key = BaseTag.FULL_KEY, base.key
            check = make_check(KINDS[record.kind], record.key, record.meta, record.text)
            length = len(record.text)
            entries.append(
                Entry(record.kind, encoding, record.key, record.meta, tag, base_key, length, len(frame), check)
            )
            frames.append(frame)
            keys.append((record.kind, record.key))
        return encode_segment(self.id, self.parents, entries, frames, KINDS)


def history(count: int, *, start: int = 0, before: Record | None = None) -> list[Revision]:
    """A line of revisions; each changes one file a little, with the version before as base, and adds a note."""
    revisions: list[Revision] = []
    text = before
    for number in range(start, start + count):
        lines = [b"line %d of the file, as it was first\n" % line for line in range(40)]
        lines[number % 40] = b"changed by revision %d\n" % number
        changed = blob(b"".join(lines) + b"%d\n" % number)
        records: list[tuple[Record, Record | None]] = [
            (changed, text),
            (note(b"note-%d" % number, b"n" * number), None),
        ]
        if number % 3 == 0:
            records.append((note(b"signature-%d" % number, b"signed\n", 2), None))
        parents = (Parent(b"revision-%04d" % (number - 1)),) if number else ()
        revisions.append(Revision(b"revision-%04d" % number, parents, records))
        text = changed
    return revisions


def packed(segments: Iterable[bytes], kinds: Sequence[Kind] = KINDS) -> PackReader:
    """A pack alone in a storage."""
    transport = MemoryTransport()
    writer = PackWriter(transport.create("pack"), tuple(kinds))
    for segment in segments:
        writer.append(segment)
    length, _ = writer.finish()
    return PackReader(transport.open_read("pack"), length, "packs/1.pack")


def write_pack(
    transport: Transport, revisions: Iterable[Revision], name: bytes, before: Snapshot | None = None
) -> PackEntry:
    """Write pack and index below `packs/`."""
    path = pack_path(name)
    if not transport.exists("packs"):
        transport.make_directory("packs")
    file = transport.create(path)
    writer = PackWriter(file, KINDS)
    for revision in revisions:
        writer.append(revision.segment())
    length, digest = writer.finish()
    file.sync()
    file.close()
    reader = PackReader(transport.open_read(path), length, path)
    content = rebuild(reader, before.first_row if before is not None else nowhere)
    transport.put(index_path(name), (content,))
    listed = list(revisions)
    return PackEntry(
        name, length, digest, len(content), content[-16:], len(listed), sum(len(rev.records) for rev in listed)
    )


@dataclass
class Stored:
    """A repository's packs on a memory transport, and the state that names them."""

    transport: Transport = field(default_factory=MemoryTransport)
    entries: list[PackEntry] = field(default_factory=list)
    revisions: list[Revision] = field(default_factory=list)
    version: int = 1

    def state(self) -> State:
        packs = tuple(self.entries)
        return State(self.version, bytes(16), incarnation=b"i" * 16, vcs="bzr 2a", kinds=KINDS, packs=packs)

    def add(self, revisions: Sequence[Revision], previous: Snapshot | None = None) -> Snapshot:
        """One more pack."""
        before = Snapshot.open(self.transport, self.state(), previous)
        name = hashlib.blake2b(b"%d" % len(self.entries), digest_size=16).digest()
        self.entries.append(write_pack(self.transport, revisions, name, before))
        self.revisions += revisions
        self.version += 1
        return Snapshot.open(self.transport, self.state(), before)


def stored(packs: Sequence[int]) -> Stored:
    """One line of history over packs of so many revisions each."""
    made = Stored()
    revisions = history(sum(packs))
    snapshot = None
    for count in packs:
        snapshot = made.add(revisions[:count], snapshot)
        del revisions[:count]
    return made


def opened(made: Stored, texts: TextCache | None = None) -> Snapshot:
    return Snapshot.open(made.transport, made.state(), None, texts)


def every_record(made: Stored) -> Iterator[tuple[Revision, Record]]:
    for revision in made.revisions:
        for record, _ in revision.records:
            yield revision, record
