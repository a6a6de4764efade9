"""plugins.breezy.sending: what a push of a repository sends is planned from its tips, or from the revisions named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from smartserver.plugins.breezy.sending import Lacking
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr import plan as planning
from smartserver.vcs.bzr.repository import BrzRepository


@pytest.mark.parametrize(("only", "planned"), [(None, [b"two"]), ([b"other"], [b"other"]), ([], [])])
def test_what_is_planned_is_sent(
    only: list[bytes] | None, planned: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def plan(repository: BrzRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> str:
        asked.append((repository, list(tips), list(haves)))
        return "the plan"

    monkeypatch.setattr(planning, "plan", plan)
    repository = cast("BrzRepository", "repository")
    assert Lacking(repository, only).plan([b"two"], [b"zero"]) == cast("Any", "the plan")
    assert asked == [(repository, planned, [b"zero"])]
