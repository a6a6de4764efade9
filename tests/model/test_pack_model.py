"""Packs: with every rule no reachable state breaks a promise; without a rule one does."""

from __future__ import annotations

import pytest
from pack_model import MISSING, TWICE, PackRules, Packs, check, pack_model
from state_search import explore

BOUND = 20_000
"""More than twice the states that there are."""


def test_no_file_that_the_log_names_is_deleted() -> None:
    result = explore(pack_model(), BOUND)
    assert result.is_exhausted, str(result)


@pytest.mark.parametrize("rule", ["drop_first", "open_after_read", "refuse_dropped"])
def test_without_the_rule_a_named_file_is_missing(rule: str) -> None:
    result = explore(pack_model(PackRules(**{rule: False})), BOUND)
    assert result.kind == MISSING, str(result)


def test_a_request_with_two_packs_was_done_twice() -> None:
    packs: Packs = pack_model().first
    both = frozenset("PQ")
    found = check(packs._replace(named=both, files=both))
    assert found is not None
    assert found.kind == TWICE
