"""records.faults: what a policy refuses."""

from __future__ import annotations

import pytest

from smartserver.records.faults import SAFE, Level, Policy, Severity


@pytest.mark.parametrize(
    ("level", "refused"),
    [(Level.SAFE, {Severity.HARM}), (Level.STRICT, {Severity.HARM, Severity.ERROR})],
)
def test_what_is_refused(level: Level, refused: set[Severity]) -> None:
    assert {severity for severity in Severity if Policy(level).refuses(severity)} == refused


def test_safe_is_what_a_server_is_unless_told() -> None:
    assert Policy() == SAFE
    assert (SAFE.level, SAFE.ignored) == (Level.SAFE, frozenset())
