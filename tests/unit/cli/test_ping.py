"""smartserver.cli.ping and cli.session: what is said of a server, in how many round trips, and who is not there."""

from __future__ import annotations

import re

import pytest
from bench.servers import Server, free_port
from cli_runs import run, why

import smartserver
from smartserver.cli.session import _progress, client_for
from smartserver.client.session import Tool
from smartserver.verbs.all import every_verb

pytestmark = pytest.mark.sockets

FIRST = f"smartserver {smartserver.__version__}, {sum(not verb.is_vfs for verb in every_verb())} verbs"


@pytest.mark.parametrize(("options", "count"), [((), 3), (("-c", "1"), 1), (("--count", "5"), 5)])
def test_each_ping_is_a_line(server: Server, options: tuple[str, ...], count: int) -> None:
    result = run("ping", server.url(""), *options)
    assert (result.exit_code, result.stderr) == (0, "")
    first, *answers = result.stdout.splitlines()
    assert first == FIRST
    assert len(answers) == count
    assert all(re.fullmatch(r"answer in \d+\.\d ms", each) for each in answers)


@pytest.mark.parametrize("flag", ["-Dhpss", "-Dhpssvfs"])
def test_the_tracer_shows_each_call_and_their_sum(server: Server, flag: str) -> None:
    """Nothing more of what is no VFS call."""
    result = run(flag, "ping", server.url(""), "-c", "2")
    assert result.exit_code == 0
    *calls, total = result.stderr.splitlines()
    made = [call.partition("() on /: ok, ")[0] for call in calls]
    assert made == ["hpss: Server.info", "hpss: Server.ping", "hpss: Server.ping"]
    assert total.startswith("hpss: 3 round trips on a fresh connection, 3 calls (0 vfs), ")
    assert result.stdout.splitlines()[0] == FIRST


def test_nobody_there() -> None:
    url = f"hpss://127.0.0.1:{free_port()}/"
    result = run("-Dhpss", "ping", url)
    assert why(result).startswith(f"{url}: cannot connect to 127.0.0.1:")
    assert result.stderr.startswith("hpss: 0 round trips on a fresh connection, 0 calls")


@pytest.mark.unbanned("it bans by itself")
def test_what_is_banned_is_not_sent(server: Server) -> None:
    url = server.url("")
    result = run("-Dhpss-ban=rpc:Server.ping", "ping", url)
    said = f"{url}: Server.ping is banned by the rule rpc:Server.ping; called from smartserver/cli/"
    assert why(result).startswith(said)
    assert result.stdout.splitlines() == [FIRST]
    result = run("-Dhpss-ban=vfs:*,silly", "ping", url)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, FIRST)


def test_detail_is_a_line_for_each_call_that_its_line_leaves_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = run("-Dhpssdetail", "ping", "-c", "1", server.url("")).stderr.splitlines()
    assert len([line for line in lines if line.startswith("hpss: ")]) == 3
    assert lines[3].startswith("  start ")
    monkeypatch.setattr("smartserver.trace.text.MOST", 0)
    flagged = run("-Dhpssdetail", "ping", "-c", "1", server.url(""))
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpssdetail")
    for result in (flagged, run("ping", "-c", "1", server.url(""))):
        assert result.stderr.splitlines()[1] == "    Server.info()"


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
