"""Copies one repository of ours into another: its refs, or those named, with their revisions, tags and maps.

A copy is a push, so what the target has already is not sent. `CopySource` is what the source has, a `PushSource` reads
its revisions; `pull` gets both from another `RemoteRepository`.

Maps that are not told with the refs (`System.untold`) are copied last, in requests of their own: the target is asked
which of the entries it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from smartserver.client.body import OnSent, Relay, SourceFailed, of_source
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest, PushSource
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome, RefUpdate
from smartserver.errors import CorruptRecord, MissingReference, NoSuchRepository, WrongParents, shown
from smartserver.records.model import Plan, RefValue, RevisionId
from smartserver.records.system import system_of
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest
from smartserver.verbs.rules import Growth, Rule
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_HAVES, MAX_REQUEST

HEADS, TAGS = b"refs/heads/", b"refs/tags/"
"""What a short name of a ref may lack in front."""

AT_ONCE: Final = MAX_REQUEST // 2
"""Bytes of entries in one request that copies a map; the last one may be over it."""

Maps = Mapping[str, tuple[MapKind, Mapping[bytes, bytes]]]
"""By name: what its values are, and its entries as they are kept."""


class CannotCopy(Exception):
    """What was asked for cannot be done; the message says why."""


@dataclass(frozen=True)
class CopySource:
    """What a repository has that another is to have."""

    vcs: str
    settings: Mapping[str, bytes]
    refs: Mapping[bytes, RefValue]
    maps: Maps

    def only(self, names: Sequence[str]) -> CopySource:
        """The refs of these names and what belongs to them; all where no name is given.

        Raises:
            CannotCopy: there is none of that name.
        """
        if not names:
            return self
        refs = {ref: self.refs[ref] for name in names for ref in [self._named(name)]}
        belongs = tuple(ref + b"\0" for ref in refs)
        maps = {
            name: (kind, {key: value for key, value in entries.items() if key.startswith(belongs)})
            for name, (kind, entries) in self.maps.items()
        }
        return CopySource(self.vcs, self.settings, refs, maps)

    def _named(self, name: str) -> bytes:
        raw = name.encode("utf-8", "surrogateescape")
        for ref in (raw, HEADS + raw, TAGS + raw):
            if ref in self.refs:
                return ref
        some = ", ".join(shown(ref) for ref in list(self.refs)[:8]) + (", ..." if len(self.refs) > 8 else "")
        raise CannotCopy(f"there is no ref {name!r}; there is {some or 'none'}")

    def ref_updates(self, *, force: bool) -> list[RefUpdate]:
        """How the other side's refs are to move."""
        updates = []
        for name, value in sorted(self.refs.items()):
            tip = value[0]
            if len(value) > 1 or tip.closed:
                growth = Growth.ANY if force else Growth.COVERED
                updates.append(RefUpdate(name, tip.id, heads=value, growth=growth))
            else:
                rule = Rule.FORCE if force else Rule.NEW if name.startswith(TAGS) else Rule.FF
                updates.append(RefUpdate(name, tip.id, rule, attributes=tip.attributes))
        return updates

    def differing(self, there: Knowledge) -> int:
        """How many entries of its maps are known to be another there."""
        known = {name: there.map(name) for name in self.maps}
        return sum(
            known[name].get(key, value) != value
            for name, (_, entries) in self.maps.items()
            for key, value in entries.items()
        )

    def map_updates(self, there: Knowledge, *, force: bool) -> list[MapUpdateRequest]:
        """How its maps are to change. What it is known to have is left out, unless it is to be so whatever is there."""
        updates: list[MapUpdateRequest] = []
        how = How.SET if force else How.ADD
        for name, (kind, entries) in sorted(self.maps.items()):
            known = there.map(name)
            by_ref: dict[bytes | None, list[EntryChange]] = {}
            for whole, value in entries.items():
                if force or known.get(whole) != value:
                    of, belongs, key = whole.partition(b"\0")
                    change = EntryChange(key if belongs else whole, value, how)
                    by_ref.setdefault(of if belongs else None, []).append(change)
            for ref, changes in by_ref.items():
                parts = [changes[at : at + MAX_IDS] for at in range(0, len(changes), MAX_IDS)]
                updates += [MapUpdateRequest(name, kind, part, ref) for part in parts]
        return updates


def of_remote(known: Knowledge) -> CopySource:
    """What a server has said that a repository has; of tags it is known that they are ids."""
    maps = {name: (MapKind.IDS if name == "tags" else MapKind.OPAQUE, known.map(name)) for name in known.maps()}
    return CopySource(known.vcs, known.settings, known.refs(), maps)


@dataclass(frozen=True)
class CopyEndpoint:
    """One of the two repositories, and what the user calls it."""

    place: str
    repository: RemoteRepository


@dataclass(frozen=True)
class _Named:
    """A source that brings what entries of maps name, too: a tag may be on what no ref reaches."""

    source: PushSource
    ids: Sequence[RevisionId]

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        return self.source.plan([*tips, *self.ids], haves)


@contextmanager
def of_records() -> Iterator[None]:
    """Raise as `SourceFailed` what the target says of the records that it is sent."""
    try:
        yield
    except (CorruptRecord, WrongParents, MissingReference) as wrong:
        raise SourceFailed(wrong) from wrong


