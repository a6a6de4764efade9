"""cli.trace: a command that is run and traced, and a trace that is shown, compared and written in other forms."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from cli_runs import run, why
from click.testing import Result
from traces import RECORDING, push, read

from smartserver.cli.reference import pages
from smartserver.trace.events import CommandEnded, decode, encode
from smartserver.trace.html import html
from smartserver.trace.perfetto import perfetto
from smartserver.trace.report import lines

ENDING = f"{RECORDING}\nraise SystemExit(3)"
"""A command that records one span, and fails."""


def traced(script: str = ENDING, *options: object) -> Result:
    """Run a program in Python and trace it."""
    return run("trace", "run", *options, "--", sys.executable, "-c", script)


def test_a_command_is_run_and_shown() -> None:
    done = traced()
    assert done.exit_code == 3
    assert done.stdout == ""
    first, ended, *parts = done.stderr.splitlines()
    assert ended == "  It ended with status 3."
    assert first.startswith(os.path.basename(sys.executable))
    assert first.endswith(", 0 round trips, no fresh connections")
    assert parts[0].startswith("  start ")
    assert any("after the last call" in part for part in parts)


def test_it_is_appended_to_a_file_and_shown_later_or_compared(tmp_path: Path) -> None:
    """The schema is that of the lines: a reader in another language has the page alone."""
    first, second = tmp_path / "a", tmp_path / "b"
    for path in (first, first, second):
        done = traced(ENDING, "-o", path)
        assert (done.exit_code, done.output) == (3, "")
    shown = run("trace", "show", first)
    assert shown.exit_code == 0
    assert shown.stdout.count("0 round trips") == 2
    assert first.stat().st_mode & 0o777 == 0o600
    kinds = msgspec.json.decode(pages()["trace-schema.json"])["$defs"]
    by_event = {each["properties"]["event"]["enum"][0]: each for each in kinds.values() if "event" in str(each)}
    for line in filter(None, first.read_bytes().splitlines()):
        said = msgspec.json.decode(line)
        kind = by_event[said["event"]]
        assert set(kind["required"]) <= set(said) <= set(kind["properties"])
    compared = run("trace", "diff", first, second)  # By their last commands.
    assert compared.exit_code == 0
    header, whole, *_ = compared.stdout.splitlines()
    assert header.split() == ["A", "B", "difference"]
    assert whole.startswith(f"{os.path.basename(sys.executable)}, whole wait")


def test_other_flags_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpss,hpss-json=/nowhere,hpss-ban=silly")
    path = tmp_path / "said"
    traced(f"import os; open({str(path)!r}, 'w').write(os.environ['SMARTSERVER_DEBUG'])", "-o", tmp_path / "trace")
    assert path.read_text() == f"hpss-json={tmp_path / 'trace'},hpss,hpss-ban=silly"


def test_a_command_that_a_signal_ends(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    done = traced("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "-o", path)
    assert done.exit_code == 128 + signal.SIGTERM
    (ended,) = map(decode, filter(None, path.read_bytes().splitlines()))
    assert isinstance(ended, CommandEnded)
    assert ended.status == -signal.SIGTERM


def test_what_cannot_be_run_or_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "smartserver.cli.main", "trace", "run", "--", "no-such-command"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "smartserver: no-such-command cannot be run: No such file or directory\n"
    (tmp_path / "nonsense").write_text("nonsense\n")
    said = why(run("trace", "show", tmp_path / "nonsense"))
    assert "nonsense: it has no trace: line 1 is not an event" in said
    assert "\n" not in said
    assert "/dev/zero is not an ordinary file" in why(run("trace", "show", "/dev/zero"))
    assert "No such file or directory" in why(run("trace", "show", tmp_path / "nothing"))


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


# -- the forms of a trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "slow.trace"
    path.write_bytes(b"".join(map(encode, push())))
    return path


TEXT = "".join(f"{line}\n" for line in lines(read(push())[0])).encode()
VIEWS = {"--text": TEXT, "--html": html(read(push())), "--perfetto": perfetto(read(push()))}


@pytest.mark.parametrize("option", VIEWS)
def test_each_view_on_stdout_and_in_a_file_for_the_user_alone(trace: Path, tmp_path: Path, option: str) -> None:
    shown = run("trace", "show", trace, option)
    assert (shown.exit_code, shown.stdout_bytes) == (0, VIEWS[option])
    output = tmp_path / "out"
    assert run("trace", "show", option, "-o", output, trace).stdout_bytes == b""
    assert output.read_bytes() == VIEWS[option]
    assert output.stat().st_mode & 0o777 == 0o600


def test_a_trace_with_an_id_that_is_none_is_refused(trace: Path) -> None:
    trace.write_bytes(b"".join(map(encode, push(trace="</script>"))))
    assert "is not an event: Expected `str` matching regex" in why(run("trace", "show", trace))
