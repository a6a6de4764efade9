"""smartserver.cli.main: the commands, what is refused, and the status each end has."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from stored import stored

from smartserver.cli import main as program
from smartserver.cli.errors import CommandError
from smartserver.cli.interrupts import ENDING, Interrupts
from smartserver.cli.main import OF_ITSELF, group
from smartserver.meters import HASHED, METERS, here


def ending(monkeypatch: pytest.MonkeyPatch, error: BaseException | int | None) -> int:
    """The status of a run whose command ends so."""

    def command(**_: object) -> int | None:
        if isinstance(error, BaseException):
            raise error
        return error

    monkeypatch.setattr(group, "main", command)
    monkeypatch.setattr(Interrupts, "heed", lambda self: None)  # This process has tests to do.
    with pytest.raises(SystemExit) as caught:
        program.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_an_unknown_debug_flag_is_refused() -> None:
    result = CliRunner().invoke(group, ["-Dfoo", "ping", "hpss://h/"])
    assert result.exit_code == 2
    there_are = "hpss, hpssdetail, hpssvfs, hpssbytes, hpss-json=FILE and hpss-ban=RULE[,RULE]"
    assert f"no such debug flag in -D: 'foo' (there are {there_are})" in result.output


def test_stats_are_the_counters_of_the_command(tmp_path: Path) -> None:
    stored(tmp_path / "project")
    here.tally[HASHED] += 1000  # By what this process did before.
    result = CliRunner().invoke(group, ["--stats", "verify", str(tmp_path / "project")])
    assert result.stdout.endswith(": all well\n")
    counted = dict(line.split() for line in result.stderr.splitlines())
    assert 0 < int(counted["hashed"]) < 1000
    assert int(counted["file_reads"]) > 1
    assert counted.keys() <= {meter.name for meter in METERS}
    assert "0" not in counted.values()


@pytest.mark.parametrize("command", [["list", "."], ["verify", "."], ["serve", "--stdio", "."]])
def test_a_ban_that_is_none_is_refused_whether_the_command_makes_calls_or_not(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("SMARTSERVER_DEBUG", raising=False)
    unmatched = CliRunner().invoke(group, ["-Dhpss-ban=rpc:Server.pin", *command])
    assert "the rule 'rpc:Server.pin' matches no verb; near it: rpc:Server.ping" in unmatched.output
    flagged = CliRunner().invoke(group, ["-Dhpss-ban=xx", *command])
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpss-ban=xx")
    for result in (flagged, CliRunner().invoke(group, command)):
        assert result.exit_code == 2
        assert "no such rule: 'xx'" in result.output


@pytest.mark.parametrize("command", OF_ITSELF)
def test_a_debug_flag_is_refused_where_no_call_is_made(command: str) -> None:
    result = CliRunner().invoke(group, ["-Dhpss", command])
    assert result.exit_code == 2
    assert f"-Dhpss has no effect with {command}, which makes no call to show" in result.output


def test_what_could_not_be_done_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(monkeypatch, CommandError("no repository at 'a'")) == 1
    assert capsys.readouterr() == ("", "smartserver: no repository at 'a'\n")
    ending(monkeypatch, CommandError("the server is stopping: \x1b[2J\nsmartserver: all well"))
    assert capsys.readouterr().err == "smartserver: the server is stopping:  [2J smartserver: all well\n"


def test_a_mistake_in_the_words_of_a_command_shows_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["smartserver", "ping", "hpss://h/a", "hpss://u:secret@h/b"])
    monkeypatch.setattr(Interrupts, "heed", lambda self: None)
    with pytest.raises(SystemExit):
        program.main()
    assert capsys.readouterr().err.endswith("Error: Got unexpected extra argument (hpss://u:***@h/b)\n")


def test_an_interrupt_is_said_and_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(monkeypatch, click.exceptions.Abort()) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_nobody_reading_is_one_and_nothing_more() -> None:
    # In a process of its own, for it closes its standard error.
    script = (
        "from smartserver.cli import main as program\n"
        "def command(**_):\n    raise BrokenPipeError\n"
        "program.group.main = command\n"
        "program.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.parametrize(
    ("number", "line"),
    [
        ("ENOSPC", "output: No space left on device"),
        ("EDQUOT", "output: Disk quota exceeded"),
        ("EIO", "output: Input/output error"),
        ("EMFILE", "Too many open files"),
    ],
)
def test_what_the_system_refuses_is_one_line_and_only_a_write_is_of_output(number: str, line: str) -> None:
    # In a process of its own, for it closes its standard output.
    script = (
        "import errno, os\n"
        "from smartserver.cli import main as program\n"
        f"def command(**_):\n    raise OSError(errno.{number}, os.strerror(errno.{number}))\n"
        "program.group.main = command\n"
        "program.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"smartserver: {line}\n"


def told(
    *signals: signal.Signals, ignored: Sequence[signal.Signals] = (), becomes: str = "raise"
) -> subprocess.CompletedProcess[str]:
    """A command that gets these signals, the later ones while it tidies up after the first; `becomes`: what it does
    where a signal raises something."""
    script = (
        "import os, signal\n"
        f"for number in {[int(number) for number in ignored]}: signal.signal(number, signal.SIG_IGN)\n"
        "from smartserver.cli import main as program\n"
        f"first, *more = {[int(number) for number in signals]}\n"
        "def command(**_):\n"
        "    try:\n        os.kill(os.getpid(), first)\n        print('goes on')\n"
        f"    except BaseException:\n        {becomes}\n"
        "    finally:\n"
        "        for number in more: os.kill(os.getpid(), number)\n"
        "        print('tidied')\n"
        "program.group.main = command\n"
        "program.main()\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", ENDING)
def test_told_to_end_it_tidies_up(number: signal.Signals) -> None:
    done = told(number, *ENDING)
    said = "interrupted\n" if number == signal.SIGINT else ""
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "tidied\n", said)


def test_told_to_end_where_python_drops_that_it_ends_with_that_status_and_its_end_is_left_alone() -> None:
    script = (
        "import atexit, signal, time\n"
        "from smartserver.cli import main as program\n"
        "class Dropped:\n    def __del__(self): signal.raise_signal(signal.SIGTERM)\n"
        "def command(**_): Dropped()\n"
        "def tidy():\n    time.sleep(0.05)\n    print('tidied')\n"
        "atexit.register(tidy)\n"
        "program.group.main = command\n"
        "program.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "tidied\n", "")


@pytest.mark.parametrize(
    ("number", "becomes"),
    [
        (signal.SIGINT, "raise RuntimeError('release unlocked lock')"),  # Of `threading`, where it waits.
        (signal.SIGTERM, "raise OSError(9, 'Bad file descriptor')"),  # Of `shutil.rmtree`.
        (signal.SIGTERM, "raise SystemExit(1)"),
        # A command it has started got the signal, too.
        (signal.SIGINT, "raise program.CommandError('brz revno: status -2')"),
        (signal.SIGTERM, "return 0"),
    ],
)
def test_told_to_end_it_says_so_whatever_comes_of_it(number: signal.Signals, becomes: str) -> None:
    done = told(number, becomes=becomes)
    said = "interrupted\n" if number == signal.SIGINT else ""
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "tidied\n", said)


@pytest.mark.parametrize("number", ENDING)
def test_what_whoever_started_it_wants_ignored_is(number: signal.Signals) -> None:
    done = told(number, ignored=[number])
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\ntidied\n", "")


def test_as_a_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "smartserver.cli.main", "ping", "http://h/"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "smartserver: 'http://h/' is not a URL of a repository: it does not begin with hpss://\n"
