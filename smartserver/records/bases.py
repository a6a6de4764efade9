"""Chooses the base of each record, and makes the segments that a client sends.

Both ends require of a base that it was introduced by the same revision or an ancestor, and comes before the record. The
candidates that the caller names (the versions of the path in the parents) always obey this rule. Any other base
that is chosen here is looked up in the ancestry of the push.

In a bulk push, skipping keeps chains short: the base of the n-th version of a path is the version d before it, where d
is the largest power of 32 that divides n. So a chain of a million versions is at most 124 deep. Still, the base of 31
of 32 records is the previous version, which makes the smallest frame. A push of a few revisions does not know n and
uses the previous version. The server knows n, and encodes a record again if its chain is too deep.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from smartserver.errors import LimitExceeded
from smartserver.records import delta, limits
from smartserver.records.cache import Cache
from smartserver.records.check import check_bytes, make_check
from smartserver.records.hunks import Hunk, encode_hunks, single_hunk
from smartserver.records.model import BaseTag, Entry, Key, Kind, Parent, RevisionId, made
from smartserver.records.native import twin
from smartserver.records.segment import HUNKS, STORED, encode_header
from smartserver.records.sent import SentAncestry, SentVersion

SKIP: Final = 32
"""The factor between skip distances. With 16, 32 and 64, one history takes 71.5, 67.5 and 64.1 MB, and its deepest
chains have 45, 77 and 136 bases."""

CANDIDATES: Final = 2
"""The number of parents whose version is tried as a base. Both are always tried, because stopping at a short first
frame would save only 1 % of the 45,000 tries in one history."""

FEW: Final = 64
"""The most bytes that a hunk may add to its base if a text is sent as this one hunk: zstd would not make it shorter. A
third of the records of one history are sent so; its first push takes a tenth less of the client's time, and 2 % fewer
bytes."""

SIBLINGS: Final = 5
"""The number of files of the same folder and extension, newest first, that are tried as the base of a text without
candidates."""

_SIBLING_DEPTH: Final = 64
_SIBLINGS_KEPT: Final = 20
_LEAST_SIBLING: Final = 64
"""The fewest bytes of a text for which siblings are tried: a smaller text cannot save the bytes of the base's key."""

_FRAME_CACHE: Final = 32 << 20
"""The most bytes of frames that are cached, to send further copies of their records."""

_ENTRY: Final = 250
"""Bytes that an entry of a cache takes besides its value, for its key and its place in the dictionary (measured: 240).
Frames have 200 bytes on average, so about half of the cost is for frames."""


def _cost(value: bytes) -> int:
    return len(value) + _ENTRY


Differences = Callable[[int, Key, Key], Sequence[Hunk]]
"""A function that returns the hunks of a record against its base, given their kind, the record's key and the base's
key."""

Texts = Callable[[int, Key], bytes]
"""A function that returns the text of a record that is not in the cache, given its kind and key."""


class Candidate(NamedTuple):
    """The version of a record's path in a parent of its revision. If `text` is None, it is read when needed."""

    key: Key
    text: bytes | None = None


class NewRecord(NamedTuple):
    """A record to send. `candidates`: at most one for each of the first two parents, in the parents' order."""

    kind: int
    key: Key
    meta: bytes
    text: bytes
    candidates: Sequence[Candidate] = ()
    path: bytes = b""
    """The path of the record in the tree, by which sibling bases are found. If it is empty, no siblings are
    searched."""
    parts: delta.TextParts | None = None
    """The text in parts, if it is too large to have a base. The key must then prove the text."""


class HeldRecord(NamedTuple):
    """A record to send whose text is read by `texts` only if it is needed.

    The text is not needed if the key proves it, and either the key was sent before in this push, or hunks against a
    candidate are short enough.
    """

    kind: int
    key: Key
    meta: bytes
    candidates: Sequence[Candidate] = ()
    path: bytes = b""
    length: int = 0
    """The length of the text in bytes, if `hunks` can return its differences from the candidates; else 0."""


AnyRecord = NewRecord | HeldRecord


