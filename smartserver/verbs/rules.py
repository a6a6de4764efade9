"""When a ref may move: the rules of `Branch.*`, decided on the transaction and again at the swap."""

from __future__ import annotations

import enum

from smartserver.errors import (
    AccessDenied,
    BranchExists,
    DivergedBranches,
    InvalidName,
    MissingRevision,
    NoSuchBranch,
    NoSuchRepository,
    StaleLease,
    WrongTip,
)
from smartserver.records.model import RefValue, Tip
from smartserver.verbs.declare import Context, Permission


class Rule(enum.StrEnum):
    """How a ref may move."""

    FF = "ff"
    """The new tip descends from the present one, or from its target where it is an annotated tag."""
    FORCE = "force"
    """Anywhere."""
    LEASE = "lease"
    """Anywhere, if the ref still is where the caller expects it."""
    NEW = "new"
    """Not at all: it is absent, or at the new tip already (tags)."""


class Create(enum.StrEnum):
    """What an absent ref means."""

    YES = "yes"
    NO = "no"
    MUST = "must"


CREATE_ERRORS = (AccessDenied, BranchExists, InvalidName, MissingRevision, NoSuchRepository, WrongTip)
"""What `move` may raise where the ref must be absent; and where it may be there."""
MOVE_ERRORS = (*CREATE_ERRORS, DivergedBranches, NoSuchBranch, StaleLease)


def move(
    context: Context, name: bytes, tip: Tip, rule: Rule = Rule.FF, create: Create = Create.YES, expected: bytes = b""
) -> RefValue | None:
    """Move a ref, or make it, and give what it held before. Equal to the new value is success before any rule.

    Raises:
        NoSuchBranch, BranchExists, DivergedBranches, StaleLease: the rule forbids it.
        AccessDenied: the user may not.
        InvalidName: no ref can have the name, or another has it as a part of its own, or the other way round.
        MissingRevision: the tip is neither stored nor sent.
        WrongTip: the ref cannot point at a revision of that type.
        NoSuchRepository: there is none.
    """
    transaction = context.transaction
    old = transaction.ref(name)
    new: RefValue = (tip,)
    if old == new:
        if rule is Rule.FORCE:
            transaction.remember()
        return old
    if rule is Rule.LEASE:
        actual = old[0].id if old else b""
        if actual != expected:
            raise StaleLease(name, expected, actual)
    if old is None:
        if create is Create.NO:
            raise NoSuchBranch(name)
        context.require(Permission.CREATE, name)
        other = transaction.nested(name)
        if other is not None:
            raise InvalidName(name, f"there is a ref {other.decode('utf-8', 'backslashreplace')!r}")
    else:
        if create is Create.MUST or (rule is Rule.NEW and any(each.id != tip.id for each in old)):
            raise BranchExists(name, old[0].id)
        forward = all(transaction.leads_forward(name, each.id, tip.id) for each in old)
        if not forward and rule is Rule.FF:
            raise DivergedBranches(name, old[0].id, transaction.is_ancestor(tip.id, old[0].id))
        context.require(Permission.WRITE if forward else Permission.FORCE, name)
    transaction.set_ref(name, new)
    return old
