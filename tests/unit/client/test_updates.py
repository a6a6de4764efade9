"""client.updates: what is asked of refs and maps, and what is said to have become of it."""

from __future__ import annotations

import pytest

from smartserver.client.updates import (
    MapUpdateOutcome,
    Outcome,
    PushOutcome,
    RefUpdate,
    UpdateOutcome,
)
from smartserver.errors import NotDone, StaleEntry, StaleLease
from smartserver.verbs.map_update import MapKind, MapUpdateRequest
from transports.errors import CodedError

MOVE, DELETE = RefUpdate(b"trunk", b"new", expected=b"old"), RefUpdate(b"trunk", None, expected=b"old")
TAGS = MapUpdateRequest("tags", MapKind.IDS, [])


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
