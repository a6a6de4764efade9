"""smartserver.cli.ping and cli.session: what is said of a server, in how many round trips, and who is not there."""

from __future__ import annotations

import re

import pytest
from bench.servers import Server, free_port
from cli_runs import run, why

import smartserver
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
    assert [re.split(r"\(\) on /: ok, ", call)[0] for call in calls] == ["hpss: Server.info"] + [
        "hpss: Server.ping"
    ] * 2
    assert total.startswith("hpss: 3 round trips on a fresh connection, 3 calls (0 vfs), ")
    assert result.stdout.splitlines()[0] == FIRST


def test_nobody_there() -> None:
    url = f"hpss://127.0.0.1:{free_port()}/"
    result = run("-Dhpss", "ping", url)
    assert why(result).startswith(f"{url}: cannot connect to 127.0.0.1:")
    assert result.stderr.startswith("hpss: 0 round trips on a fresh connection, 0 calls")


@pytest.mark.unbanned("it bans by itself")
@pytest.mark.parametrize(
    ("flag", "status", "said"),
    [
        (
            "-Dhpss-ban=rpc:Server.ping",
            1,
            "Server.ping is banned by the rule rpc:Server.ping; called from smartserver/cli/",
        ),
        ("-Dhpss-ban=vfs:*,silly", 0, ""),
    ],
)
def test_what_is_banned_is_not_sent(server: Server, flag: str, status: int, said: str) -> None:
    result = run(flag, "ping", server.url(""))
    assert result.exit_code == status
    assert (str(result.exception or "").startswith(f"{server.url('')}: {said}")) == (status == 1)
    assert result.stdout.splitlines()[:1] == [FIRST]


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


@pytest.mark.ban("vfs:*")
def test_the_environment_has_flags_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpssdetail,hpss,hpss-ban=vfs:*,rpc:Server.ping")
    result = run("ping", server.url(""))
    assert "Server.ping is banned by the rule rpc:Server.ping" in why(result)
    assert result.stderr.splitlines()[0].startswith("hpss: Server.info() on /: ok")
