"""cli.session: what needs no server of a session; `test_ping.py` has the rest."""

from __future__ import annotations

import pytest

from smartserver.cli.session import _progress, client_for
from smartserver.client.session import Tool


@pytest.mark.parametrize(("url", "end"), [("hpss+vfs://h/a/b", "vfs://h/ is not counted\n"), ("hpss://h/a", " ms\n")])
def test_the_summary_says_what_it_does_not_count(capsys: pytest.CaptureFixture[str], url: str, end: str) -> None:
    with client_for(url, {"hpss"}, Tool("git"), {}):
        pass
    assert capsys.readouterr().err.endswith(end)


def test_progress_ends_its_line_when_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    for done in (1, 2, 3):
        _progress("verify", done, 3)
    _progress("store", 7, 0)
    _progress("\x1b[2J", 1, 1)
    assert capsys.readouterr() == ("", "\rverify: 33 %\rverify: 66 %\rverify: 100 %\n\r [2J: 100 %\n")
