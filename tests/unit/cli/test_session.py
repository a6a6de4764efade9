"""cli.session: what needs no server of a session; `test_ping.py` has the rest."""

from __future__ import annotations

import pytest

from smartserver.cli.session import _progress, cache_folder, client_for
from smartserver.client.url import BadUrl


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/smartserver/remotes"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/smartserver/remotes"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/smartserver/remotes"),
        ({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/smartserver/remotes"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/smartserver/remotes"),
        ({"XDG_CACHE_HOME": "relative"}, None),
        ({"HOME": ""}, None),
        ({}, None),
    ],
)
def test_cache_folder(environment: dict[str, str], folder: str | None) -> None:
    assert cache_folder(environment) == folder


def test_a_url_that_is_none_is_refused_before_anything_is_said() -> None:
    with pytest.raises(BadUrl), client_for("http://h/", {"hpss"}):
        pytest.fail("it is no URL of ours")


def test_progress_ends_its_line_when_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    for done in (1, 2, 3):
        _progress("verify", done, 3)
    _progress("store", 7, 0)
    _progress("\x1b[2J", 1, 1)
    assert capsys.readouterr() == ("", "\rverify: 33 %\rverify: 66 %\rverify: 100 %\n\r [2J: 100 %\n")
