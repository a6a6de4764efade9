"""Copies one hpss repository into another: all refs or the named ones, with their revisions, tags and maps.

A copy is a push, so revisions that the target has are not sent. It is one request, or several if the refs and maps
exceed the limits of one; the first contains all revisions. A repository that several requests create is incomplete and
hidden until the last one arrives. An interrupted copy continues when it is run again (`resumed`).

`CopySource` has the content of the source, and a `PushSource` reads its revisions; `pull` gets both from another
`RemoteRepository`. Some maps are not sent with the refs (`System.untold`). They are copied last, in separate requests,
after the target was asked which entries it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from smartserver.client.body import EmptyBody, OnSent, Relay, SourceFailed, of_source
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest, PushSource
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome, RefUpdate, call_of
from smartserver.errors import (
    CorruptRecord,
    IncompleteRepository,
    MissingReference,
    NoSuchRepository,
    WrongParents,
    shown,
)
from smartserver.records.model import GraphNode, Plan, RefValue, RevisionId, Tip
from smartserver.records.system import Beyond, system_of
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest, map_update
from smartserver.verbs.repository_create import CopyPart
from smartserver.verbs.rules import Growth, Rule
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_CALLS, MAX_HAVES, MAX_REQUEST
from smartserver.wire.messages import Call, encode, raw

HEADS, TAGS = b"refs/heads/", b"refs/tags/"
"""The prefixes that a short name of a ref may lack."""

AT_ONCE: Final = MAX_REQUEST // 2
"""Bytes of changes of refs and maps in one request of a copy; the last change may exceed it."""

CALLS_AT_ONCE: Final = MAX_CALLS - 3
"""The most calls that change refs and maps in one request. Up to three calls that create, open and fill the repository
precede them."""

Changes = tuple[list[RefUpdate], list[MapUpdateRequest]]

Maps = Mapping[str, tuple[MapKind, Mapping[bytes, bytes]]]
"""The kind of each map's values, and its entries as stored, by the map's name."""


class CannotCopy(Exception):
    """The copy is not possible; the message gives the reason."""


@dataclass(frozen=True)
class CopySource:
    """The content of the repository that is copied."""

    vcs: str
    settings: Mapping[str, bytes]
    refs: Mapping[bytes, RefValue]
    maps: Maps

    def only(self, names: Sequence[str], beyond: Beyond) -> CopySource:
        """Return the named refs with the map entries that belong to them, and the other entries on which the meaning of
        these refs depends; everything if there are no names. `beyond` reads the graph of the source.

        Raises:
            CannotCopy: no ref has one of the names.
        """
        if not names:
            return self
        refs = {ref: self.refs[ref] for name in names for ref in [self._named(name)]}
        belongs = tuple(ref + b"\0" for ref in refs)
        maps = {
            name: (kind, {key: value for key, value in entries.items() if key.startswith(belongs)})
            for name, (kind, entries) in self.maps.items()
        }
        only = CopySource(self.vcs, self.settings, refs, maps)
        whole = {name: entries for name, (_, entries) in self.maps.items()}
        kept = system_of(self.vcs).part_entries(self.settings, whole, only.tips(), beyond)
        return replace(only, maps=_joined(maps, kept))

    def _named(self, name: str) -> bytes:
        raw = name.encode("utf-8", "surrogateescape")
        for ref in (raw, HEADS + raw, TAGS + raw):
            if ref in self.refs:
                return ref
        some = ", ".join(shown(ref) for ref in list(self.refs)[:8]) + (", ..." if len(self.refs) > 8 else "")
        raise CannotCopy(f"the source has no branch or tag {name!r}; it has {some or 'none'}")

    def ref_updates(self, *, force: bool) -> list[RefUpdate]:
        """Return the updates of the target's refs."""
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
        """Count the map entries that are known to have another value in the target."""
        known = {name: there.map(name) for name in self.maps.keys() - system_of(self.vcs).untold.keys()}
        return sum(
            its.get(key, value) != value for name, its in known.items() for key, value in self.maps[name][1].items()
        )

    def map_updates(self, there: Knowledge, *, force: bool) -> list[MapUpdateRequest]:
        """Return the changes of the target's maps. Without `force`, entries that have the same value there are left
        out."""
        updates: list[MapUpdateRequest] = []
        how = How.SET if force else How.ADD
        # Under other settings the target needs more entries for the same meaning.
        needed = system_of(self.vcs).settings_entries(self.settings, there.settings, self.tips())
        for name, (kind, entries) in sorted(_joined(self.maps, needed).items()):
            known = there.map(name)
            by_ref: dict[bytes | None, list[EntryChange]] = {}
            for whole, value in entries.items():
                if force or known.get(whole) != value:
                    of, belongs, key = whole.partition(b"\0")
                    change = EntryChange(key if belongs else whole, value, how)
                    by_ref.setdefault(of if belongs else None, []).append(change)
            for ref, changes in by_ref.items():
                updates += [MapUpdateRequest(name, kind, part, ref) for part in _parts(changes)]
        return updates

    def tips(self) -> list[RevisionId]:
        """Return the tips of all refs."""
        return [tip.id for value in self.refs.values() for tip in value]

    def requests(self, there: Knowledge, *, force: bool) -> list[Changes]:
        """Return the changes of the target in parts that each fit into a request; at least one part. Entries that
        belong to a ref come after it. All other entries come first, so that no client sees the refs with another
        meaning. Maps that are not sent with the refs are left out."""
        untold = system_of(self.vcs).untold
        told = replace(self, maps={name: found for name, found in self.maps.items() if name not in untold})
        parts: list[Changes] = [([], [])]
        size = calls = 0
        updates = told.map_updates(there, force=force)
        changes: list[RefUpdate | MapUpdateRequest] = [update for update in updates if update.of is None]
        changes += told.ref_updates(force=force)
        changes += [update for update in updates if update.of is not None]
        for change in changes:
            its = _size(change)
            if calls and (size + its > AT_ONCE or calls == CALLS_AT_ONCE):
                parts.append(([], []))
                size = calls = 0
            size, calls = size + its, calls + 1
            if isinstance(change, RefUpdate):
                parts[-1][0].append(change)
            else:
                parts[-1][1].append(change)
        return parts


