"""trace.bans.read_back, trace.bans.duplicate, trace.bans.reopen, trace.bans.per_item, trace.bans.late_refusal,
trace.bans.resend, trace.bans.extra_connection, trace.bans.file_lock, trace.bans.filled_later, trace.bans.rule: each
fires where it should and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ban_cases import FIRES, SILENT, Case
from banned_talk import Talk, vfs_verbs

from smartserver.errors import Banned
from smartserver.trace.bans import (
    duplicate,
    extra_connection,
    file_lock,
    filled_later,
    late_refusal,
    per_item,
    read_back,
    reopen,
    resend,
    rule,
)
from smartserver.trace.bans.every import BEHAVIOURS, SILLY
from smartserver.trace.bans.operations import one_operation

MODULES = {
    duplicate.Duplicate,
    extra_connection.ExtraConnection,
    file_lock.FileLock,
    filled_later.FilledLater,
    late_refusal.LateRefusal,
    per_item.PerItem,
    read_back.ReadBack,
    reopen.Reopen,
    resend.Resend,
}


@pytest.fixture(autouse=True)
def _verbs() -> Iterator[None]:
    with vfs_verbs(), one_operation():
        yield


def test_every_behaviour_is_here() -> None:
    assert set(BEHAVIOURS.values()) == MODULES
    assert FIRES.keys() == SILENT.keys()
    assert FIRES.keys() >= {*BEHAVIOURS, SILLY}
    assert rule.Rule.name not in FIRES


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in FIRES.items() for case in cases])
def test_it_fires(name: str, case: Case) -> None:
    """At the last thing that is sent: with everything else allowed, that is what is banned."""
    case(Talk())
    with pytest.raises(Banned) as caught:
        case(Talk(name))
    banned = caught.value
    assert banned.rule == name or (name == SILLY and banned.rule in BEHAVIOURS)
    assert f" in {case.__name__}" in banned.where
    assert str(banned).startswith(f"{banned.verb} is banned by the rule {banned.rule}")


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in SILENT.items() for case in cases])
def test_it_is_silent(name: str, case: Case) -> None:
    case(Talk(name))