def skip_distance(number: int) -> int:
    """Return the distance, in versions, from version `number` (1, 2, ...) back to its base: a power of 32."""
    distance = 1
    while number % (distance * SKIP) == 0:
        distance *= SKIP
    return distance


class _Choice(NamedTuple):
    """A possible encoding of a record. `cost`: the bytes of the frame and of the base's key."""

    encoding: int
    frame: bytes
    base: SentVersion | None
    number: int
    cost: int
    length: int
    """The length of the record's text in bytes."""
    parts: Sequence[bytes] = ()
    """The frame of a text in parts."""


@twin
class SegmentWriter:
    """Makes the segments of one push, revision after revision, parents first.

    `bulk`: True for a push of a long history, see the module. `texts`: reads texts that candidates lack, or that were
    dropped from the cache of `cache` bytes. `hunks`: returns the differences of held records from their bases.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        *,
        bulk: bool,
        texts: Texts,
        cache: int = limits.TEXT_CACHE,
        hunks: Differences | None = None,
    ) -> None:
        self._kinds = tuple(kinds)
        self._bulk = bulk
        self._hunks = hunks
        self._level = delta.BULK_LEVEL if bulk else delta.LEVEL
        self._fetch = texts
        self._texts = Cache[tuple[int, Key], bytes](cache, _cost)
        self._frames = Cache[tuple[int, Key], bytes](_FRAME_CACHE, _cost)
        self._versions: dict[tuple[int, Key], SentVersion] = {}
        self._made: list[list[bytes] | LimitExceeded] = []
        self._siblings: dict[tuple[int, bytes, bytes], OrderedDict[bytes, SentVersion]] = {}
        self._ancestry = SentAncestry()
        self._reach = 0

    def segment(self, revision: RevisionId, parents: Sequence[Parent], items: Iterable[AnyRecord]) -> bytes:
        """Make the segment of a revision that introduced `items`.

        Raises:
            LimitExceeded: the segment is over its limit.
        """
        return b"".join(self.parts(revision, parents, items))

    def parts(self, revision: RevisionId, parents: Sequence[Parent], items: Iterable[AnyRecord]) -> list[bytes]:
        """Make the segment of a revision in parts: frames that were made in parts are not joined.

        Raises:
            LimitExceeded: as in `segment`.
        """
        ordinal, self._reach = self._ancestry.step(revision, parents)
        places = {parent.id: BaseTag.parent(n) for n, parent in reversed(list(enumerate(parents))) if not parent.absent}
        near: list[dict[Key, int]] = [dict(places) for _ in self._kinds]
        entries: list[Entry] = []
        joined: list[bytes] = []
        frames: list[bytes] = []
        """The frames that are not joined yet."""
        size = 0
        for n, item in enumerate(items):
            tags = near[item.kind]
            version = self._versions.get(item[:2])
            record, choice = self._settle(item, version, tags)
            kind, key, meta = record[:3]
            if choice.parts:
                joined += [b"".join(frames), *choice.parts]
                frames = []
            tag, base_key = BaseTag.NONE, b""
            if choice.base is not None:
                base_key = choice.base.key
                tag = tags.get(base_key, BaseTag.FULL_KEY)
                if tag != BaseTag.FULL_KEY:
                    base_key = b""
            of_kind, frame = self._kinds[kind], choice.frame
            check = make_check(of_kind, key, meta, record.text) if isinstance(record, NewRecord) else b""
            frame_length = choice.cost if choice.parts else len(frame)
            entry = (kind, choice.encoding, key, meta, tag, base_key, choice.length, frame_length, check)
            entries.append(made(Entry, entry))
            size += frame_length
            frames.append(frame)
            tags[key] = BaseTag.entry(n)
            if of_kind.base:
                self._keep(record, version, choice, ordinal)
        header = encode_header(revision, parents, entries, size, self._kinds)
        if not joined:
            return [b"".join((header, *frames))]
        return [part for part in (header + joined[0], *joined[1:], b"".join(frames)) if part]

    def put(self, revision: RevisionId, parents: Sequence[Parent], items: Sequence[AnyRecord]) -> None:
        """Start to build the parts of a segment. The native twin does so in a thread, which calls `texts` and `hunks`.
        Until all segments are taken, only `put`, `take` and `abandon` may be called."""
        try:
            self._made.append(self.parts(revision, parents, items))
        except LimitExceeded as error:
            self._made.append(error)

    def take(self, wait: bool) -> list[list[bytes]]:
        """Return the parts of finished segments, in the order of `put`. `wait`: True to wait until all segments are
        finished.

        Raises:
            LimitExceeded: the next segment is over its limit; no more segments are made.
        """
        made: list[list[bytes]] = []
        while self._made:
            parts = self._made.pop(0)
            if isinstance(parts, list):
                made.append(parts)
                continue
            if not made:
                raise parts
            self._made.insert(0, parts)
            break
        return made

    def abandon(self) -> None:
        """Drop all segments, and end the native twin's thread, so that `texts` and `hunks` are not called any more. The
        writer must not be used afterwards."""
        self._made.clear()

    def _settle(self, item: AnyRecord, version: SentVersion | None, tags: dict[Key, int]) -> tuple[AnyRecord, _Choice]:
        """Choose the encoding of a record. Return the record and the choice. If the text of a `HeldRecord` is needed,
        read it and return a `NewRecord` in its place."""
        if isinstance(item, HeldRecord):
            kind, key, meta, candidates, path, length = item
            if not check_bytes(self._kinds[kind]):  # Else the text is needed to make the check.
                again = self._again(item, version)
                if again is not None:
                    return item, again
                choice = self._from_candidates(item, tags) if length else None
                if choice is not None and choice.cost * 2 <= length:
                    return item, choice
            item = NewRecord(kind, key, meta, self._text(kind, key), candidates, path)
        return item, self._encode(item, version, tags)

    def _encode(self, record: NewRecord, version: SentVersion | None, tags: dict[Key, int]) -> _Choice:
        if record.parts is not None:
            encoding, parts = delta.compress_parts(record.parts)
            return _Choice(encoding, b"", None, 0, sum(map(len, parts)), record.parts.length, parts)
        if not self._kinds[record.kind].base:
            return self._alone(record)
        again = self._again(record, version)
        if again is not None:
            return again
        best = self._from_candidates(record, tags)
        if best is not None and (best.encoding == STORED or best.cost * 2 <= len(record.text)):
            return best
        alone = self._alone(record)
        # In bulk a full text may be a tenth larger, as it makes every read of later versions cheaper.
        if best is not None and alone.cost * 10 >= best.cost * (11 if self._bulk else 10):
            return best
        if best is None and alone.encoding != STORED:
            return self._from_siblings(record, alone, tags) or alone
        return alone

    def _alone(self, record: NewRecord) -> _Choice:
        encoding, frame = delta.compress(record.text, level=self._level)
        return _Choice(encoding, frame, None, 0, len(frame), len(record.text))

    def _again(self, record: AnyRecord, version: SentVersion | None) -> _Choice | None:
        """Reuse the frame of an earlier copy of the record, if its base is also allowed for this revision. Otherwise
        return None."""
        if version is None or not version.revisions:
            return None
        if record.candidates if version.base is None else not version.base.is_in(self._reach):
            return None
        frame = self._frames.get((record.kind, record.key))
        if frame is None:
            return None
        return _Choice(version.encoding, frame, version.base, version.number, len(frame), version.size)

    def _from_candidates(self, record: AnyRecord, tags: dict[Key, int]) -> _Choice | None:
        best = None
        for candidate in record.candidates[:CANDIDATES]:
            if candidate.key == record.key:
                continue
            version = self._version(record.kind, candidate)
            number = version.number + 1
            base = self._skip(version, number) if self._bulk else version
            choice = self._against(record, version if base.key == record.key else base, number, tags)
            if choice is None:
                continue
            if best is None or choice.cost < best.cost:
                best = choice
            if choice.encoding == STORED:
                break
        return best

    def _against(self, record: AnyRecord, base: SentVersion, number: int, tags: dict[Key, int]) -> _Choice | None:
        """Encode a record against a base; return None if the base cannot be used."""
        length = record.length if isinstance(record, HeldRecord) else len(record.text)
        if base.is_too_deep(length):
            return None
        found = self._hunks_on(record, base) if isinstance(record, HeldRecord) else self._frame_on(record, base)
        if found is None:
            return None
        encoding, frame = found
        if encoding == STORED:
            return _Choice(encoding, frame, None, 0, len(frame), length)
        named = 0 if base.key in tags else len(base.key) + 1
        return _Choice(encoding, frame, base, number, len(frame) + named, length)

    def _frame_on(self, record: NewRecord, base: SentVersion) -> tuple[int, bytes] | None:
        """Return the encoding and frame of a text against a base; None if the base cannot be used."""
        text = self._text(record.kind, base.key)
        if not delta.usable_base(record.text, text):
            return None
        # With `hunks` of a tool, clients store hunks as that tool's deltas, which may have their own rules.
        hunk = single_hunk(record.text, text, FEW) if self._hunks is None else None
        if hunk is not None:
            return HUNKS, hunk
        return delta.compress(record.text, text, self._level)

    def _hunks_on(self, record: HeldRecord, base: SentVersion) -> tuple[int, bytes] | None:
        """Return the encoding and frame of the hunks of a held record; None without `hunks`, or if they are too
        long."""
        if self._hunks is None:
            return None
        hunks = encode_hunks(self._hunks(record.kind, record.key, base.key))
        return delta.pack_hunks(hunks) if len(hunks) <= limits.MAX_HUNKS else None

    def _from_siblings(self, record: NewRecord, alone: _Choice, tags: dict[Key, int]) -> _Choice | None:
        """Encode a record against the best of its newest siblings. Return None if that does not save a tenth of the
        cost of `alone`."""
        if not record.path or len(record.text) < _LEAST_SIBLING:
            return None
        best = None
        least = delta.probe(record.text)
        tried = 0
        for sibling in reversed(self._siblings.get(_folder_and_extension(record), {}).values()):
            if sibling.depth >= _SIBLING_DEPTH or not sibling.is_in(self._reach) or sibling.key == record.key:
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

    def _skip(self, version: SentVersion, number: int) -> SentVersion:
        """Return the base that `skip_distance` gives for version `number`, the successor of `version`; `version` itself
        if that base is not in an ancestor."""
        target = number - skip_distance(number)
        base = version
        while base.number > target and base.base is not None:
            base = base.base
        return base if base.is_in(self._reach) else version

    def _version(self, kind: int, candidate: Candidate) -> SentVersion:
        name = kind, candidate.key
        if candidate.text is not None:
            self._texts.put(name, candidate.text)
        version = self._versions.get(name)
        if version is None:
            version = SentVersion(candidate.key, len(self._text(*name)), None, 0, STORED)
            self._versions[name] = version
        return version

    def _text(self, kind: int, key: Key) -> bytes:
        text = self._texts.get((kind, key))
        if text is None:
            text = self._fetch(kind, key)
            self._texts.put((kind, key), text)
        return text

    def _keep(self, record: AnyRecord, version: SentVersion | None, choice: _Choice, ordinal: int) -> None:
        if version is None:
            name = record.kind, record.key
            version = SentVersion(record.key, choice.length, choice.base, choice.number, choice.encoding)
            self._versions[name] = version
            if not choice.parts:
                self._frames.put(name, choice.frame)
                if isinstance(record, NewRecord):
                    self._texts.put(name, record.text)
        version.revisions.append(ordinal)
        if record.path:
            place = _folder_and_extension(record)
            siblings = self._siblings.get(place)
            if siblings is None:
                siblings = self._siblings[place] = OrderedDict()
            siblings[record.path] = version
            siblings.move_to_end(record.path)
            if len(siblings) > _SIBLINGS_KEPT:
                siblings.popitem(last=False)


def _folder_and_extension(record: AnyRecord) -> tuple[int, bytes, bytes]:
    folder, _, name = record.path.rpartition(b"/")
    return record.kind, folder, name.rpartition(b".")[2]
