"""A push, planned on the client's knowledge of the remote.

If the knowledge was wrong, the refusal carries the current state and the push is planned again. This costs one more
round trip, and no record that the server already has is sent twice.
"""

# Theory of operation
# ===================
#
# A push in one round trip must be planned without asking. So `Push` plans on what earlier answers said of the remote
# (`client.knowledge`), sends the plan with its conditions, and lets the server decide. Nearly every answer and refusal
# carries the remote's state, which updates the knowledge. If the plan was wrong, it is made again.
#
# The parts, in the order of `run`:
#
# 1) `_plan`: the source says which revisions the remote lacks, given `_haves`, the ids that the remote is taken to
#    have.
# 2) `_outgoing`: the calls of the request. Create the repository, if it is not known; bring the pack; move refs;
#    change maps. A long body begins with the graph of its revisions, so that the server can refuse before the records
#    come, if nothing could be done.
# 3) `exchange`: an answer, which `_done` splits into one outcome for each update; or a refusal.
# 4) `_learns`: does the refusal say something that makes another plan worth while? Then `_haves`, `_creating`,
#    `_unusable` or `_bulk` change, and the loop begins again. Else `_refused` gives each update its own error.
#
# Rules:
#
# 1) A wrong guess may cost one round trip, never correctness. The server's conditions decide, not the knowledge.
# 2) There are at most `PLANS` plans. The last one announces no graph, so that it cannot be answered by `known` again.
# 3) Nothing is decided here from an error's text. Each reason to plan again is a class of error.
#
# The hard cases:
#
# - *The remote was recreated or restored.* It lacks revisions that it is remembered to have, so the refusal is
#   `missing-parents`. Only the tips that this answer names count then, and only for the first plan: if they are the
#   same as before, another plan would be refused, too.
# - *The remote was recreated, and some updates were possible all the same.* `_done` has successes and `missing-
#   revision` side by side. The rest is a second push; if it fails, what was done stays done.
# - *Others push the same revisions concurrently.* Each plan is answered by `known`. `_is_settled` notices that
#   everything is there already.
# - *A lost answer* is not settled here: `client.call` repeats the request, and `client.certainty` says what is known.
#
# What is ugly: the outcomes of calls are matched to updates by position, counted from the end (`_parted`), because
# the calls before them differ from plan to plan.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from smartserver.client.body import EmptyBody, Relay, announcing, reported, sending
from smartserver.client.exchange import RepositoryExchange
from smartserver.client.medium import MediumError
from smartserver.client.request import Answer, BodySource, NotOurProtocol, Outgoing, Refusal
from smartserver.client.updates import (
    MapUpdateOutcome,
    NewRepository,
    Outcome,
    PushOutcome,
    RefUpdate,
    UpdateOutcome,
    brought,
    call_of,
    map_updated,
    updated,
)
from smartserver.errors import (
    KnownRevisions,
    LimitExceeded,
    MissingBase,
    MissingParents,
    MissingRevision,
    NestedRepository,
    NoSuchBranch,
    NoSuchRepository,
    NotDone,
    OutcomeUnknown,
)
from smartserver.records.model import GraphNode, Key, Plan, RevisionId, Tip
from smartserver.spans import Part, span
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_create import CopyPart, CreateRequest, KindField, repository_create
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.wire.errors import ProtocolError
from smartserver.wire.limits import BULK_BYTES
from smartserver.wire.messages import RequestFlag
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.verbs.map_update import MapUpdateRequest

T = TypeVar("T")

PLANS = 4
"""The most plans of a push: the first, one after `known`, and one after `missing-base`. The fourth is for a recreated
remote, or for concurrent pushes of the same revisions."""


Changes = tuple[Sequence[RefUpdate], "Sequence[MapUpdateRequest]"]
"""Changes of refs, and of maps after them."""


