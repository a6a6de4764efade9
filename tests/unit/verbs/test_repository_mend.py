from __future__ import annotations

import pytest
from verb_context import NotedContext, Project

from smartserver.verbs import repository_mend as module
from smartserver.verbs.declare import Permission
from smartserver.verbs.repository_mend import MendRequest, MendResult, repository_mend


def context(*denied: Permission) -> NotedContext:
    project = Project()
    project.push(project.history.line(1))
    return project.context(denied=denied)


def test_it_says_what_was_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = context()
    assert repository_mend.function(asked, MendRequest()) == MendResult(1, ["a line"], True)
    assert asked.asked == [(Permission.ADMIN, b"")]
    monkeypatch.setattr(module, "NAMED", 0)
    assert repository_mend.function(context(), MendRequest()) == MendResult(1, [], True)
