"""A repository written to a dump, and a dump copied into a repository. The bytes of a dump are those of `dump_file`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from smartserver.client import dump_source
from smartserver.client.body import EmptyBody, OnSent, Relay
from smartserver.client.copy import (
    TAGS,
    CannotCopy,
    CopyEndpoint,
    add_untold,
    copy,
    of_records,
    of_remote,
    untold_pages,
)
from smartserver.client.dump_file import DumpHeader, DumpReader, write_dump
from smartserver.client.dump_source import DumpSource, FirstPart
from smartserver.client.push import PushRequest, PushSource, spread
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome
from smartserver.errors import NoSuchRepository, shown
from smartserver.records.model import RevisionId
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed
from smartserver.verbs.map_update import MapKind
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_HAVES

KeyT = TypeVar("KeyT", str, bytes)
ValueT = TypeVar("ValueT")


class Dump(NamedTuple):
    """A dump that is being made."""

    header: DumpHeader
    pieces: Iterator[bytes]
    """Its bytes; reading them is what receives the revisions."""


def dump(source: CopyEndpoint, since: DumpHeader | None, received: OnSent, *, bulk: bool) -> Dump:
    """Ask for a dump of a repository, in one round trip and one for each page of its maps that are not told.

    `since`: of a dump that another one was made from earlier; what its refs reach is left out, as far as the server
    has it. `received`: called as the revisions come. `bulk`: they travel as a bulk stream.

    Raises:
        CannotCopy: the earlier dump is of another version-control system.
        CodedError: the server refused.
        MediumError, RemoteProtocolError, NotOurProtocol: there was no answer.
    """
    there = source.repository
    refs = {} if since is None else since.refs
    # Branches first: of many tags most are ancestors of one.
    names = sorted(refs, key=lambda name: (name.startswith(TAGS), name))
    haves = list(dict.fromkeys(tip.id for name in names for tip in refs[name]))[:MAX_HAVES]
    pulled = there.pull(haves, bulk=bulk, tagged=True)
    known = of_remote(there.knowledge)
    if since is not None and since.vcs != known.vcs:
        raise CannotCopy(f"{source.place} is a repository of {known.vcs}, the earlier dump one of {since.vcs}")
    system = system_of(known.vcs)
    size = pulled.result.size
    header = DumpHeader(
        known.vcs,
        list(system.kinds),
        _sorted(known.settings),
        _sorted(known.refs),
        {name: (kind, _sorted(entries)) for name, (kind, entries) in _sorted(known.maps).items()},
        pulled.common(haves),
        pulled.result.segments,
        size,
    )

    def body() -> Iterator[bytes]:
        done = 0
        try:
            for chunk in pulled.body:
                done += len(chunk)
                received(done, done, size)
                yield chunk
        except Malformed as wrong:
            raise RemoteProtocolError(str(wrong)) from wrong

    pages = ((name, _sorted(page)) for name in system.untold for page in untold_pages(there, name))
    return Dump(header, write_dump(header, body(), pages))


def _sorted(entries: Mapping[KeyT, ValueT]) -> dict[KeyT, ValueT]:
    """In the order of the keys, so that two dumps of the same are equal."""
    return dict(sorted(entries.items()))


def load(read: DumpReader, name: str, target: CopyEndpoint, sent: OnSent, *, force: bool) -> tuple[PushOutcome, int]:
    """Copy a dump into a repository, as `copy`. `name`: what the user calls it. `sent`: as of `RemoteRepository`.

    The target is first asked what it has of the dump, and of the revisions that it rests on. Of a dump in a file a push
    brings what is lacking, after it was checked whole; a long one goes in several, of which the last one moves the
    refs, so that the next load goes on where this one is interrupted. A pipe is sent whole, unless the target has all
    tips, and to its end only where it is undamaged.

    Raises:
        CannotCopy: the target lacks what the dump rests on, or is of another version-control system; or the dump is
            damaged, and the target was not changed.
        SourceFailed, CodedError, MediumError, ProtocolError, NotOurProtocol: as `copy`.
    """
    header, here = read.header, target.repository
    # Of a history with ghosts nobody can say that what is stored is there with all its ancestors.
    in_parts = header.segments and read.is_repeatable and not system_of(header.vcs).ghosts
    source = DumpSource(read, name) if in_parts else None
    tips = [tip.id for value in header.refs.values() for tip in value]
    tips += [each for kind, entries in header.maps.values() if kind is MapKind.IDS for each in entries.values()]
    some = [] if source is None else [node.revision for node in spread(source.graph)]
    asked = list(dict.fromkeys([*header.rests_on, *some, *tips]))[:MAX_HAVES]
    stored: set[RevisionId] = set()
    try:
        stored.update(here.pull(asked, refs=[]).common(asked))
    except NoSuchRepository:
        here.knowledge.forget()  # Else the push would count on what was there once, and cannot be planned again.
    else:
        if here.knowledge.vcs != header.vcs:
            raise CannotCopy(f"{name} is of a repository of {header.vcs}, {target.place} one of {here.knowledge.vcs}")
        stored.update(tip.id for value in here.knowledge.refs().values() for tip in value)
    if lacking := [each for each in header.rests_on if each not in stored]:
        first = ", ".join(map(shown, lacking[:3])) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        raise CannotCopy(f"{target.place} lacks {first}, which {name} rests on: load the earlier dump first")
    new = NewRepository(header.vcs, header.kinds, header.settings)
    updates = header.copied.ref_updates(force=force)
    may_change = PushRequest(updates[:1], new=new, check_only=True)
    body: PushSource
    before = PushOutcome([], [])
    if source is not None:
        source.stored = stored
        before = _store_parts(source, here, may_change, sent)
        body = source
    elif header.segments and not stored.issuperset(tips):
        body = Relay(read, header.segments, header.size, sent)
    else:
        read.check()  # Nothing of it is sent.
        body = EmptyBody()
    if updates and not read.is_repeatable:
        # A server that wants a token says so in answer to the first change, and this body cannot be sent twice.
        here.push(may_change)
    pushed, kept = copy(header.copied, body, new, here, force=force)
    revisions, created = before.revisions + pushed.revisions, before.created or pushed.created
    pushed = msgspec.structs.replace(pushed, revisions=revisions, created=created)
    return add_untold(pushed, read.untold.items(), here), kept


def _store_parts(source: DumpSource, here: RemoteRepository, may_change: PushRequest, sent: OnSent) -> PushOutcome:
    """Bring what the target lacks of a dump, but for the last part: no ref reaches it yet."""
    plan = source.plan((), ())
    revisions, created = 0, False

    def moved(size: int, done: int, _: int) -> None:
        whole = len(source.graph)
        sent(source.read.header.size - plan.size + size, whole - len(plan.graph) + done, whole)

    here.sent = moved
    if plan.size > dump_source.PART:
        here.push(may_change)  # No gigabyte is sent to somebody who refuses it then.
    while plan.size > dump_source.PART:
        part = FirstPart(source)
        with of_records():
            pushed = here.push(PushRequest([], part, may_change.new))
        revisions, created = revisions + pushed.revisions, created or pushed.created
        source.stored.update(node.revision for node in part.planned)
        plan = source.plan((), ())
    return PushOutcome([], [], revisions, created)
