"""When a ref may move: the rules of `Branch.*`, decided on the transaction, again where another came first."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from smartserver.errors import (
    AccessDenied,
    BranchExists,
    DivergedBranches,
    InvalidName,
    MissingRevision,
    NewHeads,
    NoSuchBranch,
    NoSuchRepository,
    StaleLease,
    WrongTip,
)
from smartserver.records.model import RefValue, Tip
from smartserver.verbs.declare import Context, Permission


class Rule(enum.StrEnum):
    """A rule for the moves of a ref."""

    FF = "ff"
    """The new tip descends from the present one, or from its target where it is an annotated tag."""
    FORCE = "force"
    """Anywhere."""
    LEASE = "lease"
    """Anywhere, if the ref still is where the caller expects it."""
    NEW = "new"
    """Not at all: it is absent, or at the new tip already (tags)."""


class Growth(enum.StrEnum):
    """The treatment of a ref that would have more heads than before."""

    NONE = "none"
    """Nothing; a new ref has one."""
    COVERED = "covered"
    """Any number, if each present head is an ancestor of a new one."""
    ANY = "any"


class Create(enum.StrEnum):
    """The treatment of an absent ref."""

    YES = "yes"
    NO = "no"
    MUST = "must"


CREATE_ERRORS = (AccessDenied, BranchExists, InvalidName, MissingRevision, NoSuchRepository, WrongTip)
"""The errors that `move` may raise where the ref must be absent; and where it may be there."""
MOVE_ERRORS = (*CREATE_ERRORS, DivergedBranches, NoSuchBranch, StaleLease)
HEADS_ERRORS = (
    *(AccessDenied, DivergedBranches, InvalidName, MissingRevision),
    *(NewHeads, NoSuchBranch, NoSuchRepository, WrongTip),
)
"""The errors that `add_heads` may raise."""


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
        _may_create(context, name)
    else:
        if create is Create.MUST or (rule is Rule.NEW and any(each.id != tip.id for each in old)):
            raise BranchExists(name, old[0].id)
        forward = all(transaction.leads_forward(name, each.id, tip.id) for each in old)
        if not forward and rule is Rule.FF:
            raise DivergedBranches(name, old[0].id, transaction.is_ancestor(tip.id, old[0].id))
        context.require(Permission.WRITE if forward else Permission.FORCE, name)
    transaction.set_ref(name, new)
    return old


def add_heads(
    context: Context, name: bytes, heads: Sequence[Tip], growth: Growth = Growth.NONE, *, create: bool = True
) -> tuple[RefValue | None, RefValue]:
    """Add tips to a ref, or make it with them; what it held before and what it holds now.

    Tips that others replace, as the repository's system finds it, are left out; where no other is left, the ref goes.
    Where the repository had no ref before this request, anything may be made.

    Raises:
        NoSuchBranch: it is absent and is not to be made.
        NewHeads, DivergedBranches: `growth` forbids it.
        AccessDenied: the user may not.
        InvalidName: no ref can have the name.
        MissingRevision: a tip is neither stored nor sent.
        WrongTip: the ref cannot point at a revision of that type.
        NoSuchRepository: there is none.
    """
    transaction = context.transaction
    old = transaction.ref(name)
    tips = {tip.id: tip for tip in (*(old or ()), *heads)}
    transaction.heads(list(tips))  # Each must be there, also one that is replaced.
    gone, uncounted = transaction.superseded(list(tips))
    new = tuple([tips[each] for each in sorted(transaction.heads([tip for tip in tips if tip not in gone]))])
    if (old or ()) == new:
        return old, new
    before = {tip.id for tip in old or ()}
    added = [tip.id for tip in new if tip.id not in before]
    named = {tip.id for tip in heads}
    if not transaction.had_refs:
        growth, create = Growth.ANY, True
    left = next((tip.id for tip in new if tip.id in before and tip.id not in named), None)
    if growth is Growth.NONE and sum(tip.id not in uncounted for tip in new) > max(1, len(before)):
        raise NewHeads(name, added[:_NAMED])
    if growth is Growth.COVERED and left is not None:
        raise DivergedBranches(name, left)
    if old is None:
        if not create:
            raise NoSuchBranch(name)
        _may_create(context, name)
    else:
        context.require(Permission.WRITE, name)
    transaction.set_ref(name, new)
    if not new:
        transaction.remove_entries(name)
    return old, new


def _may_create(context: Context, name: bytes) -> None:
    context.require(Permission.CREATE, name)
    other = context.transaction.nested(name)
    if other is not None:
        raise InvalidName(name, f"there is a ref {other.decode('utf-8', 'backslashreplace')!r}")


_NAMED = 16
"""Heads that a refusal names."""
