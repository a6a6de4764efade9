"""trace.bans.needless_read, trace.bans.per_item, trace.bans.resend, trace.bans.extra_connection, trace.bans.rule: each
fires where it should and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ban_cases import FIRES, SILENT, Case
from banned_talk import Talk, vfs_verbs

from smartserver.errors import Banned
from smartserver.trace.bans.every import BEHAVIOURS, SILLY
from smartserver.trace.bans.operations import one_operation


@pytest.fixture(autouse=True)
def _verbs() -> Iterator[None]:
    with vfs_verbs(), one_operation():
        yield


def test_every_behaviour_is_here() -> None:
    assert FIRES.keys() == SILENT.keys()
    assert FIRES.keys() >= {*BEHAVIOURS, SILLY}


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
