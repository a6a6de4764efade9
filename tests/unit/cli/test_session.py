"""cli.session: what needs no server of a session; `test_ping.py` has the rest."""

from __future__ import annotations

import pytest

from smartserver.cli import session
from smartserver.cli.session import _progress, client_for
from smartserver.client import places
from smartserver.client.call import Client
from smartserver.client.medium import CannotConnect
from smartserver.client.url import BadUrl
from smartserver.verbs.server_ping import PingRequest, server_ping


def test_a_url_that_is_none_is_refused_before_anything_is_said() -> None:
    with pytest.raises(BadUrl), client_for("http://h/", {"hpss"}):
        pytest.fail("it is no URL of ours")


@pytest.mark.parametrize(("value", "wanted"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_who_asks_for_fast_open_gets_it(monkeypatch: pytest.MonkeyPatch, value: str | None, wanted: bool) -> None:
    asked: list[tuple[str, object]] = []

    def medium(host: str, port: int, *, fast_open: bool) -> None:
        asked.append(("medium", fast_open))
        raise CannotConnect(host, "nobody is there")

    def client(*arguments: object, **options: object) -> Client:
        asked.append(("client", options["copied"]))
        return Client(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(places, "TcpMedium", medium)
    monkeypatch.setattr(session, "Client", client)
    environment = {} if value is None else {"SMARTSERVER_FAST_OPEN": value}
    with client_for("hpss://h/", frozenset(), "git", environment) as (made, _), pytest.raises(CannotConnect):
        made.call(server_ping, PingRequest())
    assert asked == [("client", wanted), ("medium", wanted)]


@pytest.mark.parametrize(("url", "end"), [("hpss+vfs://h/a/b", "vfs://h/ is not counted\n"), ("hpss://h/a", " ms\n")])
def test_the_summary_says_what_it_does_not_count(capsys: pytest.CaptureFixture[str], url: str, end: str) -> None:
    with client_for(url, {"hpss"}, "git", {}):
        pass
    assert capsys.readouterr().err.endswith(end)


def test_progress_ends_its_line_when_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    for done in (1, 2, 3):
        _progress("verify", done, 3)
    _progress("store", 7, 0)
    _progress("\x1b[2J", 1, 1)
    assert capsys.readouterr() == ("", "\rverify: 33 %\rverify: 66 %\rverify: 100 %\n\r [2J: 100 %\n")
