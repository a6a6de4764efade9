"""Which earlier text a record is encoded against, and the segments a client sends.

The rule of a base, on both ends: it was introduced by the same revision or an ancestor and lies before the record. What
the caller names as a candidate (the version of the path in a parent) is such a record by itself; whatever is chosen
here beyond that is looked up in the ancestry of the push.

In a bulk push chains are cut short by skipping: the n-th version of a path rests on the version d before it, d the
largest power of 32 that divides n. So a chain of a million versions is 124 deep at most, while 31 of 32 records rest on
their direct predecessor, which makes the smallest frame. A push of a few revisions cannot know n and rests on the
predecessor; the server, which does, encodes a record anew when it lies too deep.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from smartserver.records import delta, limits
from smartserver.records.check import check_bytes, make_check
from smartserver.records.model import Announced, BaseTag, Entry, Key, Kind, Parent, RevisionId, made
from smartserver.records.segment import STORED, encode_segment

SKIP: Final = 32
"""The k of the skip chains. 16, 32 and 64 make 71.5, 67.5 and 64.1 MB of one history, at depths to 45, 77 and 136."""

CANDIDATES: Final = 2
"""Parents whose version is tried, both always: of 45,000 tries in one history a limit on the first frame spares 1 %."""

SIBLINGS: Final = 5
"""Newest files of the same folder and extension that a text without predecessor is probed against."""

_SIBLING_DEPTH: Final = 64
_SIBLINGS_KEPT: Final = 20
_LEAST_SIBLING: Final = 64
"""Bytes of text: a smaller one cannot gain what the base's key costs."""


class _Looks(NamedTuple):
    """How frames on a base are made in bulk: at a low level first, which for most is enough, then at a better one."""

    least: int
    """Bytes of text and base together from which there is a first look."""
    first: int
    """Its level."""
    enough: int
    """Bytes up to which its frame stays; a longer one is made again."""
    second: int
    """The level of the second look."""


_LARGE_FIRST: Final = _Looks(128 << 10, 3, 1000, delta.BULK_LEVEL)
"""Of texts of any kind: one in eighteen is so large with its base, and they took two fifths of the time
(doc/design/0005)."""

_ALIKE: Final = _Looks(0, 1, 2000, 5)
"""Of texts that are nearly their bases: doc/design/0010, *Levels*."""

_FRAME_CACHE: Final = 32 << 20
"""Bytes of frames kept to be used again for further copies of a record."""

Texts = Callable[[int, Key], bytes]
"""The text of a record that is no longer, or was never, held here: kind and key."""


class Candidate(NamedTuple):
    """The version of a record's path in a parent of its revision; without `text` it is asked for when needed."""

    key: Key
    text: bytes | None = None


class NewRecord(NamedTuple):
    """A record to send; `candidates`: at most one for each of the first two parents, in their order."""

    kind: int
    key: Key
    meta: bytes
    text: bytes
    candidates: Sequence[Candidate] = ()
    path: bytes = b""
    """Its place in the tree, by which siblings are found; empty: none are looked for."""


class Repeated(NamedTuple):
    """A record to send whose key was sent before in this push; its text is asked for only if it is needed."""

    kind: int
    key: Key
    meta: bytes
    candidates: Sequence[Candidate] = ()
    path: bytes = b""


def skip_distance(number: int) -> int:
    """How many versions back the base of the version of this number (1, 2, ...) lies: a power of 32."""
    distance = 1
    while number % (distance * SKIP) == 0:
        distance *= SKIP
    return distance


class _Version:
    """A record that was sent, or that a parent of what is sent has; there is one for all copies of a key."""

    __slots__ = ("base", "chain", "depth", "encoding", "key", "number", "path", "size", "where")

    def __init__(self, key: Key, size: int, base: _Version | None, number: int, encoding: int, path: bytes) -> None:
        self.key = key
        self.size = size
        self.base = base
        self.number = number
        self.encoding = encoding
        self.path = path
        self.depth: int = base.depth + 1 if base is not None else 0
        self.chain: int = (base.chain if base is not None else 0) + size
        self.where: list[int] = []
        """Ordinals of the revisions of this push that introduced it; empty: it was there before."""


