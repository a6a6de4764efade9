"""records.faults: what a policy refuses."""

from __future__ import annotations

import pytest

from smartserver.records.check import KINDS_OF, faults_of, known_faults
from smartserver.records.faults import SAFE, FaultChecker, Level, Policy, Role, Severity
from smartserver.records.model import Record


@pytest.mark.parametrize(
    ("level", "refused"),
    [(Level.SAFE, {Severity.HARM}), (Level.STRICT, {Severity.HARM, Severity.ERROR})],
)
def test_what_is_refused(level: Level, refused: set[Severity]) -> None:
    assert {severity for severity in Severity if Policy(level).refuses(severity)} == refused


def test_safe_is_what_a_server_is_unless_told() -> None:
    assert Policy() == SAFE
    assert (SAFE.level, SAFE.ignored) == (Level.SAFE, frozenset())


def test_of_an_unknown_system_nothing_is_found() -> None:
    checker = faults_of("hg")
    assert type(checker) is FaultChecker
    assert checker.look(0, b"\2", b"40000 ..\0" + bytes(20), None) == ((), ())
    assert not checker.role_faults(Role(0, b"key", ".gitmodules"), Record(0, b"key", b"\3", b"text"))


def test_all_ids_are_known() -> None:
    found = known_faults()
    assert found == sorted(set(found))
    assert {fault for vcs in KINDS_OF for fault in faults_of(vcs).severities} == set(found)
    assert "hasDotgit" in found
