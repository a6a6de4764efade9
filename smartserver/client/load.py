"""A dump, brought into a repository: a copy of which only what the target lacks is sent, a long one in parts.

Only the last part changes refs. A load that was interrupted goes on when it is run again: the target is asked which of
the revisions it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import msgspec

from smartserver.client.body import EmptyBody, OnSent, Relay
from smartserver.client.copy import CannotCopy, CopyEndpoint, CopySource, copy, of_records, resumed
from smartserver.client.push import PushRequest, PushSource
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome
from smartserver.errors import IncompleteRepository, NoSuchRepository
from smartserver.records.model import GraphNode, Plan, RevisionId
from smartserver.records.system import system_of
from smartserver.verbs.repository_create import CopyPart
from smartserver.wire.limits import MAX_HAVES

PART: Final = 64 << 20
"""Bytes of revisions in one request, or one revision that is larger: what an interrupted load loses at most."""


class SizedPlan(Plan, Protocol):
    """A plan of which it is known how long each revision is."""

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each."""


class SizedSource(PushSource, Protocol):
    """A source with such plans."""

    @property
    def size(self) -> int:
        """Bytes of all that it may bring, or more."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> SizedPlan:
        """The plan for the segments that were dumped."""


@dataclass(frozen=True)
class _Wanted:
    """A source that brings what these tips reach, whatever else is asked for."""

    source: SizedSource
    tips: Sequence[RevisionId]
    had: set[RevisionId]
    """The revisions that the target has, with all ancestors."""
    lost: Collection[RevisionId]
    """The revisions that it once had, and has not now."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> SizedPlan:
        return self.source.plan([*tips, *self.tips], [*self.had, *(have for have in haves if have not in self.lost)])


@dataclass(frozen=True)
class _Segments:
    """The segments of a plan, as often as they are asked for."""

    plan: Plan

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.plan.segments())


def load(
    copied: CopySource,
    source: SizedSource,
    new: NewRepository,
    target: CopyEndpoint,
    sent: OnSent,
    *,
    name: str,
    force: bool,
) -> tuple[PushOutcome, int]:
    """Bring what a source has to a repository, as `copy`. `name`: what the user calls it.

    Raises:
        CannotCopy: the target is of another version-control system.
        SourceFailed, CodedError, MediumError, ProtocolError, NotOurProtocol: as `copy`; no ref was changed, but parts
            of a long one may be stored.
    """
    here, system = target.repository, system_of(copied.vcs)
    tips = copied.tips()
    tips += [tip for word, (_, entries) in copied.maps.items() for tip in system.named_revisions(word, entries)]
    tips = list(dict.fromkeys(tips))
    asked, may_ask = tips[:MAX_HAVES], True
    had: set[RevisionId] = set()
    try:
        had.update(here.pull(asked, refs=[]).common(asked))
    except NoSuchRepository:
        here.knowledge.forget()  # Else the push would count on what was there once, and cannot be planned again.
        may_ask = False
    except IncompleteRepository:
        new, may_ask = resumed(here, new), False  # To each part it has it answers `known`.
    else:
        if here.knowledge.vcs != copied.vcs:
            raise CannotCopy(f"{name} is of a repository of {copied.vcs}, {target.place} one of {here.knowledge.vcs}")
    had.update(tip.id for value in here.knowledge.refs().values() for tip in value)
    wanted = _Wanted(source, tips, had, set(here.knowledge.tips()) - had)
    before, here.sent = PushOutcome([], []), sent
    body: PushSource = wanted
    if had.issuperset(tips):
        body = EmptyBody()
    elif system.ghosts:  # A stored revision may lack ancestors, so that all are sent.
        whole = source.plan(tips, ())
        body = Relay(_Segments(whole), len(whole.graph), sum(whole.sizes), sent)
    elif source.size > PART:
        lacking = _lacking(wanted, here) if may_ask else wanted.plan((), ())
        if sum(lacking.sizes) > PART:
            requests = copied.requests(here.knowledge, force=force)
            if len(requests) > 1:
                new = msgspec.structs.replace(new, part=CopyPart.MORE)  # Nobody sees a part of it.
            # The graph is enough to refuse a ref, as one that diverged: nothing else is sent then.
            refused = here.push(PushRequest(requests[0][0], wanted, new, check_only=True))
            if len(requests) == 1 and refused.refs and all(outcome.error for outcome in refused.refs):
                return refused, 0
            before = _bring_parts(wanted, lacking, here, new)
    pushed, kept = copy(copied, body, new, here, force=force)
    revisions, created = before.revisions + pushed.revisions, before.created or pushed.created
    return msgspec.structs.replace(pushed, revisions=revisions, created=created), kept


def _lacking(wanted: _Wanted, here: RemoteRepository) -> SizedPlan:
    """The plan for what the target lacks; for a long plan it is asked as often as that says more."""
    lacking = wanted.plan((), ())
    # What an interrupted load has stored is the begin of it: a few questions find where that ends.
    is_exact = False
    while not is_exact and sum(lacking.sizes) > PART:
        step = -(-len(lacking.graph) // MAX_HAVES)
        asked = [node.revision for node in lacking.graph[::step]]
        learnt = here.pull(asked, refs=[]).common(asked)
        is_exact = not learnt or len(asked) == len(lacking.graph)
        wanted.had.update(learnt)
        lacking = wanted.plan((), ())
    return lacking


def _bring_parts(wanted: _Wanted, lacking: SizedPlan, here: RemoteRepository, new: NewRepository) -> PushOutcome:
    """Bring what the target lacks, but for the last part, and what became of it."""
    revisions, created, sent = 0, False, here.sent
    size = done = 0
    for part, length in _parts(lacking):
        here.sent = partial(_shifted, sent, size, done, len(lacking.graph))
        size, done = size + length, done + len(part)
        if done == len(lacking.graph):
            break
        parents = {parent.id for node in part for parent in node.parents}
        heads = [node.revision for node in part if node.revision not in parents]
        with of_records():
            pushed = here.push(PushRequest([], replace(wanted, tips=heads), new))
        wanted.had.update(heads)
        revisions, created = revisions + pushed.revisions, created or pushed.created
    return PushOutcome([], [], revisions, created)


def _parts(plan: SizedPlan) -> Iterator[tuple[Sequence[GraphNode], int]]:
    """A plan in parts of at most `PART` bytes, or one larger revision; each with its bytes."""
    begin = size = 0
    for at, length in enumerate(plan.sizes):
        if size and size + length > PART:
            yield plan.graph[begin:at], size
            begin, size = at, 0
        size += length
    yield plan.graph[begin:], size


def _shifted(sent: OnSent, before: int, done: int, whole: int, size: int, of_part: int, _total: int) -> None:
    """Say how far a part is, with so many bytes and revisions in front of it."""
    sent(before + size, done + of_part, whole)
