"""cli.trace: a command that is run and traced, and a trace that is shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from smartserver.cli.main import group
from smartserver.cli.reference import pages
from smartserver.trace.events import CommandEnded, decode

RECORDING = """
import os
from smartserver.spans import Part, span
from smartserver.trace.flags import read
from smartserver.trace.tracing import Tracing

tracing = Tracing(read([os.environ["SMARTSERVER_DEBUG"]]), print, "ours", os.environ)
with tracing.listening(), span(Part.LOCAL, "dream"):
    pass
tracing.close()
raise SystemExit(3)
"""
"""A command that records one span."""


def test_a_command_is_run_and_shown() -> None:
    done = CliRunner().invoke(group, ["trace", "run", "--", sys.executable, "-c", RECORDING])
    assert done.exit_code == 3
    assert done.stdout == ""
    first, ended, *parts = done.stderr.splitlines()
    assert ended == "  It ended with status 3."
    assert first.startswith(os.path.basename(sys.executable))
    assert first.endswith(", 0 round trips, no fresh connections")
    assert parts[0].startswith("  start ")
    assert any("after the last call" in part for part in parts)


def test_it_is_appended_to_a_file_and_shown_later(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    runner = CliRunner()
    for _ in range(2):
        run = runner.invoke(group, ["trace", "run", "-o", str(path), "--", sys.executable, "-c", RECORDING])
        assert (run.exit_code, run.output) == (3, "")
    shown = runner.invoke(group, ["trace", "show", str(path)])
    assert shown.exit_code == 0
    assert shown.stdout.count("0 round trips") == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_other_flags_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpss,hpss-json=/nowhere,hpss-ban=silly")
    path = tmp_path / "said"
    script = f"import os; open({str(path)!r}, 'w').write(os.environ['SMARTSERVER_DEBUG'])"
    CliRunner().invoke(group, ["trace", "run", "-o", str(tmp_path / "trace"), "--", sys.executable, "-c", script])
    assert path.read_text() == f"hpss-json={tmp_path / 'trace'},hpss,hpss-ban=silly"


def test_a_command_that_a_signal_ends(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    script = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    done = CliRunner().invoke(group, ["trace", "run", "-o", str(path), "--", sys.executable, "-c", script])
    assert done.exit_code == 128 + signal.SIGTERM
    (ended,) = map(decode, filter(None, path.read_bytes().splitlines()))
    assert isinstance(ended, CommandEnded)
    assert ended.status == -signal.SIGTERM


def test_what_cannot_be_run_or_shown(tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_text("nonsense\n")
    for words, why in (
        (["run", "--", "no-such-command"], "no-such-command cannot be run: No such file or directory"),
        (
            ["show", str(tmp_path / "nonsense")],
            "nonsense: there is no trace in it: line 1 is not an event",
        ),
        (["show", str(tmp_path / "nothing")], "No such file or directory"),
        (["show", "/dev/zero"], "/dev/zero is not an ordinary file"),
    ):
        command = [sys.executable, "-m", "smartserver.cli.main", "trace", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1, words
        assert why in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_the_schema_is_that_of_the_lines(tmp_path: Path) -> None:
    """A reader in another language has the page alone."""
    path = tmp_path / "trace"
    CliRunner().invoke(group, ["trace", "run", "-o", str(path), "--", sys.executable, "-c", RECORDING])
    kinds = msgspec.json.decode(pages()["trace-schema.json"])["$defs"]
    by_event = {each["properties"]["event"]["enum"][0]: each for each in kinds.values() if "event" in str(each)}
    for line in filter(None, path.read_bytes().splitlines()):
        said = msgspec.json.decode(line)
        kind = by_event[said["event"]]
        assert set(kind["required"]) <= set(said) <= set(kind["properties"])


def recorded(path: Path) -> Path:
    """A trace of one span."""
    CliRunner().invoke(group, ["trace", "run", "-o", str(path), "--", sys.executable, "-c", RECORDING])
    return path


def test_two_are_compared_by_their_last_commands(tmp_path: Path) -> None:
    first, second = recorded(tmp_path / "a"), recorded(tmp_path / "b")
    recorded(first)
    done = CliRunner().invoke(group, ["trace", "diff", str(first), str(second)])
    assert done.exit_code == 0
    header, whole, *_ = done.stdout.splitlines()
    assert header.split() == ["A", "B", "difference"]
    assert whole.startswith(f"{os.path.basename(sys.executable)}, whole wait")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_decides_what_a_signal_is(tmp_path: Path, number: signal.Signals) -> None:
    """One that comes to `trace run` alone is passed on; an interrupt reaches both, as from a terminal."""
    script = f"""
import signal, sys
signal.signal({int(number)}, lambda *_: sys.exit(7))
print("ready", flush=True)
signal.pause()
"""
    path = tmp_path / "trace"
    command = [sys.executable, "-m", "smartserver.cli.main", "trace", "run", "-o", str(path), "--"]
    process = subprocess.Popen(
        [*command, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(30) == 7
    ended = [decode(line) for line in path.read_bytes().splitlines() if line][-1]
    assert isinstance(ended, CommandEnded)
    assert ended.status == 7
