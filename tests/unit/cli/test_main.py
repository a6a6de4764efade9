"""smartserver.cli.main: the commands, what is refused, and the status each end has."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from cli_runs import run
from stored import stored

from smartserver.cli import main as program
from smartserver.cli.errors import CommandError
from smartserver.cli.interrupts import ENDING, Interrupts
from smartserver.cli.main import OF_ITSELF, group
from smartserver.cli.reference import pages
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
    result = run("-Dfoo", "ping", "hpss://h/")
    assert result.exit_code == 2
    there_are = "hpss, hpssdetail, hpssvfs, hpssbytes, hpss-json=FILE and hpss-ban=RULE[,RULE]"
    assert f"no such debug flag in -D: 'foo' (there are {there_are})" in result.output


def test_stats_are_the_counters_of_the_command(tmp_path: Path) -> None:
    stored(tmp_path / "project")
    here.tally[HASHED] += 1000  # By what this process did before.
    result = run("--stats", "verify", tmp_path / "project")
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
    unmatched = run("-Dhpss-ban=rpc:Server.pin", *command)
    assert "the rule 'rpc:Server.pin' matches no verb; near it: rpc:Server.ping" in unmatched.output
    flagged = run("-Dhpss-ban=xx", *command)
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpss-ban=xx")
    for result in (flagged, run(*command)):
        assert result.exit_code == 2
        assert "no such rule: 'xx'" in result.output


@pytest.mark.parametrize("command", OF_ITSELF)
def test_a_debug_flag_is_refused_where_no_call_is_made(command: str) -> None:
    result = run("-Dhpss", command)
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


def as_process(script: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, where `script` defines `command`."""
    words = f"from smartserver.cli import main as program\n{script}program.group.main = command\nprogram.main()\n"
    return subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("BrokenPipeError", ""),  # Nobody reads.
        ("error(errno.ENOSPC)", "smartserver: output: No space left on device\n"),
        ("error(errno.EDQUOT)", "smartserver: output: Disk quota exceeded\n"),
        ("error(errno.EIO)", "smartserver: output: Input/output error\n"),
        ("error(errno.EMFILE)", "smartserver: Too many open files\n"),
    ],
)
def test_what_the_system_refuses_is_one_line_and_only_a_write_is_of_output(error: str, said: str) -> None:
    """It closes its standard output or error."""
    done = as_process(
        "import errno, os\n"
        "def error(number): return OSError(number, os.strerror(number))\n"
        f"def command(**_): raise {error}\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def told(
    *signals: signal.Signals, ignored: Sequence[signal.Signals] = (), becomes: str = "raise"
) -> subprocess.CompletedProcess[str]:
    """A command that gets these signals, the later ones while it tidies up after the first; `becomes`: what it does
    where a signal raises something."""
    return as_process(
        "import os, signal\n"
        f"for number in {[int(number) for number in ignored]}: signal.signal(number, signal.SIG_IGN)\n"
        f"first, *more = {[int(number) for number in signals]}\n"
        "def command(**_):\n"
        "    try:\n        os.kill(os.getpid(), first)\n        print('goes on')\n"
        f"    except BaseException:\n        {becomes}\n"
        "    finally:\n"
        "        for number in more: os.kill(os.getpid(), number)\n"
        "        print('tidied')\n"
    )


def test_told_to_end_where_python_drops_that_it_ends_with_that_status_and_its_end_is_left_alone() -> None:
    done = as_process(
        "import atexit, signal, time\n"
        "class Dropped:\n    def __del__(self): signal.raise_signal(signal.SIGTERM)\n"
        "def command(**_): Dropped()\n"
        "def tidy():\n    time.sleep(0.05)\n    print('tidied')\n"
        "atexit.register(tidy)\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "tidied\n", "")


@pytest.mark.parametrize(
    ("number", "becomes"),
    [
        *((number, "raise") for number in ENDING),
        (signal.SIGINT, "raise RuntimeError('release unlocked lock')"),  # Of `threading`, where it waits.
        (signal.SIGTERM, "raise OSError(9, 'Bad file descriptor')"),  # Of `shutil.rmtree`.
        (signal.SIGTERM, "raise SystemExit(1)"),
        # A command it has started got the signal, too.
        (signal.SIGINT, "raise program.CommandError('brz revno: status -2')"),
        (signal.SIGTERM, "return 0"),
    ],
)
def test_told_to_end_it_says_so_whatever_comes_of_it(number: signal.Signals, becomes: str) -> None:
    done = told(number, *ENDING, becomes=becomes)
    said = "interrupted\n" if number == signal.SIGINT else ""
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "tidied\n", said)


@pytest.mark.parametrize("number", ENDING)
def test_what_whoever_started_it_wants_ignored_is(number: signal.Signals) -> None:
    done = told(number, ignored=[number])
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\ntidied\n", "")


def test_the_pages_of_docs_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "doc" / "built"
    for _ in range(2):
        done = run("docs", "--folder", folder)
        assert done.exit_code == 0
        assert done.output.split() == [str(folder / name) for name in pages()]
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == pages()
