"""`RemoteRepository`: pull and push as single requests.

A push goes out on what is known of the remote; where that was wrong the refusal carries what is right, and the push
is planned again: one more round trip, and what the server holds is not sent twice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from smartserver.client.body import Plan, announcing, sending, unpacked
from smartserver.client.call import Answer, BodySource, Client, NotOurProtocol, Outgoing, Refusal
from smartserver.client.content import Part, read_content
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import MediumError
from smartserver.errors import (
    KnownRevisions,
    MissingBase,
    MissingParents,
    MissingRevision,
    NestedRepository,
    NoSuchBranch,
    NoSuchRepository,
    NotDone,
    OutcomeUnknown,
    WrongVcs,
)
from smartserver.records.check import KINDS_OF
from smartserver.records.model import Key, Kind, RevisionId, Tip
from smartserver.store.model import What
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.branch_set_last_revision import (
    SetLastRevisionRequest,
    SetLastRevisionResult,
    branch_set_last_revision,
)
from smartserver.verbs.declare import AnyVerb, Arguments, Result
from smartserver.verbs.fields import HERE
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_open import OpenRequest, OpenResult, repository_open
from smartserver.verbs.repository_pull import (
    ChosenField,
    InsideField,
    PullRequest,
    PullResult,
    TreesField,
    repository_pull,
)
from smartserver.verbs.repository_stats import StatsRequest, StatsResult, repository_stats
from smartserver.verbs.rules import Create, Rule
from smartserver.wire.errors import ProtocolError, RemoteProtocolError
from smartserver.wire.messages import Advice, RequestFlag, State
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.verbs.map_update import EntryOutcome, MapUpdateRequest, MapUpdateResult

PLANS = 4
"""Times a push is planned: at first, after `known`, after `missing-base`, and once more for a remote made anew."""


class PushSource(Protocol):
    """The local repository a push reads."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """What the remote lacks of `tips` when it holds `haves`; those that are not here are ignored."""


class RefUpdate(msgspec.Struct, frozen=True):
    """One ref to be moved, made, or (`tip` None) removed; `expected` is for the rule `lease`, None: no expectation."""

    ref: bytes
    tip: RevisionId | None
    rule: Rule = Rule.FF
    create: Create = Create.YES
    expected: bytes | None = None
    attributes: bytes = b""
    """Of the new tip; the store does not read them."""


class Outcome(enum.Enum):
    """What became of an update."""

    DONE = "done"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


class Updated(msgspec.Struct, frozen=True):
    """What became of one update; `old` is what the ref held before, `error` why it was refused."""

    update: RefUpdate
    outcome: Outcome
    old: bytes = b""
    error: CodedError | None = None


class MapUpdated(msgspec.Struct, frozen=True):
    """What became of each entry of a map; none where `error` says why the update was refused."""

    update: MapUpdateRequest
    entries: list[EntryOutcome]
    error: CodedError | None = None


class Pushed(msgspec.Struct, frozen=True):
    """What became of each update, in their order."""

    refs: list[Updated]
    maps: list[MapUpdated]


class NewRepository(msgspec.Struct, frozen=True):
    """What a repository is made as when the push finds none."""

    vcs: str
    kinds: Sequence[Kind]
    settings: dict[str, bytes] = msgspec.field(default_factory=dict)


class Pulled(msgspec.Struct, frozen=True):
    """The answer to a pull: the state is in the knowledge, the body comes as it is read."""

    result: PullResult
    body: Iterator[bytes]
    stats: StatsResult | None = None


class Content(msgspec.Struct, frozen=True):
    """The answer to a read of less than whole revisions; the parts come as they are read."""

    result: PullResult
    stats: StatsResult | None
    parts: Iterator[Part]


class RemoteRepository:
    """One repository on a server."""

    def __init__(self, client: Client, path: str, knowledge: Knowledge, *, below: bool = False) -> None:
        """`below`: the path may lead to a branch below a repository, and into it; the ref `.` is that branch."""
        self.knowledge = knowledge
        self._client = client
        self._path = path
        self._below = below
        self.asks_for_advice = False
        """Whether the server is told who asks although it is known: it can say then that there is a newer client."""
        self.advised: Callable[[Sequence[Advice]], None] = lambda advice: None
        """Called with what the server would have the user know, where it says something."""

    # -- pull

    def learn_refs(self, *, stats: bool = False) -> StatsResult | None:
        """Ask for the refs; they are in the knowledge then. `stats`: and for what the repository consists of.

        Raises:
            CodedError: the server refused.
            MediumError, RemoteProtocolError, NotOurProtocol: there was no answer.
        """
        return self._pull(PullRequest(What.REFS), [(repository_stats, StatsRequest())] if stats else []).stats

    def pull(
        self,
        haves: Sequence[RevisionId] = (),
        refs: Sequence[bytes] | None = None,
        ids: Sequence[RevisionId] = (),
        follow: Sequence[bytes] = (),
        absent: Sequence[RevisionId] = (),
        *,
        bulk: bool = False,
        chosen: ChosenField | None = None,
    ) -> Pulled:
        """Learn the refs and receive what `refs` and `ids` reach and `haves` do not.

        The arguments are those of `Repository.pull`: with `chosen` it is what that one reaches. The body is segments,
        whether they travel as a bulk stream or not; one that is damaged raises Malformed as it is read.

        Raises:
            CodedError: the server refused.
            MediumError, RemoteProtocolError, NotOurProtocol: there was no answer.
        """
        wanted = None if refs is None else list(refs)
        pulled = self._pull(
            PullRequest(
                What.HISTORY,
                list(haves),
                wanted,
                list(ids),
                list(absent),
                follow=list(follow),
                chosen=chosen,
                bulk=bulk,
            )
        )
        return Pulled(pulled.result, unpacked(pulled.body)) if bulk else pulled

    def read(
        self,
        chosen: ChosenField | None = None,
        trees: TreesField | None = None,
        refs: Sequence[bytes] | None = (HERE,),
        ids: Sequence[RevisionId] = (),
        haves: Sequence[RevisionId] = (),
        inside: InsideField | None = None,
        *,
        stats: bool = False,
    ) -> Content:
        """Receive what revisions say of themselves, and trees or parts of them; learn the refs.

        The arguments are those of `Repository.pull`; where neither `chosen` nor `trees` is given, all that the refs
        and `ids` reach say of themselves. `stats`: ask what the repository consists of, too.

        Raises:
            CodedError: the server refused.
            MediumError, RemoteProtocolError, NotOurProtocol: there was no answer.
        """
        what = What.REVISIONS if trees is None else What.TREE
        wanted = None if refs is None else list(refs)
        request = PullRequest(what, list(haves), wanted, list(ids), chosen=chosen, trees=trees, inside=inside)
        pulled = self._pull(request, [(repository_stats, StatsRequest())] if stats else [])
        return Content(pulled.result, pulled.stats, read_content(pulled.body, KINDS_OF.get(self.knowledge.vcs, ())))

    def _pull(self, request: PullRequest, before: Sequence[tuple[AnyVerb, Arguments]] = ()) -> Pulled:
        answer = self.ask(*before, (repository_pull, request))
        result = answer.results[-1]
        if isinstance(result, CodedError):
            raise result
        stats = next((each for each in answer.results if isinstance(each, StatsResult)), None)
        return Pulled(cast("PullResult", result), answer.body, stats)

    # -- anything

    def ask(self, *calls: tuple[AnyVerb, Arguments]) -> Answer:
        """Make calls on this repository, in one request, and learn what the answer says of it.

        Raises:
            CodedError: the server refused the request.
            OutcomeUnknown: as `Client.request`.
            MediumError, RemoteProtocolError, NotOurProtocol: there was no answer, and no change was made.
        """
        outgoing = self._request(list(calls))
        try:
            answer = self._client.request(outgoing)
        except Refusal as refusal:
            self._learn_refusal(refusal)
            raise refusal.error from None
        self._learn_of(outgoing, answer)
        return msgspec.structs.replace(answer, results=answer.results[-len(calls) :])

    # -- push

    def push(
        self,
        updates: Sequence[RefUpdate],
        source: PushSource,
        new: NewRepository | None = None,
        *,
        atomic: bool = False,
        check_only: bool = False,
        bulk: bool = False,
        on_plan: Callable[[int], None] = lambda revisions: None,
    ) -> list[Updated]:
        """Move refs and bring what they need, in one request; `new` allows the repository to be made.

        `bulk`: as a bulk stream, where that is shorter.

        Raises:
            CodedError: the whole push was refused.
            OutcomeUnknown: as `Client.request`.
            MediumError, RemoteProtocolError, NotOurProtocol: there was no answer, and no change was made.
        """
        pushed = self.push_all(
            updates, (), source, new, atomic=atomic, check_only=check_only, bulk=bulk, on_plan=on_plan
        )
        return pushed.refs

    def push_all(
        self,
        updates: Sequence[RefUpdate],
        maps: Sequence[MapUpdateRequest],
        source: PushSource,
        new: NewRepository | None = None,
        *,
        atomic: bool = False,
        check_only: bool = False,
        bulk: bool = False,
        on_plan: Callable[[int], None] = lambda revisions: None,
    ) -> Pushed:
        """As `push`, and change maps after the refs.

        Raises:
            CodedError: the whole push was refused.
            OutcomeUnknown, MediumError, RemoteProtocolError, NotOurProtocol: as `push`.
        """
        if not updates and not maps:
            return Pushed([], [])
        haves = self.knowledge.tips()
        unusable: set[Key] = set()
        tips = [update.tip for update in updates if update.tip is not None]
        # Where another system was seen, making it is what the server refuses by name.
        creating = new if new is None or self.knowledge.vcs != new.vcs else None
        for attempt in range(PLANS):
            last = attempt == PLANS - 1
            plan = source.plan(tips, haves)
            if unusable:
                plan = plan.without_bases(unusable)
            on_plan(len(plan.graph))
            outgoing = self._outgoing(updates, maps, plan, creating, atomic=atomic, check_only=check_only, bulk=bulk)
            try:
                answer = self._client.request(outgoing)
            except Refusal as refusal:
                self._learn_refusal(refusal)
                error = refusal.error
                if last:
                    return self._refused(updates, maps, refusal, outgoing)
                if isinstance(error, KnownRevisions):
                    settled = self._settled(updates) if not maps else None
                    if settled is not None:
                        return Pushed(settled, [])
                    haves = [*error.tips, *self.knowledge.tips()]
                    creating = None
                elif isinstance(error, MissingBase):
                    unusable.update(error.keys)
                elif _names(refusal, NoSuchRepository) and new is not None and creating is None:
                    self.knowledge.forget()
                    haves, creating = [], new
                elif attempt == 0 and self._below and isinstance(error, NestedRepository):
                    pass  # Somebody made one above it meanwhile, of which this may be a branch.
                elif attempt == 0 and (isinstance(error, MissingParents) or _names(refusal, MissingRevision)):
                    # The remote was made anew or restored: only what it says it has now counts.
                    haves = [tip.id for value in self.knowledge.refs().values() for tip in value]
                else:
                    return self._refused(updates, maps, refusal, outgoing)
                continue
            self._learn_of(outgoing, answer)
            of_maps = len(answer.results) - len(maps)
            mapped = [_mapped(*each) for each in zip(maps, answer.results[of_maps:], strict=True)]
            done = self._updated(updates, answer.results[of_maps - len(updates) : of_maps])
            lacking = [number for number, each in enumerate(done) if isinstance(each.error, MissingRevision)]
            later = [number for number, each in enumerate(mapped) if lacking and isinstance(each.error, NoSuchBranch)]
            if lacking and len(lacking) + len(later) < len(updates) + len(maps):
                # Made anew, and something could be done there all the same: what is known now plans the rest.
                rest, of_rest = [updates[number] for number in lacking], [maps[number] for number in later]
                try:
                    again = self.push_all(
                        rest,
                        of_rest,
                        source,
                        new,
                        atomic=atomic,
                        check_only=check_only,
                        bulk=bulk,
                        on_plan=on_plan,
                    )
                except OutcomeUnknown as unknown:
                    again = Pushed(
                        [msgspec.structs.replace(done[number], error=unknown) for number in lacking],
                        [msgspec.structs.replace(mapped[number], error=unknown) for number in later],
                    )
                except (CodedError, MediumError, ProtocolError, NotOurProtocol):
                    return Pushed(done, mapped)  # What was done is done, and why the rest was not is said already.
                for number, each in zip(lacking, again.refs, strict=True):
                    done[number] = each
                for number, one in zip(later, again.maps, strict=True):
                    mapped[number] = one
            return Pushed(done, mapped)
        raise AssertionError("the last attempt returns or raises")

    def _outgoing(
        self,
        updates: Sequence[RefUpdate],
        maps: Sequence[MapUpdateRequest],
        plan: Plan,
        creating: NewRepository | None,
        *,
        atomic: bool,
        check_only: bool,
        bulk: bool,
    ) -> Outgoing:
        calls: list[tuple[AnyVerb, Arguments]] = []
        flags = RequestFlag.ATOMIC if atomic else RequestFlag.NONE
        if creating is not None:
            kinds = [KindField(kind.name, kind.check, kind.base) for kind in creating.kinds]
            calls.append((repository_create, CreateRequest(creating.vcs, kinds, creating.settings)))
        body: BodySource | None = None
        if plan.graph:
            calls.append((repository_insert_pack, InsertPackRequest()))
            flags |= RequestFlag.BODY
            if check_only:
                flags |= RequestFlag.GRAPH_FIRST
                body = announcing(plan)
            else:
                of_body, body = sending(plan, bulk=bulk)
                flags |= of_body
        if check_only:
            flags |= RequestFlag.CHECK_ONLY
        calls += [_call(update) for update in updates]
        if maps:
            from smartserver.verbs.map_update import map_update  # Which git's user never needs.

            calls += [(map_update, update) for update in maps]
        return self._request(calls, flags, body, at=creating is not None)

    def _request(
        self,
        calls: list[tuple[AnyVerb, Arguments]],
        flags: RequestFlag = RequestFlag.NONE,
        body: BodySource | None = None,
        at: int = 0,
    ) -> Outgoing:
        """A request of these calls; the one that asks where the repository is, if that is to be asked, comes `at`."""
        if self._below:
            calls.insert(at, (repository_open, OpenRequest()))
            flags |= RequestFlag.BELOW
        says_agent = self.knowledge.is_old or self.asks_for_advice
        return Outgoing(self._path, calls, flags, self.knowledge.known, body, says_agent)

    def _settled(self, updates: Sequence[RefUpdate]) -> list[Updated] | None:
        """The outcome of updates that ask for what is there already, or None when one does not."""
        for update in updates:
            name = self.knowledge.named if self._below and update.ref == HERE else update.ref
            if name is None:
                return None
            value = self.knowledge.ref(name)
            tip = None if update.tip is None else Tip(update.tip, update.attributes)
            if (value[0] if value else None) != tip:
                return None
        return [Updated(update, Outcome.UNCHANGED, update.tip or b"") for update in updates]

    def _updated(self, updates: Sequence[RefUpdate], results: Sequence[Result | CodedError]) -> list[Updated]:
        return [_outcome(update, result) for update, result in zip(updates, results, strict=True)]

    def _refused(
        self,
        updates: Sequence[RefUpdate],
        maps: Sequence[MapUpdateRequest],
        refusal: Refusal,
        outgoing: Outgoing,
    ) -> Pushed:
        """Each update's own refusal; where the request as a whole was refused, that error.

        Raises:
            CodedError: the whole push was refused.
        """
        if len(refusal.outcomes) != len(outgoing.calls):
            if len(outgoing.calls) > 1 or isinstance(refusal.error, OutcomeUnknown):
                raise refusal.error
            errors: Sequence[CodedError | None] = [refusal.error]
        else:
            errors = refusal.outcomes[-len(updates) - len(maps) :]
        causes = [error or NotDone() for error in errors]
        of_refs, of_maps = causes[: len(updates)], causes[len(updates) :]
        return Pushed(
            [Updated(each, Outcome.REFUSED, error=error) for each, error in zip(updates, of_refs, strict=True)],
            [MapUpdated(each, [], error) for each, error in zip(maps, of_maps, strict=True)],
        )

    # -- knowledge

    def _learn_of(self, outgoing: Outgoing, answer: Answer) -> None:
        if answer.state is None:
            return
        opened = next((result for result in answer.results if isinstance(result, OpenResult)), None)
        try:
            self.knowledge.learn(answer.state, answer.capabilities, opened)
        except RemoteProtocolError as wrong:
            if not outgoing.mutates:
                raise
            # What else it says is not to be believed either.
            raise OutcomeUnknown(str(wrong)) from wrong
        if answer.advice:
            self.advised(answer.advice)

    def _learn_refusal(self, refusal: Refusal) -> None:
        state: State | None = refusal.state
        if state is not None and not isinstance(refusal.error, WrongVcs):
            self.knowledge.learn(state)


def _call(update: RefUpdate) -> tuple[AnyVerb, Arguments]:
    if update.tip is None:
        return branch_delete, BranchDeleteRequest(update.ref, update.expected)
    return branch_set_last_revision, SetLastRevisionRequest(
        update.ref, update.tip, update.rule, update.create, update.expected or b"", update.attributes
    )


def _outcome(update: RefUpdate, result: Result | CodedError) -> Updated:
    if isinstance(result, CodedError):
        return Updated(update, Outcome.REFUSED, error=result)
    old = b""
    if isinstance(result, (SetLastRevisionResult, BranchDeleteResult)) and result.old:
        old = result.old[0]
    return Updated(update, Outcome.UNCHANGED if old == (update.tip or b"") else Outcome.DONE, old)


def _mapped(update: MapUpdateRequest, result: Result | CodedError) -> MapUpdated:
    if isinstance(result, CodedError):
        return MapUpdated(update, [], result)
    return MapUpdated(update, cast("MapUpdateResult", result).entries)


def _names(refusal: Refusal, error: type[CodedError]) -> bool:
    """Whether a request, or one of its calls, was refused for that."""
    return any(isinstance(each, error) for each in (refusal.error, *refusal.outcomes))