def _joined(maps: Maps, more: Mapping[str, Mapping[bytes, bytes]]) -> Maps:
    joined = dict(maps)
    for name, entries in more.items():
        kind, stored = maps.get(name, (MapKind.OPAQUE, {}))
        joined[name] = kind, {**stored, **entries}
    return joined


def of_remote(known: Knowledge) -> CopySource:
    """Return the content of a repository as its server reported it."""
    kinds = system_of(known.vcs).maps
    maps = {
        name: (MapKind(kinds[name].kind) if name in kinds else MapKind.OPAQUE, known.map(name)) for name in known.maps()
    }
    return CopySource(known.vcs, known.settings, known.refs(), maps)


@dataclass(frozen=True)
class CopyEndpoint:
    """The source or the target of a copy, and the user's name for it."""

    place: str
    repository: RemoteRepository


@dataclass(frozen=True)
class _Whole:
    """A source whose first request also sends the revisions that later requests and map entries name."""

    source: PushSource
    ids: Sequence[RevisionId]

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        return self.source.plan([*tips, *self.ids], haves)


@contextmanager
def of_records() -> Iterator[None]:
    """Raise as `SourceFailed` the target's errors about the records of the source."""
    try:
        yield
    except (CorruptRecord, WrongParents, MissingReference) as error:
        raise SourceFailed(error) from error


def copy(
    copied: CopySource, source: PushSource, new: NewRepository | None, target: RemoteRepository, *, force: bool
) -> tuple[PushOutcome, int]:
    """Copy the content of a source. Return the outcome, and the number of map entries that differ and were not
    replaced. The target's settings must be known if `System.settings_matter`.

    Raises:
        SourceFailed: a record does not match its key; the target is not damaged.
    """
    requests = copied.requests(target.knowledge, force=force)
    several = len(requests) > 1 or (new is not None and new.part is CopyPart.MORE)
    later = [tip.id for refs, _ in requests[1:] for update in refs for tip in update.heads or (Tip(update.tip or b""),)]
    system = system_of(copied.vcs)
    later += [
        revision
        for _, maps in requests
        for update in maps
        for revision in system.named_revisions(update.map, {entry.key: entry.value or b"" for entry in update.entries})
    ]
    if later:
        source = _Whole(source, later)
    if several and new is None:  # Each request says whether more follow, also if the repository exists.
        new = NewRepository(copied.vcs, system.kinds, dict(copied.settings))
    pushed = PushOutcome([], [])
    for left, (refs, maps) in zip(reversed(range(len(requests))), requests, strict=True):
        if new is not None and several:
            new = msgspec.structs.replace(new, part=CopyPart.MORE if left else CopyPart.LAST)
        with of_records():
            done = target.push(PushRequest(refs, source, new, maps))
        source = EmptyBody()
        revisions, created = pushed.revisions + done.revisions, pushed.created or done.created
        pushed = PushOutcome(pushed.refs + done.refs, pushed.maps + done.maps, revisions, created)
    last = [(name, copied.maps[name][1]) for name in system.untold.keys() & copied.maps.keys()]
    return add_untold(pushed, last, target), copied.differing(target.knowledge)


def _size(change: RefUpdate | MapUpdateRequest) -> int:
    verb, arguments = call_of(change) if isinstance(change, RefUpdate) else (map_update, change)
    return len(encode(Call(verb.name, raw(arguments))))


