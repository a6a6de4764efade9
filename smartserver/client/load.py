"""Loads a dump into a repository. A load is a copy that sends only what the target lacks, a long one in several parts.

Only the last part changes refs. An interrupted load continues when it is run again: the target is asked which of the
revisions it has.
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
"""Bytes of revisions in one request, unless a single revision is larger: the most that an interrupted load loses."""


class SizedPlan(Plan, Protocol):
    """A plan that knows the length of each revision."""

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each revision."""


class SizedSource(PushSource, Protocol):
    """The source of the revisions in a dump, whose size is known."""

    @property
    def size(self) -> int:
        """An upper limit for the number of bytes that the source sends."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> SizedPlan:
        """Return the plan for the dumped revisions that `tips` reach and `haves` do not."""


@dataclass(frozen=True)
class _Wanted:
    """A source whose plans always include the revisions that `tips` reach, in addition to those that the server asks
    for."""

    source: SizedSource
    tips: Sequence[RevisionId]
    had: set[RevisionId]
    """Revisions that the target has together with all their ancestors."""
    lost: Collection[RevisionId]
    """The revisions that the target once had and no longer has."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> SizedPlan:
        return self.source.plan([*tips, *self.tips], [*self.had, *(have for have in haves if have not in self.lost)])


@dataclass(frozen=True)
class _Segments:
    """The segments of a plan, which can be iterated more than once."""

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
    """Copy the content of a dump into a repository, as `copy` does. `name`: the user's name for the dump.

    Raises:
        CannotCopy: the target is of another version-control system.
        SourceFailed, CodedError, MediumError, ProtocolError, NotOurProtocol: as in `copy`. No ref was changed, but
            parts of a long load may be stored.
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
        here.knowledge.forget()  # Else the push would rely on deleted revisions, and cannot be planned again.
        may_ask = False
    except IncompleteRepository:
        new, may_ask = resumed(here, new), False  # It answers `known` to each part that it has.
    else:
        if here.knowledge.vcs != copied.vcs:
            raise CannotCopy(
                f"{name} is from a repository of {copied.vcs}, but {target.place} is one of {here.knowledge.vcs}"
            )
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
                new = msgspec.structs.replace(new, part=CopyPart.MORE)  # Nobody sees a partial repository.
            # The graph is enough to refuse a ref, such as one that diverged. Then nothing else is sent.
            refused = here.push(PushRequest(requests[0][0], wanted, new, check_only=True))
            if len(requests) == 1 and refused.refs and all(outcome.error for outcome in refused.refs):
                return refused, 0
            before = _bring_parts(wanted, lacking, here, new)
    pushed, kept = copy(copied, body, new, here, force=force)
    revisions, created = before.revisions + pushed.revisions, before.created or pushed.created
    return msgspec.structs.replace(pushed, revisions=revisions, created=created), kept


def _lacking(wanted: _Wanted, here: RemoteRepository) -> SizedPlan:
    """Return the plan for the revisions that the target lacks. For a long plan, ask the target until its answer adds no
    revision."""
    lacking = wanted.plan((), ())
    # An interrupted load has stored the beginning of the plan: a few questions find its end.
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
    """Push the revisions that the target lacks, except for the last part. Return the outcome."""
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
    """Yield the parts of a plan with their sizes. Each part has at most `PART` bytes, or one larger revision."""
    begin = size = 0
    for at, length in enumerate(plan.sizes):
        if size and size + length > PART:
            yield plan.graph[begin:at], size
            begin, size = at, 0
        size += length
    yield plan.graph[begin:], size


def _shifted(sent: OnSent, before: int, done: int, whole: int, size: int, of_part: int, _total: int) -> None:
    """Report the progress of a part that is sent after `before` bytes and `done` revisions."""
    sent(before + size, done + of_part, whole)
