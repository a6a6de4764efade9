"""smartserver.cli.verify: a folder or a URL, the line it ends with, and the status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench.servers import Server, free_port
from bzr_samples import FIRST, FIRST_PARENTS, push, segment
from cli_runs import run, why
from stored import pack_of, stored

from smartserver.client.call import Client
from smartserver.store.repository import PackRepository
from smartserver.verbs.repository_verify import VerifyResult
from transports.local import LocalTransport

WELL = re.compile(r"1 pack, 3 revisions, \d+ records, [0-9.]+ (B|KB): all well\n")


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x01
    path.write_bytes(content)


def test_a_folder_that_is_well(tmp_path: Path) -> None:
    stored(tmp_path / "project")
    result = run("verify", str(tmp_path / "project"))
    assert result.exit_code == 0
    assert WELL.fullmatch(result.output)


def test_a_damage_of_breezys_is_named_as_text(tmp_path: Path) -> None:
    push(PackRepository(LocalTransport(tmp_path), "project"), segment(FIRST, FIRST_PARENTS), refs={b".": FIRST[0].key})
    assert run("verify", str(tmp_path / "project")).output.startswith(f"1 pack, 1 revision, {len(FIRST)} records, ")
    pack = pack_of(tmp_path / "project")
    flip(pack, pack.read_bytes().index(b"#!/bin/sh"))
    problems = run("verify", str(tmp_path / "project")).output
    assert re.search(r"\.pack at byte \d+: record run-id joe@example\.org-1 of revision joe@example\.org-1: ", problems)


def test_a_flipped_bit_is_named_and_fails(tmp_path: Path) -> None:
    stored(tmp_path / "project")
    pack = pack_of(tmp_path / "project")
    flip(pack, pack.stat().st_size // 2)
    result = run("verify", str(tmp_path / "project"))
    assert result.exit_code == 1
    *problems, verdict = result.output.splitlines()
    assert problems
    assert any(pack.stem in problem for problem in problems)
    assert re.search(r"\d+", problems[0])
    assert verdict.endswith(f"{len(problems)} problem{'s' * (len(problems) != 1)}")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert why(run("verify", str(tmp_path / "absent"))) == f"'{tmp_path / 'absent'}' is not there"
    assert why(run("verify", str(tmp_path / "file"))) == f"{tmp_path / 'file'} is not a dump of smartserver"
    assert why(run("verify", "")) == "'' is not there"
    said = why(run("verify", "http://h/a"))
    assert said == "'http://h/a' is not a URL of a repository: it does not begin with hpss://"


@pytest.mark.parametrize("scheme", ["sftp", "vfs"])
def test_a_store_that_cannot_be_reached(scheme: str) -> None:
    """It is no damage, and said as by every other command."""
    place = f"{scheme}://127.0.0.1:{free_port()}/srv/x"
    result = run("verify", place)
    assert why(result).startswith(f"{place}: cannot connect to ")
    assert why(result).endswith(": Connection refused")
    assert result.output == ""


@pytest.mark.sockets
def test_a_url(server: Server) -> None:
    stored(server.served / "well")
    result = run("verify", server.url("well"))
    assert result.exit_code == 0
    assert WELL.fullmatch(result.stdout)
    assert result.stderr == ""  # Progress is for a terminal.


def test_problems_of_a_server_command_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = VerifyResult(1, 1, 1, 1, ["packs/\x1b[2J at byte 0"])
    monkeypatch.setattr(Client, "call", lambda *_: result)
    found = run("verify", "hpss://h/a")
    assert (found.exit_code, found.stderr) == (1, "packs/ [2J at byte 0\n")
    assert "1 problem" in found.stdout
