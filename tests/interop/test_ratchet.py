"""`bench ratchet` with the real brz on both sides: three commands, what is written, and what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.command import command
from bench.options import marks
from bench.process import MODULES
from benches import bench
from click.testing import CliRunner

pytestmark = [pytest.mark.sockets, pytest.mark.interop]


def test_both_sides_are_counted_and_written(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc").mkdir()
    page = tmp_path / "doc" / "performance.md"
    page.write_text("\n".join(["before", *marks("ratchet"), "after\n"]))
    commands = ("push, nothing new", "pull", "revno")
    result = bench(temporary, "ratchet", "--json", "--write", *[word for name in commands for word in ("--only", name)])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["rows"]
    assert {row["name"] for row in found} == {"push, nothing new", "pull", "pull -v", "pull, nothing new",
                                              "pull, diverged", "pull --overwrite", "revno", "revno, first contact",
                                              "revno -r TAG", "revno --tree"}  # fmt: skip
    for row in found:
        ours, stock = row["ours"], row["stock"]
        assert (ours["calls"], ours["vfs"], ours["rounds"], ours["handshakes"]) == (1, 0, 1, 1), row
        # Stock makes a round trip for each call, and Breezy counts them as the link does.
        assert stock["rounds"] == stock["calls"] > 8, row
    text = page.read_text()
    assert text.startswith("before\n")
    assert "| push, nothing new |" in text


def test_a_page_without_the_marks_and_a_name_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "performance.md").write_text("nothing")
    result = CliRunner().invoke(command, ["ratchet", "--write"])
    assert "the page lacks a line" in str(result.exception)
    result = CliRunner().invoke(command, ["ratchet", "--only", "blame"])
    assert (result.exit_code, "there is push, new repository" in result.stderr) == (2, True)


ENDLESS = """
import subprocess, sys
from smartserver.cli import main
from bench import command, report

at, folder, file, *sys.argv[1:] = sys.argv[1:]
say, run = report.say, subprocess.run
said = ""

def listening(words):
    global said
    said = words
    say(words)

def endless(words, **options):
    if said == at:
        words = [sys.executable, "-c", "import pathlib, sys, time; pathlib.Path(sys.argv[2]).touch(); time.sleep(600)"]
        words += [folder, file]
    return run(words, **options)

report.say, subprocess.run = listening, endless
main.main(command.command)
"""
"""`make bench`, where the command that is run after a certain line of progress makes a file and does not end."""


@pytest.mark.parametrize("at", ["history", "hpss:// revno"])
def test_an_interrupt_ends_its_servers_and_leaves_nothing(temporary: Path, tmp_path: Path, at: str) -> None:
    runs = tmp_path / "runs"
    script = [sys.executable, "-c", ENDLESS, at, str(temporary), str(runs)]
    words = [*script, "ratchet", "--only", "revno"]
    environment = {**os.environ, **MODULES, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if line.strip() == at:
                while not runs.exists():
                    assert running.poll() is None
                    time.sleep(0.01)
                others = len(of(temporary)) - 2
                assert others == (0 if at == "history" else 2), "beside it and its command the servers of both sides"
                os.killpg(running.pid, signal.SIGINT)  # As a terminal does it: the children get it too.
                break
        printed, rest = running.communicate()
    assert (running.returncode, printed) == (130, "")
    assert rest.splitlines()[-1] == "interrupted"
    assert "Traceback" not in rest
    assert list(temporary.iterdir()) == []
    assert of(temporary) == []


def of(folder: Path) -> list[int]:
    """The processes that were told of a folder: servers, and commands that use it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found
