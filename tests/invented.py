"""A version-control system that exists nowhere else: `slate 1`, whose pages are lines of text, and a history of it.

A note is a revision: its key is the hash of its text, which names its parents and its pages. Importing this registers
the system; nothing of ours knows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate
from smartserver.errors import NoSuchPart
from smartserver.records.bases import Candidate, NewRecord, SegmentWriter
from smartserver.records.check import KeyCheck, verify_record
from smartserver.records.content import ReadPlan, ReadScope, RepositoryView, as_graph
from smartserver.records.delta import decompress
from smartserver.records.model import GraphNode, Key, Kind, Parent, RevisionId
from smartserver.records.segment import SegmentStream, decode_segment, frames
from smartserver.records.system import References, System, register
from smartserver.verbs.repository_list import ListRequest, RepositoryField, repository_list
from smartserver.verbs.repository_pack import PackRequest, repository_pack
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify

NOTE, PAGE = 0, 1
BRANCH: Final = b"trunk"


def note_key(meta: bytes, text: bytes) -> Key:
    return b"note " + hashlib.sha3_256(meta + b"\n" + text).digest()


class Slate(System):
    name = "slate 1"
    kinds = (Kind("note", "slate-key", True), Kind("page", "blake2b-128", True))
    keys = {
        "slate-key": KeyCheck(lambda _, meta, __: hashlib.sha3_256(meta + b"\n"), lambda _, digest: b"note " + digest)
    }
    own_kind = NOTE
    ghosts = False

    def ref_problem(self, name: bytes) -> str:
        return "" if name.isalpha() else "letters are all that a slate takes"

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        return tuple(b"note " + bytes.fromhex(word[7:]) for word in text.decode().split() if word.startswith("parent="))

    def may_refer(self, kind: int, meta: bytes) -> bool:
        return kind == NOTE

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        return ((PAGE, None, [word[5:].encode() for word in text.decode().split() if word.startswith("page=")]),)

    def read(self, stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
        """The graph of the notes that are wanted; says the page of that number."""
        page = stored.record(PAGE, selector)
        if page is None:
            raise NoSuchPart(f"no page {selector.decode()}")
        notes = [each for note in question.wants if (each := stored.ordinal(note)) is not None]
        had = [each for note in question.haves if (each := stored.ordinal(note)) is not None]
        return ReadPlan(page.text, pieces=as_graph(stored.reached(notes, had)))


SLATE: Final = Slate()
register(SLATE)
NEW: Final = NewRepository(SLATE.name, SLATE.kinds)


class Slates:
    """Notes in a row, each with a page that has one line more; it is the source of a push of them, and its plan."""

    def __init__(self, count: int, *, forgets: int = -1) -> None:
        """`forgets`: the note that comes without its page."""
        self.texts: dict[tuple[int, Key], bytes] = {}
        self.notes: list[RevisionId] = []
        self._forgets = forgets
        self._had = 0
        for number in range(count):
            self.texts[PAGE, b"%d" % number] = b"".join(b"line %d of a slate\n" % line for line in range(number + 20))
            text = "".join([f"parent={note[5:].hex()}\n" for note in self.notes[-1:]] + [f"page={number}\n"]).encode()
            self.notes.append(note_key(b"", text))
            self.texts[NOTE, self.notes[-1]] = text

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Slates:
        known = [self.notes.index(have) + 1 for have in haves if have in self.notes]
        self._had = max(known, default=0)
        return self

    @property
    def graph(self) -> Sequence[GraphNode]:
        return [GraphNode(self.notes[at], self._parents(at)) for at in range(self._had, len(self.notes))]

    def _parents(self, at: int) -> tuple[Parent, ...]:
        return tuple(Parent(note) for note in self.notes[max(0, at - 1) : at])

    def segments(self) -> Iterator[bytes]:
        writer = SegmentWriter(SLATE.kinds, bulk=False, texts=lambda kind, key: self.texts[kind, key])
        for at in range(self._had, len(self.notes)):
            page, before = b"%d" % at, [Candidate(b"%d" % (at - 1))] if at else []
            items = [NewRecord(NOTE, self.notes[at], b"", self.texts[NOTE, self.notes[at]])]
            if at != self._forgets:
                items.append(NewRecord(PAGE, page, b"", self.texts[PAGE, page], before))
            yield writer.segment(self.notes[at], self._parents(at), items)

    def without_bases(self, keys: Collection[Key]) -> Slates:
        return self


def texts_of(body: Iterable[bytes]) -> dict[tuple[int, Key], bytes]:
    """The records of whole segments, each proved."""
    found: dict[tuple[int, Key], bytes] = {}
    stream = SegmentStream(graph_first=False)
    for chunk in body:
        stream.feed(chunk)
        for whole in stream.segments():
            segment = decode_segment(whole, 0, SLATE.kinds)
            for entry, frame in zip(segment.entries, frames(segment, whole), strict=True):
                base = found.get((entry.kind, segment.base_of(entry)), b"")
                text = decompress(entry.encoding, frame, entry.length, base)
                verify_record(SLATE.kinds[entry.kind], entry.key, entry.meta, text, entry.check)
                found[entry.kind, entry.key] = text
    stream.finish()
    return found


def use(client: Client, path: str) -> None:
    """Push, push on, pull, verify, repack and list a repository of it."""
    remote = RemoteRepository(client, path, Knowledge(None, path))
    slates = Slates(12)
    for tip in (slates.notes[5], slates.notes[11]):
        part = Slates(slates.notes.index(tip) + 1)
        (done,) = remote.push(PushRequest([RefUpdate(BRANCH, tip)], part, NEW)).refs
        assert done.outcome is Outcome.DONE
    assert texts_of(RemoteRepository(client, path, Knowledge(None, path)).pull().body) == slates.texts
    for packs in (2, 1):
        verified = client.call(repository_verify, VerifyRequest(), path)
        assert (verified.packs, verified.segments, verified.records, verified.problems) == (packs, 12, 24, [])
        packed = client.call(repository_pack, PackRequest(), path)
        assert (packed.before, packed.after) == (packs, 1)
    listed = client.call(repository_list, ListRequest(refs=True), path)
    assert listed.repositories == [RepositoryField(path, SLATE.name, 1, [BRANCH])]
