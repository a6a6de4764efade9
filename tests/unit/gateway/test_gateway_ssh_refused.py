"""gateway.ssh: a refusal is a line of the log, and a line of the client's."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from smartserver.gateway.gateway import Gateway, Visitor
from smartserver.gateway.git_command import GitCommand, Service
from smartserver.gateway.pkt_line import error_line
from smartserver.gateway.ssh import FAILED, LaterExecutor, serve
from smartserver.server.access import invoking_user
from smartserver.vcs.base import VcsError


def test_words_of_git_make_no_line_of_their_own_in_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    def failed(*_: object) -> None:
        raise VcsError("one\ntwo")

    site: Any = None
    gateway = Gateway(site, str(tmp_path), LaterExecutor())
    monkeypatch.setattr(gateway, "may_fetch", failed)
    caplog.set_level(logging.INFO, "smartserver")
    visitor = Visitor(invoking_user("anna"), {}, "a test", "ssh")
    assert serve(gateway, visitor, GitCommand(Service.UPLOAD_PACK, "project"), "") == FAILED
    assert caplog.messages == [f"a test: {Service.UPLOAD_PACK}: one?two"]
    assert capfdbinary.readouterr().out == error_line("one?two")
