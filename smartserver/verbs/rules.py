"""The rules of `Branch.*` for the moves of a ref. They are applied to the transaction, and again if another request was
committed first."""

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
    """The new tip must descend from the present tip, or from the target of the present tip if that is an annotated
    tag."""
    FORCE = "force"
    """The ref may move anywhere."""
    LEASE = "lease"
    """The ref may move anywhere, if it still has the value that the caller expects."""
    NEW = "new"
    """The ref must not move: it must be absent, or be at the new tip already (tags)."""


class Growth(enum.StrEnum):
    """The rule for a ref that would have more heads than before."""

    NONE = "none"
    """The ref must not have more heads than before. A new ref may have only one head."""
    COVERED = "covered"
    """Any number of heads is allowed if each present head is an ancestor of a new one."""
    ANY = "any"


class Create(enum.StrEnum):
    """The rule for the creation of an absent ref."""

    YES = "yes"
    NO = "no"
    MUST = "must"


CREATE_ERRORS = (AccessDenied, BranchExists, InvalidName, MissingRevision, NoSuchRepository, WrongTip)
"""The errors that `move` may raise if the ref must be absent; `MOVE_ERRORS` are those if it may exist."""
MOVE_ERRORS = (*CREATE_ERRORS, DivergedBranches, NoSuchBranch, StaleLease)
HEADS_ERRORS = (
    *(AccessDenied, DivergedBranches, InvalidName, MissingRevision),
    *(NewHeads, NoSuchBranch, NoSuchRepository, WrongTip),
)
"""The errors that `add_heads` may raise."""


def move(
    context: Context, name: bytes, tip: Tip, rule: Rule = Rule.FF, create: Create = Create.YES, expected: bytes = b""
) -> RefValue | None:
    """Move or create a ref, and return its previous value. If the ref already has the new value, the call succeeds
    under any rule.

    Raises:
        NoSuchBranch, BranchExists, DivergedBranches, StaleLease: the rule forbids it.
        AccessDenied: the user lacks the permission.
        InvalidName: no ref can have the name, or it is a folder in the name of another ref, or the reverse.
        MissingRevision: the tip is neither stored nor sent.
        WrongTip: the ref cannot point at a revision of that type.
        NoSuchRepository: there is no repository.
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
    """Add tips to a ref, or create it with them. Return its previous and its new value.

    Tips that other revisions replace, according to the repository's system, are left out. If no tip is left, the ref is
    removed. If the repository had no ref before this request, any heads are allowed.

    Raises:
        NoSuchBranch: the ref is absent and must not be created.
        NewHeads, DivergedBranches: `growth` forbids it.
        AccessDenied: the user lacks the permission.
        InvalidName: no ref can have the name.
        MissingRevision: a tip is neither stored nor sent.
        WrongTip: the ref cannot point at a revision of that type.
        NoSuchRepository: there is no repository.
    """
    transaction = context.transaction
    old = transaction.ref(name)
    tips = {tip.id: tip for tip in (*(old or ()), *heads)}
    transaction.heads(list(tips))  # Each must be stored or sent, even one that is replaced.
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
        found = other.decode("utf-8", "backslashreplace")
        raise InvalidName(name, f"it conflicts with the ref {found!r}: choose another name, or delete that ref first")


_NAMED = 16
"""The most heads that a refusal lists."""