class _Choice(NamedTuple):
    """How a record could be encoded; `cost` counts the bytes that name the base."""

    encoding: int
    frame: bytes
    base: _Version | None
    number: int
    cost: int
    length: int
    """Bytes of the text."""


class SegmentWriter:
    """Makes the segments of one push, revision after revision, parents first.

    `bulk`: a push of much history, see the module. `texts` gives the texts that candidates come without, and again
    those that were dropped from the cache of `cache` bytes. `alike`: records differ little from their bases, so that in
    bulk most frames need no good level.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        *,
        bulk: bool,
        texts: Texts,
        cache: int = limits.TEXT_CACHE,
        alike: bool = False,
    ) -> None:
        self._kinds = tuple(kinds)
        self._bulk = bulk
        self._looks = (_ALIKE if alike else _LARGE_FIRST) if bulk else None
        self._level = delta.BULK_LEVEL if bulk else delta.LEVEL
        self._fetch = texts
        self._texts = _ByteCache(cache)
        self._frames = _ByteCache(_FRAME_CACHE)
        self._versions: dict[tuple[int, Key], _Version] = {}
        self._siblings: dict[tuple[int, bytes, bytes], OrderedDict[bytes, _Version]] = {}
        self._ancestry = _Ancestry()
        self._reach = 0

    def begin(self, graph: Iterable[Announced]) -> None:
        """Say all revisions to come, so that what is known of a revision is dropped after its last child."""
        self._ancestry.begin(graph)

    def segment(self, revision: RevisionId, parents: Sequence[Parent], items: Sequence[NewRecord | Repeated]) -> bytes:
        """The whole segment of a revision that introduced `items`.

        Raises:
            LimitExceeded: the segment is over its limit.
        """
        ordinal, self._reach = self._ancestry.step(revision, parents)
        places = {parent.id: BaseTag.parent(n) for n, parent in reversed(list(enumerate(parents))) if not parent.absent}
        near: list[dict[Key, int]] = [dict(places) for _ in self._kinds]
        entries: list[Entry] = []
        frames: list[bytes] = []
        for n, item in enumerate(items):
            tags = near[item.kind]
            record, choice = self._settle(item, tags)
            base, tag, base_key = choice.base, BaseTag.NONE, b""
            if base is not None:
                tag = tags.get(base.key, BaseTag.FULL_KEY)
                base_key = base.key if tag == BaseTag.FULL_KEY else b""
            kind, key, meta = record[:3]
            of_kind, frame = self._kinds[kind], choice.frame
            check = make_check(of_kind, key, meta, record.text) if isinstance(record, NewRecord) else b""
            entry = (kind, choice.encoding, key, meta, tag, base_key, choice.length, len(frame), check)
            entries.append(made(Entry, entry))
            frames.append(frame)
            tags[key] = BaseTag.entry(n)
            if of_kind.base:
                self._keep(record, choice, ordinal)
        return encode_segment(revision, parents, entries, frames, self._kinds)

    def _settle(self, item: NewRecord | Repeated, tags: dict[Key, int]) -> tuple[NewRecord | Repeated, _Choice]:
        """A record and how it is encoded; one that is repeated gets its text where its frame cannot be used again."""
        if isinstance(item, Repeated):
            # A check that is not the key is made of the text.
            again = None if check_bytes(self._kinds[item.kind]) else self._again(item)
            if again is not None:
                return item, again
            item = NewRecord(
                item.kind, item.key, item.meta, self._text(item.kind, item.key), item.candidates, item.path
            )
        return item, self._encode(item, tags)

    def _encode(self, record: NewRecord, tags: dict[Key, int]) -> _Choice:
        if not self._kinds[record.kind].base:
            return self._alone(record)
        again = self._again(record)
        if again is not None:
            return again
        best = self._from_candidates(record, tags)
        if best is not None and (best.encoding == STORED or best.cost * 2 <= len(record.text)):
            return best
        alone = self._alone(record)
        # In bulk a little is paid for a full text, which makes every read of what follows cheaper.
        if best is not None and alone.cost * 10 >= best.cost * (11 if self._bulk else 10):
            return best
        if best is None and alone.encoding != STORED:
            return self._from_siblings(record, alone, tags) or alone
        return alone

    def _alone(self, record: NewRecord) -> _Choice:
        encoding, frame = delta.compress(record.text, level=self._level)
        return made(_Choice, (encoding, frame, None, 0, len(frame), len(record.text)))

    def _again(self, record: NewRecord | Repeated) -> _Choice | None:
        """The frame of an earlier copy of the record, where its base is one of this revision also."""
        version = self._versions.get((record.kind, record.key))
        if version is None or not version.where:
            return None
        if version.base is None:
            if record.candidates:
                return None
        elif not self._is_ancestral(version.base):
            return None
        frame = self._frames.get((record.kind, record.key))
        if frame is None:
            return None
        return _Choice(version.encoding, frame, version.base, version.number, len(frame), version.size)

    def _from_candidates(self, record: NewRecord, tags: dict[Key, int]) -> _Choice | None:
        best = None
        for candidate in record.candidates[:CANDIDATES]:
            if candidate.key == record.key:
                continue
            version = self._version(record.kind, candidate)
            number = version.number + 1
            base = self._skip(version, number) if self._bulk else version
            if base.key == record.key:
                base = version
            choice = self._against(record, base, number, tags)
            if choice is None:
                continue
            if best is None or choice.cost < best.cost:
                best = choice
            if choice.encoding == STORED:
                break
        return best

    def _against(self, record: NewRecord, base: _Version, number: int, tags: dict[Key, int]) -> _Choice | None:
        if base.depth >= limits.MAX_DEPTH or base.chain + len(record.text) > limits.MAX_CHAIN // 2:
            return None
        text = self._text(record.kind, base.key)
        if not delta.usable_base(record.text, text):
            return None
        looks = self._looks
        if looks is None or len(record.text) + len(text) < looks.least:
            encoding, frame = delta.compress(record.text, text, self._level)
        else:
            encoding, frame = delta.compress(record.text, text, looks.first)
            if len(frame) > looks.enough:
                encoding, frame = delta.compress(record.text, text, looks.second)
        if encoding == STORED:
            return _Choice(encoding, frame, None, 0, len(frame), len(record.text))
        named = 0 if base.key in tags else len(base.key) + 1
        return made(_Choice, (encoding, frame, base, number, len(frame) + named, len(record.text)))

    def _from_siblings(self, record: NewRecord, alone: _Choice, tags: dict[Key, int]) -> _Choice | None:
        """The best of the newest siblings, when it saves a tenth of what the record costs alone."""
        if not record.path or len(record.text) < _LEAST_SIBLING:
            return None
        best: _Version | None = None
        least = delta.probe(record.text)
        tried = 0
        for sibling in reversed(self._siblings.get(_folder_and_extension(record), {}).values()):
            if sibling.depth >= _SIBLING_DEPTH or sibling.key == record.key or not self._is_ancestral(sibling):
                continue
            text = self._text(record.kind, sibling.key)
            if delta.usable_base(record.text, text):
                size = delta.probe(record.text, text)
                if size < least:
                    best, least = sibling, size
            tried += 1
            if tried == SIBLINGS:
                break
        if best is None:
            return None
        choice = self._against(record, best, best.number + 1, tags)
        return choice if choice is not None and choice.cost * 10 <= alone.cost * 9 else None

    def _skip(self, version: _Version, number: int) -> _Version:
        """The base the chain's rule names for the successor of `version`, or `version` itself."""
        target = number - skip_distance(number)
        base = version
        while base.number > target and base.base is not None:
            base = base.base
        return base if base is version or self._is_ancestral(base) else version

    def _is_ancestral(self, version: _Version) -> bool:
        """Whether the revision at hand or an ancestor in this push introduced it."""
        reach = self._reach
        return any(reach >> ordinal & 1 for ordinal in version.where)

    def _version(self, kind: int, candidate: Candidate) -> _Version:
        version = self._versions.get((kind, candidate.key))
        if candidate.text is not None:
            self._texts.put((kind, candidate.key), candidate.text)
        if version is None:
            size = len(self._text(kind, candidate.key))
            version = self._versions[kind, candidate.key] = _Version(candidate.key, size, None, 0, STORED, b"")
        return version

    def _text(self, kind: int, key: Key) -> bytes:
        text = self._texts.get((kind, key))
        if text is None:
            text = self._fetch(kind, key)
            self._texts.put((kind, key), text)
        return text

    def _keep(self, record: NewRecord | Repeated, choice: _Choice, ordinal: int) -> None:
        name = (record.kind, record.key)
        version = self._versions.get(name)
        if version is None:
            version = self._versions[name] = _Version(
                record.key, choice.length, choice.base, choice.number, choice.encoding, record.path
            )
            self._frames.put(name, choice.frame)
            if isinstance(record, NewRecord):
                self._texts.put(name, record.text)
        version.where.append(ordinal)
        if record.path:
            place = _folder_and_extension(record)
            siblings = self._siblings.get(place)
            if siblings is None:
                siblings = self._siblings[place] = OrderedDict()
            siblings[record.path] = version
            siblings.move_to_end(record.path)
            if len(siblings) > _SIBLINGS_KEPT:
                siblings.popitem(last=False)


