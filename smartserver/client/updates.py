"""Updates of refs and maps that a push requests, as calls, and their outcomes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from smartserver.errors import NotDone
from smartserver.records.model import Kind, RevisionId, Tip
from smartserver.verbs.branch_add_heads import AddHeadsRequest, AddHeadsResult, NewHead, branch_add_heads
from smartserver.verbs.branch_create import BranchCreateRequest, BranchCreateResult, branch_create
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.branch_set_last_revision import (
    SetLastRevisionRequest,
    SetLastRevisionResult,
    branch_set_last_revision,
)
from smartserver.verbs.declare import AnyVerb, Arguments, Result
from smartserver.verbs.repository_create import CopyPart, CreateResult
from smartserver.verbs.repository_insert_pack import InsertPackResult
from smartserver.verbs.rules import Create, Growth, Rule
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.verbs.map_update import EntryOutcome, MapUpdateRequest, MapUpdateResult


class RefUpdate(msgspec.Struct, frozen=True):
    """A ref to be moved, created, or (with `tip` None) deleted. `expected` is for the rule `lease`; None means no
    expectation. With `create` MUST no rule applies: the ref is created, or exists with this tip already."""

    ref: bytes
    tip: RevisionId | None
    rule: Rule = Rule.FF
    create: Create = Create.YES
    expected: bytes | None = None
    attributes: bytes = b""
    """Attributes of the new tip; the store does not read them."""
    heads: Sequence[Tip] = ()
    """Tips to add, `tip` among them, to a ref that may have several. `growth` applies to them, and no rule."""
    growth: Growth = Growth.NONE

    @property
    def stays(self) -> bool:
        """True if the update only requires that the ref does not move, so that no revisions are sent for it."""
        return self.rule is Rule.LEASE and self.create is not Create.MUST and self.tip == self.expected


class Outcome(enum.Enum):
    """The outcomes that an update may have."""

    DONE = "done"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


class UpdateOutcome(msgspec.Struct, frozen=True):
    """The outcome of one update. `old`: the tip before it. `error`: the reason for a refusal."""

    update: RefUpdate
    outcome: Outcome
    old: bytes = b""
    error: CodedError | None = None


class MapUpdateOutcome(msgspec.Struct, frozen=True):
    """The outcomes of the entries of a map. The list is empty if the update was refused with `error`."""

    update: MapUpdateRequest
    entries: list[EntryOutcome]
    error: CodedError | None = None


class PushOutcome(msgspec.Struct, frozen=True):
    """The outcome of each update, in their order, and the number of new revisions."""

    refs: list[UpdateOutcome]
    maps: list[MapUpdateOutcome]
    revisions: int = 0
    """Revisions that are new to the remote."""
    created: bool = False
    """True if the repository was created."""

    def error(self) -> CodedError | None:
        """Return the first error of a refused update, or None. `NotDone` is returned only if there is no other error,
        because it means that another update failed."""
        said = [*[outcome.error for outcome in self.refs], *[outcome.error for outcome in self.maps]]
        errors = [error for error in said if error is not None]
        return next((error for error in errors if not isinstance(error, NotDone)), errors[0] if errors else None)


class NewRepository(msgspec.Struct, frozen=True):
    """The form of the repository that a push creates if the remote is missing."""

    vcs: str
    kinds: Sequence[Kind]
    settings: dict[str, bytes] = msgspec.field(default_factory=dict)
    exclusive: bool = False
    """True if an existing repository is an error."""
    part: CopyPart = CopyPart.WHOLE
    """The role of this request in a copy. If a copy takes several requests, each has the whole form of the
    repository."""


def call_of(update: RefUpdate) -> tuple[AnyVerb, Arguments]:
    """Return the call for an update of a ref."""
    if update.tip is None:
        return branch_delete, BranchDeleteRequest(update.ref, update.expected)
    if update.heads:
        heads = [NewHead(tip.id, tip.attributes, tip.closed) for tip in update.heads]
        create = update.create is not Create.NO
        return branch_add_heads, AddHeadsRequest(update.ref, heads, update.growth, create)
    if update.create is Create.MUST:
        return branch_create, BranchCreateRequest(update.ref, update.tip, update.attributes)
    create = update.create is Create.YES
    return branch_set_last_revision, SetLastRevisionRequest(
        update.ref, update.tip, update.rule, create, update.expected or b"", update.attributes
    )


def brought(results: Sequence[Result | CodedError]) -> tuple[int, bool]:
    """Return the number of revisions that one request stored, and True if it created the repository."""
    new = sum(result.new for result in results if isinstance(result, InsertPackResult))
    return new, any(result.created for result in results if isinstance(result, CreateResult))


def updated(update: RefUpdate, result: Result | CodedError) -> UpdateOutcome:
    """Return the outcome of an update, from the result of its call."""
    if isinstance(result, CodedError):
        return UpdateOutcome(update, Outcome.REFUSED, error=result)
    if isinstance(result, AddHeadsResult):
        outcome = Outcome.DONE if result.new else Outcome.UNCHANGED
        return UpdateOutcome(update, outcome, result.old[0] if result.old else b"")
    old = b""
    if isinstance(result, BranchCreateResult) and not result.created:
        old = update.tip or b""
    elif isinstance(result, (SetLastRevisionResult, BranchDeleteResult)) and result.old:
        old = result.old[0]
    return UpdateOutcome(update, Outcome.UNCHANGED if old == (update.tip or b"") else Outcome.DONE, old)


def map_updated(update: MapUpdateRequest, result: Result | CodedError) -> MapUpdateOutcome:
    """Return the outcome of an update of a map, from the result of its call."""
    if isinstance(result, CodedError):
        return MapUpdateOutcome(update, [], result)
    return MapUpdateOutcome(update, cast("MapUpdateResult", result).entries)
