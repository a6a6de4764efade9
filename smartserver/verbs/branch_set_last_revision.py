"""`Branch.set_last_revision`: move a ref."""

from __future__ import annotations

from smartserver.records.model import Tip
from smartserver.verbs.declare import Arguments, Context, Result, verb
from smartserver.verbs.fields import Expected, Id, RefName, Small
from smartserver.verbs.rules import MOVE_ERRORS, Create, Rule, move


class SetLastRevisionRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`create`: true if an absent ref may be created. `expected`: the tip for the rule `lease`, ignored by other rules;
    empty means that the ref must be absent.
    """

    ref: RefName
    tip: Id
    rule: Rule = Rule.FF
    create: bool = True
    expected: Expected = b""
    attributes: Small = b""


class SetLastRevisionResult(Result, frozen=True, array_like=True):
    """The previous tips of the ref; empty if the ref was absent. They equal the new tip if the ref had that value
    already."""

    old: list[bytes]


@verb("Branch.set_last_revision", own_verdict=True, errors=MOVE_ERRORS)
def branch_set_last_revision(context: Context, request: SetLastRevisionRequest) -> SetLastRevisionResult:
    """Point a ref at a revision that is stored or sent with the request.

    Rules: `ff` (the new tip descends from the present one, or from its target if that is an annotated tag), `force`,
    `lease` (the ref is still at `expected`), `new` (the ref is absent, or at the new tip already). If the ref has the
    new value already, the call succeeds under any rule. Without `create` the ref must exist; `Branch.create` is for a
    ref that must not.
    """
    tip = Tip(request.tip, request.attributes)
    old = move(context, request.ref, tip, request.rule, Create.YES if request.create else Create.NO, request.expected)
    return SetLastRevisionResult([each.id for each in old or ()])