class PushSource(Protocol):
    """The local repository that a push reads."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """Return the plan for the revisions that `tips` reach and a remote with `haves` lacks. Haves that are missing
        locally are ignored."""


class PushRequest(msgspec.Struct, frozen=True):
    """The updates that a push makes, and their conditions."""

    updates: Sequence[RefUpdate]
    """The refs to update. If there are none, only revisions are pushed, which no ref reaches yet."""
    source: PushSource = EmptyBody()
    new: NewRepository | None = None
    """The form of the repository that is created if the remote is missing; None if no repository is to be created."""
    maps: Sequence[MapUpdateRequest] = ()
    """The changes of maps, made after those of the refs."""
    maps_first: bool = False
    """True if maps are changed before the refs, because the rules of refs depend on the maps."""
    atomic: bool = False
    check_only: bool = False
    options: Sequence[str] = ()
    """Push options, for the hooks of the server."""
    bulk: bool = False
    """True to send the body as a bulk stream, if that is shorter."""
    is_likely: bool = False
    """True if the remote probably exists and has some of the revisions. If the client has no knowledge of the remote,
    it then requests its refs before a long push."""
    replan: Callable[[], Changes] | None = None
    """A function that returns new changes if the remote is not as expected."""


class Push:
    """One push; `run` makes it."""

    def __init__(self, remote: RepositoryExchange, request: PushRequest) -> None:
        self._remote = remote
        self._request = request
        self._bulk = request.bulk
        """True to send a bulk stream. It is set to False if a bulk stream was too large."""
        known = remote.knowledge
        self._is_likely = request.is_likely and not known.met
        self._haves = known.tips()
        """The revisions that the remote is assumed to have."""
        self._creating = self._to_be_made()
        """The form of the repository to create if it is assumed not to exist, else None."""
        self._unusable: set[Key] = set()
        """Records that the remote cannot use as delta bases."""

    def run(self) -> PushOutcome:
        """Send the push, with at most `PLANS` plans, and return the outcome."""
        for left in reversed(range(PLANS)):
            # Concurrent pushes of the same revisions may get each plan answered by `known`. The last plan announces no
            # graph, so that it is accepted as it is.
            plan = self._plan()
            if not (self._request.updates or self._request.maps or self._creating or plan.graph):
                return PushOutcome([], [])
            outgoing = self._outgoing(plan, announced=left > 0)
            if self._is_likely and outgoing.flags & RequestFlag.GRAPH_FIRST and self._meets(plan):
                outgoing = self._outgoing(self._plan(), announced=left > 0)
            try:
                answer = self._remote.exchange(outgoing)
            except Refusal as refusal:
                left = 0 if isinstance(plan, Relay) else left
                if left and isinstance(refusal.error, KnownRevisions) and self._is_settled():
                    updates = self._request.updates
                    return PushOutcome(
                        [UpdateOutcome(update, Outcome.UNCHANGED, update.tip or b"") for update in updates], []
                    )
                if left and self._learns(refusal, outgoing.flags, is_first=left == PLANS - 1):
                    self._replan()
                    continue
                return self._refused(refusal, outgoing)
            return self._done(answer)
        raise AssertionError("the last attempt returns or raises")

    def _to_be_made(self) -> NewRepository | None:
        # If a repository of another system was seen, the server must refuse the creation with a clear error.
        new = self._request.new
        if new is None or new.part is not CopyPart.WHOLE:
            return new
        return new if self._remote.knowledge.vcs != new.vcs else None

    def _meets(self, plan: Plan) -> bool:
        """Ask which revisions of a long push the remote has, before much is sent. Return False if that is refused."""
        self._is_likely = False
        asked = [node.revision for node in _spread(plan.graph)]
        try:
            pulled = self._remote.pull(asked, refs=[])  # It wants nothing, so the answer only says which it has.
        except CodedError:
            return False  # The push will get the same error.
        self._haves = [*self._remote.knowledge.tips(), *pulled.common(asked)]
        self._creating = self._to_be_made()
        self._replan()
        return True

    def _replan(self) -> None:
        if self._request.replan is not None:
            updates, maps = self._request.replan()
            self._request = msgspec.structs.replace(self._request, updates=updates, maps=maps)

    def _plan(self) -> Plan:
        updates = self._request.updates
        tips = [update.tip for update in updates if update.tip is not None and not update.stays]
        tips += [tip.id for update in updates for tip in update.heads if tip.id != update.tip]
        with span(Part.LOCAL, "plan"):
            plan = self._request.source.plan(tips, self._haves)
        if self._unusable:
            plan = plan.without_bases(self._unusable)
        return plan

    def _outgoing(self, plan: Plan, *, announced: bool) -> Outgoing:
        calls: list[tuple[AnyVerb, Arguments]] = []
        flags = RequestFlag.ATOMIC if self._request.atomic else RequestFlag.NONE
        if self._creating is not None:
            new = self._creating
            kinds = [KindField(kind.name, kind.check, kind.base) for kind in new.kinds]
            calls.append((repository_create, CreateRequest(new.vcs, kinds, new.settings, new.exclusive, new.part)))
        of_body, body = self._body(plan, announced=announced)
        if body is not None:
            calls.append((repository_insert_pack, InsertPackRequest()))
            flags |= RequestFlag.BODY | of_body
        if self._request.check_only:
            flags |= RequestFlag.CHECK_ONLY
        refs: list[tuple[AnyVerb, Arguments]] = [call_of(update) for update in self._request.updates]
        maps: list[tuple[AnyVerb, Arguments]] = []
        if self._request.maps:
            from smartserver.verbs.map_update import map_update  # Some systems never need it.

            maps += [(map_update, update) for update in self._request.maps]
        calls += [*maps, *refs] if self._request.maps_first else [*refs, *maps]
        return self._remote.outgoing(calls, flags, body, self._creating is not None, self._request.options)

    def _body(self, plan: Plan, *, announced: bool) -> tuple[RequestFlag, BodySource | None]:
        if isinstance(plan, Relay):
            return RequestFlag.NONE, plan if plan.count else None
        if not plan.graph:
            return RequestFlag.NONE, None
        if self._request.check_only:
            return RequestFlag.GRAPH_FIRST, announcing(plan)
        form, body = sending(plan, bulk=self._bulk, announced=announced)
        return form, reported(body, len(plan.graph), self._remote.sent)

    # -- after a refusal

    def _is_settled(self) -> bool:
        """Tell whether the remote already has everything that the push would change."""
        updates = self._request.updates
        if not updates or self._request.maps or self._to_be_made() is not None:
            return False
        return all(self._is_there(update) for update in updates)

    def _is_there(self, update: RefUpdate) -> bool:
        name = self._remote.name_of(update.ref)
        if name is None or (update.tip is None and update.expected):
            return False  # A missing ref is not at the expected tip, which the server reports.
        value = self._remote.knowledge.ref(name)
        if update.heads:
            return {tip.id for tip in update.heads} <= {tip.id for tip in value or ()}
        tip = None if update.tip is None else Tip(update.tip, update.attributes)
        return (value[0] if value else None) == tip

    def _learns(self, refusal: Refusal, flags: RequestFlag, *, is_first: bool) -> bool:
        """Tell whether another plan is worthwhile after a refusal, and record what the error reveals of the server."""
        error, known, new = refusal.error, self._remote.knowledge, self._request.new
        if new is not None and new.exclusive:
            return False
        if new is not None and self._creating is None and known.vcs and known.vcs != new.vcs:
            # It was recreated for another system: creating it gets a clear error, whatever error the body got.
            self._creating = new
        elif isinstance(error, KnownRevisions):
            self._haves = [*error.tips, *known.tips()]
            self._creating = self._to_be_made()
        elif isinstance(error, LimitExceeded) and error.what == BULK_BYTES and flags & RequestFlag.BULK:
            self._bulk = False  # Very repetitive content exceeds the limit of a stream: `wire.limits`.
        elif isinstance(error, MissingBase):
            self._unusable.update(error.keys)
        elif _names(refusal, NoSuchRepository) and new is not None and self._creating is None:
            known.forget()
            self._haves, self._creating = [], new
        elif is_first and (isinstance(error, MissingParents) or _names(refusal, MissingRevision)):
            # The remote was recreated or restored: only the tips that it reports now count. If they are the same as
            # before, the same plan would be refused again.
            before, self._haves = set(self._haves), [tip.id for value in known.refs().values() for tip in value]
            return before != set(self._haves)
        else:
            # A repository may have been created above this path meanwhile, so that the path is its branch.
            return is_first and self._remote.below and isinstance(error, NestedRepository)
        return True

    def _refused(self, refusal: Refusal, outgoing: Outgoing) -> PushOutcome:
        """Return an outcome in which each update has the error of its own call. Raise the error of the request if it
        changes no ref or map. If the refusal has no error for each call, also raise it if there are several calls or
        the outcome is unknown."""
        updates, maps = self._request.updates, self._request.maps
        if not updates and not maps:
            raise refusal.error
        if len(refusal.outcomes) != len(outgoing.calls):
            if len(outgoing.calls) > 1 or isinstance(refusal.error, OutcomeUnknown):
                raise refusal.error
            errors: Sequence[CodedError | None] = [refusal.error]
        else:
            errors = refusal.outcomes
        of_refs, of_maps = self._parted([error or NotDone() for error in errors])
        return PushOutcome(
            [
                UpdateOutcome(update, Outcome.REFUSED, error=error)
                for update, error in zip(updates, of_refs, strict=True)
            ],
            [MapUpdateOutcome(update, [], error) for update, error in zip(maps, of_maps, strict=True)],
        )

    def _parted(self, of_calls: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
        """Split the outcomes of calls into those about refs and those about maps."""
        refs, maps = len(self._request.updates), len(self._request.maps)
        found = of_calls[len(of_calls) - refs - maps :]
        return (found[maps:], found[:maps]) if self._request.maps_first else (found[:refs], found[refs:])

    # -- after an answer

    def _done(self, answer: Answer) -> PushOutcome:
        updates, maps = self._request.updates, self._request.maps
        of_refs, of_maps = self._parted(answer.results)
        mapped = [map_updated(*pair) for pair in zip(maps, of_maps, strict=True)]
        done = [updated(*pair) for pair in zip(updates, of_refs, strict=True)]
        lacking = [number for number, outcome in enumerate(done) if isinstance(outcome.error, MissingRevision)]
        later = [number for number, outcome in enumerate(mapped) if lacking and isinstance(outcome.error, NoSuchBranch)]
        revisions, created = brought(answer.results)
        if not lacking or len(lacking) + len(later) == len(updates) + len(maps):
            return PushOutcome(done, mapped, revisions, created)
        # The remote was recreated, but some updates succeeded: the rest is planned on the new knowledge.
        rest = msgspec.structs.replace(
            self._request,
            updates=[updates[number] for number in lacking],
            maps=[maps[number] for number in later],
            bulk=self._bulk,
            replan=None,
        )
        try:
            again = Push(self._remote, rest).run()
        except OutcomeUnknown as unknown:
            again = PushOutcome(
                [msgspec.structs.replace(done[number], error=unknown) for number in lacking],
                [msgspec.structs.replace(mapped[number], error=unknown) for number in later],
            )
        except (CodedError, MediumError, ProtocolError, NotOurProtocol):
            # The successful updates stay done, and `done` has the errors of the others already.
            return PushOutcome(done, mapped, revisions, created)
        for number, of_ref in zip(lacking, again.refs, strict=True):
            done[number] = of_ref
        for number, of_map in zip(later, again.maps, strict=True):
            mapped[number] = of_map
        return PushOutcome(done, mapped, revisions + again.revisions, created or again.created)


def _spread(graph: Sequence[GraphNode]) -> Iterator[GraphNode]:
    """Yield some revisions of a graph, the newest first. Each is a fifth farther from the end than the one before."""
    back = 1
    while back <= len(graph):
        yield graph[-back]
        back += max(1, back // 5)


def _names(refusal: Refusal, error: type[CodedError]) -> bool:
    """Tell whether a request, or one of its calls, was refused with an error of this class."""
    return any(isinstance(reason, error) for reason in (refusal.error, *refusal.outcomes))
