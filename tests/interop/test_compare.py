"""`bench compare` with the real git: counts, outcomes, what is missing, ^C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.command import command
from bench.links import ProxyLine
from bench.options import marks
from bench.peers.base import CLONE, DIVERGED, PUSH_ONE
from bench.peers.git import Git
from bench.peers.hg import Hg
from bench.process import MODULES
from benches import bench
from click.testing import CliRunner, Result

from netem.packets.errors import Unavailable

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

SHORT = ("--rtt", "10ms", "--repeat", "1", "--only", "proxy")


def compare(temporary: Path, *arguments: str) -> Result:
    return bench(temporary, "compare", *SHORT, *arguments)


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def test_git_and_ours_are_counted_and_written(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc").mkdir()
    page = tmp_path / "doc" / "performance.md"
    page.write_text("\n".join(["before", *marks("compare"), "after\n"]))
    result = compare(temporary, "--json", "--write", *only("git", "hpss", CLONE, PUSH_ONE, DIVERGED))
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    rounds = {(cost["peer"], cost["operation"]): cost["rounds"] for cost in found["costs"]}
    assert rounds == {
        ("hpss", CLONE): 2, ("hpss", PUSH_ONE): 2, ("hpss", DIVERGED): 2,
        ("git", CLONE): 4, ("git", PUSH_ONE): 3, ("git", DIVERGED): 2,
    }  # fmt: skip
    assert found["versions"]["git"].startswith("git version")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| operation | git over hpss:// | git:// |" in text
    assert (tmp_path / "doc" / "compare.svg").read_text().startswith("<svg")


def test_a_wrong_outcome_is_told_and_a_missing_tool_is_a_note(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Git, "tip", lambda self, ref, name="project": "elsewhere")
    monkeypatch.setattr(Hg, "programs", ("no-such-hg",))
    result = compare(temporary, *only("git", "hg", PUSH_ONE))
    assert result.exit_code == 1
    assert "wrong: proxy, git://, push one: git push --quiet origin main: came to 'elsewhere'" in result.stderr
    assert "- hg http:// is not here: no-such-hg is not installed." in result.stdout


def test_a_page_without_the_marks_is_told_first(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "performance.md").write_text("nothing")
    result = CliRunner().invoke(command, ["compare", *SHORT, "--write"])
    assert "the page lacks a line" in str(result.exception)
    assert result.stderr == ""


def test_a_network_there_cannot_be_is_a_note(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> None:
        raise Unavailable("none here")

    monkeypatch.setattr(ProxyLine, "reserve", none)
    result = compare(temporary, *only("git", "hpss"))
    assert result.exit_code == 0
    assert "- proxy: none here." in result.stdout


def test_a_name_there_is_not_is_refused(temporary: Path) -> None:
    result = compare(temporary, "--only", "cvs")
    assert (result.exit_code, "there is hpss, hpss-brz, hpss-hg, git, hg" in result.stderr) == (2, True)


def test_an_interrupt_leaves_nothing(temporary: Path) -> None:
    command = [sys.executable, "-m", "bench", "compare", *SHORT, *only("git")]
    environment = {**os.environ, **MODULES, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "push one" in line:
                os.killpg(running.pid, signal.SIGINT)  # As a terminal does it: the children get it too.
                break
        rest = running.stderr.read()
    assert running.returncode == 130, rest
    assert "Traceback" not in rest
    assert list(temporary.iterdir()) == []