def pull(
    source: CopyEndpoint, target: CopyEndpoint, names: Sequence[str], sent: OnSent, *, force: bool
) -> tuple[PushOutcome, int]:
    """Ask the source for the revisions that the target lacks, and push them to the target. `sent` reports the progress,
    like `RepositoryExchange.sent`.

    Raises:
        CannotCopy: no ref has one of the names, or the two repositories are of different systems.
        SourceFailed: the source failed. Any other error is one of the target, as in `copy`.
    """
    there, here = source.repository, target.repository
    new: NewRepository | None = None
    made = False
    try:
        here.learn_refs()
    except NoSuchRepository:
        made = True
    except IncompleteRepository:
        with of_source():
            there.learn_refs()
        new = resumed(here, _made_as(there.knowledge))
    haves, vcs = here.knowledge.tips()[:MAX_HAVES], there.knowledge.vcs or here.knowledge.vcs
    with of_source():
        if names and (not vcs or system_of(vcs).graph):
            there.learn_refs()  # No request can be made while the revisions arrive.
            copied = of_remote(there.knowledge).only(names, partial(_beyond, there))
            pulled = there.pull(haves, [], copied.tips())
        else:
            wanted = [form + name.encode("utf-8", "surrogateescape") for name in names for form in (b"", HEADS, TAGS)]
            pulled = there.pull(haves, wanted or None, tagged=not wanted)
            copied = of_remote(there.knowledge).only(names, partial(_beyond, there))
    if not made and here.knowledge.vcs != copied.vcs:
        both = f"{source.place} is a repository of {copied.vcs}, {target.place} one of {here.knowledge.vcs}"
        raise CannotCopy(f"{both}: only one of the same kind can be copied into it")
    if made:
        with of_source():
            new = _made_as(there.knowledge)
    body = Relay(pulled.body, pulled.result.segments, pulled.result.size, sent)
    pushed, kept = copy(copied, body, new, here, force=force)
    if not names:
        pushed = add_untold(pushed, _all_untold(there), here)
    return pushed, kept


def _beyond(source: RemoteRepository, tips: Sequence[RevisionId], others: Sequence[RevisionId]) -> Iterator[GraphNode]:
    selector = system_of(source.knowledge.vcs).graph
    yield from source.read(selector, refs=[], ids=tips, haves=others[:MAX_HAVES]).graph


def _made_as(known: Knowledge) -> NewRepository:
    return NewRepository(known.vcs, system_of(known.vcs).kinds, dict(known.settings))


def resumed(target: RemoteRepository, new: NewRepository) -> NewRepository:
    """Ask an incomplete repository for its content, to continue a copy into it. Return the argument `new` for
    `copy`."""
    new = msgspec.structs.replace(new, part=CopyPart.MORE)
    target.push(PushRequest([], new=new))
    return new


def _all_untold(remote: RemoteRepository) -> Iterator[tuple[str, Mapping[bytes, bytes]]]:
    for name in system_of(remote.knowledge.vcs).untold:
        with of_source():
            entries = untold_entries(remote, name)
        yield name, entries


_page = msgspec.msgpack.Decoder(tuple[dict[bytes, bytes], bool])


def untold_entries(remote: RemoteRepository, name: str) -> dict[bytes, bytes]:
    """Return all entries of a map that is not sent with the refs."""
    entries: dict[bytes, bytes] = {}
    for page in untold_pages(remote, name):
        entries |= page
    return entries


def untold_pages(remote: RemoteRepository, name: str) -> Iterator[dict[bytes, bytes]]:
    """Yield the entries of a map that is not sent with the refs, in the order of their keys. Each page takes one
    request."""
    selector = system_of(remote.knowledge.vcs).untold[name]
    after, is_all = b"", False
    while not is_all:
        try:
            page, is_all = _page.decode(remote.read(selector + after, refs=[]).result.said)
        except msgspec.DecodeError as error:
            raise RemoteProtocolError(f"expected entries of {name}: {error}") from error
        last = max(page, default=b"")
        if not is_all and last <= after:
            raise RemoteProtocolError(f"expected entries of {name} after {shown(after)}")
        yield page
        after = last


def add_untold(
    pushed: PushOutcome, maps: Iterable[tuple[str, Mapping[bytes, bytes]]], target: RemoteRepository
) -> PushOutcome:
    """Push the entries of `maps` that the target lacks, up to the first refusal. Such maps are not sent with the refs.
    Return `pushed` with the outcomes of these pushes."""
    if pushed.error() is not None:
        return pushed
    for name, entries in maps:
        known = untold_entries(target, name) if entries else {}
        lacking = (EntryChange(key, value) for key, value in entries.items() if key not in known)
        for part in _parts(lacking):
            added = target.push(PushRequest([], maps=[MapUpdateRequest(name, MapKind.OPAQUE, part)]))
            pushed = msgspec.structs.replace(pushed, maps=[*pushed.maps, *added.maps])
            if pushed.error() is not None:
                return pushed
    return pushed


def _parts(changes: Iterable[EntryChange]) -> Iterator[list[EntryChange]]:
    """Yield the changes of entries in parts that each fit into a call."""
    part: list[EntryChange] = []
    size = 0
    for change in changes:
        part.append(change)
        size += len(change.key) + len(change.value or b"")
        if size >= AT_ONCE or len(part) == MAX_IDS:
            yield part
            part, size = [], 0
    if part:
        yield part