def _folder_and_extension(record: NewRecord | Repeated) -> tuple[int, bytes, bytes]:
    folder, _, name = record.path.rpartition(b"/")
    return record.kind, folder, name.rpartition(b".")[2]


class _ByteCache:
    """Byte strings by name, up to `room` bytes of them; the least recently used are dropped."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: OrderedDict[tuple[int, Key], bytes] = OrderedDict()

    def get(self, name: tuple[int, Key]) -> bytes | None:
        found = self._held.get(name)
        if found is not None:
            self._held.move_to_end(name)
        return found

    def put(self, name: tuple[int, Key], value: bytes) -> None:
        held = self._held
        old = held.get(name)
        if old is not None:
            self._room += len(old)
            held.move_to_end(name)
        held[name] = value
        self._room -= len(value)
        while self._room < 0:
            self._room += len(held.popitem(last=False)[1])


class _Ancestry:
    """For each revision of a push all its ancestors in the push, as bits of an integer, while children are to come."""

    def __init__(self) -> None:
        self._ordinals: dict[RevisionId, int] = {}
        self._children: dict[RevisionId, int] | None = None
        self._reach: dict[RevisionId, int] = {}

    def begin(self, graph: Iterable[Announced]) -> None:
        children: dict[RevisionId, int] = {}
        for _, parents in graph:
            for parent in parents:
                children[parent.id] = children.get(parent.id, 0) + 1
        self._children = children

    def step(self, revision: RevisionId, parents: Sequence[Parent]) -> tuple[int, int]:
        """The ordinal of `revision`, and the bits of itself and its ancestors."""
        ordinal = self._ordinals.setdefault(revision, len(self._ordinals))
        reach = 1 << ordinal
        for parent in parents:
            if not parent.absent:
                reach |= self._reach.get(parent.id, 0)
        self._reach[revision] = reach
        if self._children is not None:
            for parent in parents:
                left = self._children[parent.id] = self._children.get(parent.id, 0) - 1
                if not left:
                    self._reach.pop(parent.id, None)
            if revision not in self._children:
                del self._reach[revision]
        return ordinal, reach
