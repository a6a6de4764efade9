"""cli.main, cli.errors, cli.progress, cli.streams, cli.user: what is refused, said and shown; the status of an end."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from cli_runs import run, stored

from smartserver.cli import main as program
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.interrupts import ENDING, Interrupts
from smartserver.cli.main import OF_ITSELF, group
from smartserver.cli.progress import OFTEN, QUIET, CountLine, ProgressLine
from smartserver.cli.reference import pages
from smartserver.cli.user import user
from smartserver.errors import NoSuchRepository
from smartserver.meters import HASHED, METERS, here
from transports.errors import TransportFailed


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
def test_a_flag_or_a_ban_that_is_none_is_refused_whether_the_command_makes_calls_or_not(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("SMARTSERVER_DEBUG", raising=False)
    unknown = run("-Dfoo", *command)
    assert (unknown.exit_code, "no such debug flag in -D: 'foo' (there are hpss, " in unknown.output) == (2, True)
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
    assert ending(monkeypatch, CommandError("there is no repository at 'a'")) == 1
    assert capsys.readouterr() == ("", "smartserver: there is no repository at 'a'\n")
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


# -- errors


@pytest.mark.parametrize("error", [KeyError("a bug"), KeyboardInterrupt(), CommandError("said already")])
def test_anything_else_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, one_line("hpss://h/a"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("what", "above", "error", "said"),
    [
        ("/srv/a", "/srv/a/", TransportFailed("", "it is busy"), "/srv/a: it is busy"),
        ("/srv/a", "/srv/a/", TransportFailed("packs/x", "it is busy"), "'/srv/a/packs/x': it is busy"),
        ("/srv/a", "", TransportFailed("packs/x", "it is busy"), "/srv/a: 'packs/x': it is busy"),
        ("vfs://h/a", "", TransportFailed("", "vfs://h/a: no sign of life"), "vfs://h/a: no sign of life"),
        ("a", "", TransportFailed("", "a disk is full"), "a: a disk is full"),
        ("/srv/a/", "/srv/a/", TransportFailed("packs/x", "it is busy"), "'/srv/a/packs/x': it is busy"),
        ("/srv/a", "", TransportFailed("", "/srv/a is not there"), "/srv/a is not there"),
        ("/srv/a", "", TransportFailed("", "/srv/a"), "/srv/a"),
        # What only begins so is another place.
        ("/srv/a", "", TransportFailed("", "cannot read '/srv/abc'"), "/srv/a: cannot read '/srv/abc'"),
        ("/srv/a", "", TransportFailed("", "/srv/abc: it is busy"), "/srv/a: /srv/abc: it is busy"),
        ("/srv/a", "", TransportFailed("", "'/srv/a b': it is busy"), "/srv/a: '/srv/a b': it is busy"),
        ("/", "", TransportFailed("", "cannot read '/srv/abc'"), "/: cannot read '/srv/abc'"),
        (
            "hpss+sftp://h/srv/a?host-key=any",
            "sftp://h/srv/",
            NoSuchRepository("a"),
            "there is no repository at 'sftp://h/srv/a'",
        ),
    ],
)
def test_a_place_is_named_once_and_as_the_user_does(what: str, above: str, error: Exception, said: str) -> None:
    with pytest.raises(CommandError) as caught, one_line(what, above):
        raise error
    assert str(caught.value) == said


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no user")])
def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert user() == str(os.getuid())


# -- progress: lines that appear once a command takes longer than a second


def test_the_share_of_a_total(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    shown = ProgressLine("push", True, lambda: now[0])
    for seconds in (0.0, QUIET, QUIET + OFTEN / 2, QUIET + OFTEN):
        now[0] = seconds
        shown(int(seconds * 10_000_000), int(seconds * 10), 100)
    shown(72_000_000, 100, 100)
    assert capsys.readouterr().err == "\rpush: 10 %, 10.0 MB\rpush: 12 %, 12.0 MB\rpush: 100 %, 72.0 MB\n"
    quick, hidden = ProgressLine("push", True, lambda: 0.0), ProgressLine("push", False, lambda: now[0])
    for each in (quick, hidden):
        now[0] += QUIET
        each(1, 1, 2)
        each(2, 2, 2)
    assert capsys.readouterr().err == ""


def test_counts_without_a_total(capsys: pytest.CaptureFixture[str]) -> None:
    """The last line has the last numbers."""
    now = [0.0]
    shown = [CountLine("import", True, lambda: now[0]), CountLine("export", True, lambda: now[0], done="written")]
    for each in (*shown, CountLine("hidden", False, lambda: now[0])):
        each.end()
        for seconds, files in ((0.0, 1), (QUIET, 2000), (QUIET + OFTEN, None), (QUIET + OFTEN * 1.5, 3000)):
            now[0] = seconds
            each(int(seconds * 10_000_000), files)
        each.end()
    lines = "\r{0}: 2,000 files, 10.0 MB {1}\r{0}: 12.0 MB {1}\r{0}: 3,000 files, 13.0 MB {1}\n"
    assert capsys.readouterr().err == lines.format("import", "read") + lines.format("export", "written")


# -- streams: in any locale


SCRIPT = """
import fcntl, os, sys
from smartserver.cli.streams import prepare_streams
prepare_streams()
with open(sys.argv[1], "w") as found:
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
        print(stream.fileno(), os.readlink(f"/proc/self/fd/{number}"), mode, os.get_inheritable(number), file=found)
print("nobody reads it", file=sys.stderr)
assert sys.stdin.read() == ""
print("written")
sys.stdout.flush()
"""


@pytest.mark.parametrize(
    ("closed", "numbers"), [("<&-", [0]), (">&-", [1]), ("2>&-", [2]), ("<&- >&- 2>&-", [0, 1, 2]), ("", [])]
)
def test_what_is_closed_is_opened(tmp_path: Path, closed: str, numbers: list[int]) -> None:
    words = ["/bin/sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", SCRIPT, str(tmp_path / "found")]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = (tmp_path / "found").read_text().splitlines()
    modes = [os.O_RDONLY, os.O_RDONLY, os.O_WRONLY]
    assert [line.split()[0] for line in found] == ["0", "1", "2"]
    assert [found[each] for each in numbers] == [f"{each} {os.devnull} {modes[each]} True" for each in numbers]
    # A command must not take it for written.
    assert done.stdout == ("" if 1 in numbers else "written\n")
    assert (done.returncode == 0) is (1 not in numbers)
    assert ("Bad file descriptor" in done.stderr) is (numbers == [1])


@pytest.mark.parametrize(
    ("encoding", "expected"), [("latin-1", rb"\u65e5 " + b"\xe9 \\udcff"), ("utf-8:strict", "日 é \\udcff".encode())]
)
def test_what_an_encoding_lacks_is_escaped(encoding: str, expected: bytes) -> None:
    script = "from smartserver.cli.streams import *; prepare_streams(); print('\\u65e5 \\xe9 \\udcff', end='')"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, check=True)
    assert done.stdout == expected