def copy(
    copied: CopySource, source: PushSource, new: NewRepository | None, target: RemoteRepository, *, force: bool
) -> tuple[PushOutcome, int]:
    """Copy what a source has; what became of it, and how many entries of maps differ and were not to be replaced.

    Raises:
        SourceFailed: a record is not what its key says: nothing of the target is damaged.
        CodedError, MediumError, ProtocolError, NotOurProtocol: as `RemoteRepository.push`.
    """
    untold = system_of(copied.vcs).untold
    told = replace(copied, maps={name: found for name, found in copied.maps.items() if name not in untold})
    maps = told.map_updates(target.knowledge, force=force)
    named = [each.value for update in maps if update.kind is MapKind.IDS for each in update.entries if each.value]
    if named:
        source = _Named(source, named)
    with of_records():
        pushed = target.push(PushRequest(told.ref_updates(force=force), source, new, maps))
    last = [(name, copied.maps[name][1]) for name in untold.keys() & copied.maps.keys()]
    return add_untold(pushed, last, target), told.differing(target.knowledge)


def pull(
    source: CopyEndpoint, target: CopyEndpoint, names: Sequence[str], sent: OnSent, *, force: bool
) -> tuple[PushOutcome, int]:
    """Ask one repository for what the other lacks, and put it there. `sent`: as of `RemoteRepository`.

    Raises:
        CannotCopy: there is no such ref, or the two are of different kinds.
        SourceFailed: the source failed; anything else is of the target, as of `copy`.
    """
    there, here = source.repository, target.repository
    made = False
    try:
        here.learn_refs()
    except NoSuchRepository:
        made = True
    wanted = [form + name.encode("utf-8", "surrogateescape") for name in names for form in (b"", HEADS, TAGS)]
    with of_source():
        pulled = there.pull(here.knowledge.tips()[:MAX_HAVES], wanted or None, tagged=not wanted)
    copied = of_remote(there.knowledge).only(names)
    if not made and here.knowledge.vcs != copied.vcs:
        both = f"{source.place} is a repository of {copied.vcs}, {target.place} one of {here.knowledge.vcs}"
        raise CannotCopy(f"{both}: only one of the same kind can be copied into it")
    new = None
    if made:
        with of_source():
            new = NewRepository(copied.vcs, system_of(copied.vcs).kinds, dict(copied.settings))
    body = Relay(pulled.body, pulled.result.segments, pulled.result.size, sent)
    pushed, kept = copy(copied, body, new, here, force=force)
    if not names:
        pushed = add_untold(pushed, _all_untold(there), here)
    return pushed, kept


def _all_untold(remote: RemoteRepository) -> Iterator[tuple[str, Mapping[bytes, bytes]]]:
    for name in system_of(remote.knowledge.vcs).untold:
        with of_source():
            entries = untold_entries(remote, name)
        yield name, entries


_page = msgspec.msgpack.Decoder(tuple[dict[bytes, bytes], bool])


def untold_entries(remote: RemoteRepository, name: str) -> dict[bytes, bytes]:
    """All entries of a map that is not told with the refs."""
    entries: dict[bytes, bytes] = {}
    for page in untold_pages(remote, name):
        entries |= page
    return entries


def untold_pages(remote: RemoteRepository, name: str) -> Iterator[dict[bytes, bytes]]:
    """The same in the order of their keys, a request for each part."""
    selector = system_of(remote.knowledge.vcs).untold[name]
    after, is_all = b"", False
    while not is_all:
        try:
            page, is_all = _page.decode(remote.read(selector + after, refs=[]).result.said)
        except msgspec.DecodeError as wrong:
            raise RemoteProtocolError(f"expected entries of {name}: {wrong}") from wrong
        last = max(page, default=b"")
        if not is_all and last <= after:
            raise RemoteProtocolError(f"expected entries of {name} after {shown(after)}")
        yield page
        after = last


def add_untold(
    pushed: PushOutcome, maps: Iterable[tuple[str, Mapping[bytes, bytes]]], target: RemoteRepository
) -> PushOutcome:
    """Add the entries of such maps that the target lacks, after a push and up to the first refusal; the outcome of
    all."""
    if pushed.error() is not None:
        return pushed
    for name, entries in maps:
        known = untold_entries(target, name) if entries else {}
        for part in _parts({key: value for key, value in entries.items() if key not in known}):
            added = target.push(PushRequest([], maps=[MapUpdateRequest(name, MapKind.OPAQUE, part)]))
            pushed = msgspec.structs.replace(pushed, maps=[*pushed.maps, *added.maps])
            if added.error() is not None:
                return pushed
    return pushed


def _parts(entries: Mapping[bytes, bytes]) -> Iterator[list[EntryChange]]:
    """Entries to be added, in parts that fit into a request each."""
    part: list[EntryChange] = []
    size = 0
    for key, value in entries.items():
        part.append(EntryChange(key, value))
        size += len(key) + len(value)
        if size >= AT_ONCE or len(part) == MAX_IDS:
            yield part
            part, size = [], 0
    if part:
        yield part
