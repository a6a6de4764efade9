"""client.updates: what is asked of refs and maps, and what is said to have become of it."""

from __future__ import annotations

import pytest

from smartserver.client.updates import (
    MapUpdateOutcome,
    Outcome,
    PushOutcome,
    RefUpdate,
    UpdateOutcome,
    call_of,
    map_updated,
    updated,
)
from smartserver.errors import NoSuchBranch, NotDone, StaleEntry, StaleLease
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionResult, branch_set_last_revision
from smartserver.verbs.map_update import EntryOutcome, MapKind, MapUpdateRequest, MapUpdateResult, Verdict
from transports.errors import CodedError

MOVE, DELETE = RefUpdate(b"trunk", b"new", expected=b"old"), RefUpdate(b"trunk", None, expected=b"old")
TAGS = MapUpdateRequest("tags", MapKind.IDS, [])


def test_each_has_its_call() -> None:
    assert call_of(DELETE) == (branch_delete, BranchDeleteRequest(b"trunk", b"old"))
    verb, asked = call_of(MOVE)
    assert verb is branch_set_last_revision
    assert (asked.ref, asked.tip, asked.expected) == (b"trunk", b"new", b"old")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("update", "result", "expected"),
    [
        (MOVE, SetLastRevisionResult([b"old"]), UpdateOutcome(MOVE, Outcome.DONE, b"old")),
        (MOVE, SetLastRevisionResult([b"new"]), UpdateOutcome(MOVE, Outcome.UNCHANGED, b"new")),
        (MOVE, SetLastRevisionResult([]), UpdateOutcome(MOVE, Outcome.DONE)),
        (DELETE, BranchDeleteResult([b"old"]), UpdateOutcome(DELETE, Outcome.DONE, b"old")),
        (DELETE, BranchDeleteResult([]), UpdateOutcome(DELETE, Outcome.UNCHANGED)),
    ],
)
def test_what_became_of_a_ref(
    update: RefUpdate, result: SetLastRevisionResult | BranchDeleteResult, expected: UpdateOutcome
) -> None:
    assert updated(update, result) == expected


def test_what_was_refused_has_its_error() -> None:
    error = NoSuchBranch(b"trunk")
    assert updated(MOVE, error) == UpdateOutcome(MOVE, Outcome.REFUSED, error=error)
    assert map_updated(TAGS, error) == MapUpdateOutcome(TAGS, [], error)
    entries = [EntryOutcome(Verdict.DONE, None)]
    assert map_updated(TAGS, MapUpdateResult(entries)) == MapUpdateOutcome(TAGS, entries)


NOT_DONE, LEASE, ENTRY = NotDone(), StaleLease(b"trunk", b"a", b"b"), StaleEntry("tags", b"one")


@pytest.mark.parametrize(
    ("refs", "maps", "expected"),
    [
        ([], [], None),
        ([None], [None, None], None),
        ([NOT_DONE], [NOT_DONE, ENTRY], ENTRY),
        ([LEASE], [NOT_DONE], LEASE),
        ([LEASE], [ENTRY], LEASE),
        ([NOT_DONE], [NOT_DONE], NOT_DONE),
    ],
)
def test_what_says_why(
    refs: list[CodedError | None], maps: list[CodedError | None], expected: CodedError | None
) -> None:
    pushed = PushOutcome(
        [UpdateOutcome(MOVE, Outcome.REFUSED if each else Outcome.DONE, error=each) for each in refs],
        [MapUpdateOutcome(TAGS, [], each) for each in maps],
    )
    assert pushed.error() is expected
