"""netem.cli.commands, main, options, proxy, words: the command line, what is printed, and Ctrl-C before it begins."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from netem.cli import main, proxy, run
from netem.counter import Counts
from netem.effects import EFFECTS
from netem.run import RunResult

ROOT = Path(__file__).parents[3]
PROXY = "proxy --rtt 1s --listen :1 --to :2"
RUN = "run --rtt 1s --server x"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "required: COMMAND"),
        ("proxy", "required: --rtt, --listen, --to"),
        (
            "proxy --rtt 1000 --listen :1 --to :2",
            "argument --rtt: '1000' has no unit of time; write for example 1000ms",
        ),
        ("proxy --rtt 1s --listen 4001 --to :2", "argument --listen: '4001' is not an address"),
        ("proxy --rtt 1s --listen ::1:1 --to :2", r"in brackets: \[::1\]:1"),
        ("proxy --rtt 1s --listen :1 --to :2 --rate 5", "argument --rate: '5' has no unit of rate"),
        ("proxy --rtt 1s --listen :1 --to :0", "argument --to: ':0' is not an address of a server"),
        ("meter --to h:0 -- true", "argument --to: 'h:0' is not an address of a server"),
        (
            "proxy --rtt 1s --listen :1 --to :2 --up lose:1",
            "argument --up: no effect 'lose'; there are [a-z, ]*cut",
        ),
        ("fly", "invalid choice: 'fly'"),
        ("meter -- true", "required: --to"),
        ("meter --to :1 --rtts 1s,2s -- true", "argument --rtts: '1s,2s': expected three different RTTs or more"),
        ("meter --to :1 --rtts 0,1s,2s -- true", "argument --rtts: .* none of them 0"),
        ("meter --to :1 --rtts 1s,2s,3 -- true", "argument --rtts: '3' has no unit of time"),
        ("meter --to :1 --repeat 0 -- true", "argument --repeat: '0': expected a number from 1 on"),
    ],
)
def test_bad_input_is_one_line_and_status_2(line: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(line.split())
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("netem")
    assert err.count("\n") == 1
    assert re.search(why, err)


@pytest.mark.parametrize("line", [PROXY + " --up loss:1%", RUN + " --down cut:5 -- true", RUN])
def test_what_means_nothing_there_is_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert re.match(
        r"netem: (proxy: .*use `netem run`|run: .*use `netem proxy`|run: no client; write it after --)", err
    )


def test_the_reference_names_every_effect_and_field() -> None:
    text = (ROOT / "doc/reference/netem.md").read_text(encoding="utf-8")
    crossed = RunResult(0, 1.0, Counts())
    for word in (*EFFECTS, *run.costs(crossed), "operations", "total"):
        assert re.search(rf"`[^`\n]*{re.escape(word)}", text), f"doc/reference/netem.md does not name {word}"


class Refusing(io.StringIO):
    """An output that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, text: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


def test_a_reader_that_went_away_ends_the_run_and_is_no_error() -> None:
    asked: list[bool] = []
    report = proxy.Report(Refusing(errno.EPIPE), as_json=True, gone=lambda: asked.append(True))
    report.operation(Counts())
    assert asked == [True]
    report.total()


def test_an_output_that_is_full_ends_the_run_and_is_one() -> None:
    asked: list[bool] = []
    report = proxy.Report(Refusing(errno.ENOSPC), as_json=False, gone=lambda: asked.append(True))
    report.operation(Counts())
    assert asked == [True]
    with pytest.raises(OSError, match="No space left on device: 'standard output'"):
        report.total()


FOUND = """
import sys
from netem.cli import meter
from netem.cli.main import main

class Measured(meter.Measurement):
    def __call__(self, rtt):
        self.runs.append((rtt, meter.Counts(), 0.0))
        return rtt

meter.Measurement = Measured
sys.exit(main())
"""
"""The command, where nothing is measured."""


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE], ids=errno.errorcode.get)
def test_an_output_that_takes_nothing_is_one_line(number: int, options: list[str]) -> None:
    """Nor does the interpreter say a word of its own at the end, or change the status."""
    if number == errno.ENOSPC:
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        nobody, descriptor = os.pipe()
        os.close(nobody)
    command = [sys.executable, "-c", FOUND, "meter", "--to", ":1", *options, "--", "true"]
    try:
        ended = subprocess.run(command, stdout=descriptor, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    finally:
        os.close(descriptor)
    assert (ended.returncode, ended.stderr) == (1, f"netem: standard output: {os.strerror(number)}\n")


INTERRUPTED = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1] and sys.argv.pop(1):
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from netem.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["netem.cli.commands", "argparse", "asyncio", "netem.cli.run"])
def test_while_modules_are_loaded(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "run", "--rtt", "1s", "--server", "x", "--", "true"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "netem: interrupted\n")


def test_while_nobody_reads() -> None:
    command = [sys.executable, "-c", f"import os; os.close(2)\n{INTERRUPTED}", "argparse", "proxy"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 130
