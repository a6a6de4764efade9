"""A repository written to a dump, and a dump copied into a repository. The bytes of a dump are those of `dump_file`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
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
    resumed,
    untold_pages,
)
from smartserver.client.dump_file import DumpHeader, DumpReader, write_dump
from smartserver.client.dump_source import DumpPart, DumpSource
from smartserver.client.push import PushRequest, PushSource
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome
from smartserver.errors import IncompleteRepository, NoSuchRepository, shown
from smartserver.records.model import RevisionId
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed
from smartserver.verbs.repository_create import CopyPart
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


def load(
    read: DumpReader, name: str, target: CopyEndpoint, checked: OnSent, sent: OnSent, *, force: bool
) -> tuple[PushOutcome, int]:
    """Copy a dump into a repository, as `copy`. `name`: what the user calls it. `checked`, `sent`: how far the first
    reading of a file is, and the push (`body.OnSent`).

    The target is first asked which of the tips it has, and of the revisions that the dump rests on. A file is then read
    whole and checked, and a push brings what the target lacks. A long one is sent in parts, of which only the last one
    moves refs, unless the target refuses all of them before. A pipe, or a dump of a history with ghosts, is sent whole
    unless the target has all tips, and to its end only where it is undamaged.

    Raises:
        CannotCopy: the target lacks what the dump rests on, or is of another version-control system; or the dump is
            damaged, and the target was not changed.
        SourceFailed, CodedError, MediumError, ProtocolError, NotOurProtocol: as `copy`; no ref was changed, but parts
            of a long dump may be stored.
    """
    header, here = read.header, target.repository
    tips = [tip.id for value in header.refs.values() for tip in value]
    named = system_of(header.vcs).named_revisions
    tips += [each for word, (_, entries) in header.maps.items() for each in named(word, entries)]
    asked = list(dict.fromkeys([*header.rests_on, *tips]))[:MAX_HAVES]
    stored: set[RevisionId] = set()
    new = NewRepository(header.vcs, header.kinds, header.settings)
    may_ask = True
    try:
        stored.update(here.pull(asked, refs=[]).common(asked))
    except NoSuchRepository:
        here.knowledge.forget()  # Else the push would count on what was there once, and cannot be planned again.
    except IncompleteRepository:
        new, may_ask = resumed(here, new), False  # To each part it has it answers `known`.
        stored.update(tip.id for value in here.knowledge.refs().values() for tip in value)
    else:
        if here.knowledge.vcs != header.vcs:
            raise CannotCopy(f"{name} is of a repository of {header.vcs}, {target.place} one of {here.knowledge.vcs}")
        stored.update(tip.id for value in here.knowledge.refs().values() for tip in value)
    if lacking := [each for each in header.rests_on if each not in stored]:
        some = ", ".join(map(shown, lacking[:3])) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        raise CannotCopy(f"{target.place} lacks {some}, which {name} rests on: load the earlier dump first")
    requests = header.copied.requests(here.knowledge, force=force)
    if len(requests) > 1:
        new = msgspec.structs.replace(new, part=CopyPart.MORE)  # Nobody sees a part of it.
    updates, _ = requests[0]
    body: PushSource
    before = PushOutcome([], [])
    if not header.segments or stored.issuperset(tips):
        read.check()  # Nothing of it is sent.
        body = EmptyBody()
    elif read.is_repeatable and not system_of(header.vcs).ghosts:  # With ghosts a stored revision may lack ancestors.
        source = DumpSource(read, checked)
        source.mark(stored)
        source.distrusted = set(here.knowledge.tips()) - stored
        brought = _lacking(source, here) if may_ask else source.lacking()
        if brought.size > dump_source.PART:
            # The graph is enough to refuse a ref, as one that diverged: nothing else is sent then.
            refused = here.push(PushRequest(updates, brought, new, check_only=True))
            if len(requests) == 1 and updates and all(each.error for each in refused.refs):
                return refused, 0
        body, before = _store_parts(source, brought, here, new, sent)
    else:
        body = Relay(read, header.segments, header.size, sent)
    if header.refs and not read.is_repeatable:
        # A server that wants a token says so in answer to the first change, and this body cannot be sent twice.
        first = header.copied.ref_updates(force=force)[:1]
        here.push(PushRequest(first, new=new, check_only=True))
    pushed, kept = copy(header.copied, body, new, here, force=force)
    revisions, created = before.revisions + pushed.revisions, before.created or pushed.created
    pushed = msgspec.structs.replace(pushed, revisions=revisions, created=created)
    return add_untold(pushed, read.untold.items(), here), kept


def _lacking(source: DumpSource, here: RemoteRepository) -> DumpPart:
    """What the target lacks of a dump; of a long one it is asked as often as that says more."""
    lacking = source.lacking()
    exact = not here.knowledge.vcs  # There is none yet.
    # What an interrupted load has stored is the begin of the file: a few questions find where that ends.
    while not exact and lacking.size > dump_source.PART:
        asked = lacking.spaced(MAX_HAVES)
        learnt = source.mark(here.pull(asked, refs=[]).common(asked))
        exact = not learnt or len(asked) == len(lacking)
        lacking = source.lacking()
    return lacking


def _store_parts(
    source: DumpSource, lacking: DumpPart, here: RemoteRepository, new: NewRepository, sent: OnSent
) -> tuple[DumpPart, PushOutcome]:
    """Bring what the target lacks of a dump but for the last part, which is given, and what became of the others."""
    *parts, last = lacking.parts(dump_source.PART)
    left, size = len(lacking), source.size - lacking.size
    revisions, created = 0, False
    for part in [*parts, last]:
        left -= len(part)
        here.sent = partial(_shifted, sent, size, left, len(source))
        size += part.size
        if part is not last:
            with of_records():
                pushed = here.push(PushRequest([], part, new))
            revisions, created = revisions + pushed.revisions, created or pushed.created
    return last, PushOutcome([], [], revisions, created)


def _shifted(sent: OnSent, before: int, left: int, whole: int, size: int, done: int, total: int) -> None:
    """Say how far a part is, with `before` bytes in front of it and `left` revisions behind it."""
    sent(before + size, whole - left - (total - done), whole)
