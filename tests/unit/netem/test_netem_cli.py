"""netem.cli and netem.run: the command lines, what is printed, the status, and Ctrl-C before a command begins."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from netem import run as run_module
from netem.cli import main, meter, proxy, run
from netem.cli.commands import parser
from netem.counter import Counts
from netem.effects import EFFECTS, Delay, Jitter, Loss
from netem.link import Link
from netem.packets.command import Command
from netem.run import Crossing, RunError, RunResult

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


class Refusing(io.StringIO):
    """An output that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, text: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize(
    ("number", "total"),
    [
        (errno.EPIPE, nullcontext()),
        (errno.ENOSPC, pytest.raises(OSError, match="No space left on device: 'standard output'")),
    ],
)
def test_an_output_that_takes_nothing_ends_the_run(number: int, total: AbstractContextManager[object]) -> None:
    """It is no error if its reader went away."""
    asked: list[bool] = []
    report = proxy.Report(Refusing(number), as_json=number == errno.EPIPE, gone=lambda: asked.append(True))
    report.operation(Counts())
    assert asked == [True]
    with total:
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


COUNTS = Counts(connections=1, bytes_up=1100, bytes_down=240, flights_up=1, flights_down=1, depth=4,
                depth_without_handshake=2, seconds=2.0114)  # fmt: skip
METER = ["meter", "--to", ":9418", "--", "git", "fetch"]


def measures(monkeypatch: pytest.MonkeyPatch, late: float = 0.002) -> list[tuple[Sequence[str], str | None]]:
    """Let runs take two round trips and a quarter of a second, and timers be `late`; what was measured."""
    made: list[tuple[Sequence[str], str | None]] = []

    class Fake(meter.Measurement):
        def __call__(self, rtt: float) -> float:
            if not self.runs:
                made.append((self.command, self.prepare))
            self.runs.append((rtt, replace(COUNTS, seconds=2 * rtt), late * rtt))
            return 2 * rtt + 0.25

    monkeypatch.setattr(meter, "Measurement", Fake)
    return made


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = measures(monkeypatch)
    assert main.main(METER) == 0
    assert made == [(["git", "fetch"], None)]
    assert capsys.readouterr() == (
        "2.00 round trips, moved by late timers by no more than 0.01, and 0.250 s besides; no run is more than "
        "0 ms off the line\n"
        "the proxy counted: 2 round trips (1 handshake), 1 connection, 1.1 KB up, 240 B down, 2.000 s\n",
        "",
    )


def test_what_cannot_be_judged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """People get no figure to take away; JSON says that they are none."""
    measures(monkeypatch, late=0.04)
    assert main.main(METER) == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("netem: not judged: late timers may have moved the slope by 0.20 round trips, where 0.10 are")
    assert main.main(["meter", "--to", ":9418", "--json", "--", "git", "fetch"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["judged"] is False
    assert json.loads(out)["why_not"] in err


def test_the_address_is_filled_in() -> None:
    words = ["git://{proxy}/x", "{host}", "p={port}", "stash@{0}", "{}", "{proxy"]
    filled = ["git://h:1/x", "h", "p=1", "stash@{0}", "{}", "{proxy"]
    assert [meter.filled(word, "h", 1) for word in words] == filled
    assert meter.filled("{proxy} {host}", "::1", 4) == "[::1]:4 ::1"


def test_the_reference_names_every_effect_and_field(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "doc/reference/netem.md").read_text(encoding="utf-8")
    measures(monkeypatch)
    main.main(["meter", "--to", ":9418", "--json", "--", "git", "fetch"])
    fields = {*json.loads(capsys.readouterr().out), *run.costs(RunResult(0, 1.0, Counts())), "operations", "total"}
    for word in (*EFFECTS, *fields, "rtt", "late", "{proxy}", "{host}", "{port}"):
        assert re.search(rf"`[^`\n]*{re.escape(word)}", text), f"doc/reference/netem.md does not name {word}"


CROSSED = replace(COUNTS, seconds=3.0, packets_up=9, packets_down=8)
RUN_WORDS = ["run", "--rtt", "600ms", "--server", "x"]


def test_the_link_of_the_arguments() -> None:
    words = [*RUN_WORDS, "--rate", "1mbit", "--loss", "1%", "--up", "delay:5ms", "--down", "jitter:1ms", "--seed", "5"]
    link = run.make_link(parser().parse_args(words))
    assert (link.rtt, link.rate, link.seed) == (0.6, 125_000, 5)
    assert (link.up, link.down) == ([Loss(0.01), Delay(0.005)], [Loss(0.01), Jitter(0.001)])


@pytest.mark.parametrize(
    ("counts", "link", "line"),
    [
        (
            CROSSED,
            Link(0.6),
            "netem: 2 round trips (1 handshake), 1 connection, 1.1 KB up, 240 B down, 3.000 s (5.0 RTT), "
            "9 packets up, 8 down\n",
        ),
        (
            CROSSED,
            Link(0, up=[Delay(0.05)], down=[Delay(0.15)]),
            "netem: 2 round trips (1 handshake), 1 connection, 1.1 KB up, 240 B down, 3.000 s (15.0 RTT), "
            "9 packets up, 8 down\n",
        ),
        (
            Counts(dropped=1, repeated=2),
            Link(0),
            "netem: 0 round trips (0 handshakes), 0 connections, 0 B up, 0 B down, 0.000 s, "
            "0 packets up, 0 down, 1 dropped, 2 repeated\n",
        ),
    ],
)
def test_a_line(counts: Counts, link: Link, line: str) -> None:
    out = io.StringIO()
    run.report(RunResult(0, 1.0, counts), link, as_json=False, out=out)
    assert out.getvalue() == line


def test_a_machine_too_busy_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    late = RunResult(0, 1.0, CROSSED, 0.05, 0.013)
    run.report(late, Link(0.6), as_json=False)
    assert "one packet in a hundred came 13.0 ms late: the machine is too busy" in capsys.readouterr().err
    for link in (Link(6), Link(0.1, up=[Delay(5.9)])):
        run.report(late, link, as_json=False)
        assert "late" not in capsys.readouterr().err


def test_packets_that_are_not_tcp_are_said_not_to_be_counted(capsys: pytest.CaptureFixture[str]) -> None:
    run.report(RunResult(0, 1.0, Counts(not_tcp=10)), Link(0.6), as_json=True)
    assert "netem: 10 packets passed that are not TCP" in capsys.readouterr().err


def test_settings_of_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*RUN_WORDS, "--set", "net.ipv4.tcp_rmem=4096 131072 33554432", "--set", "net.ipv4.tcp_fastopen=3"]
    assert parser().parse_args(words).settings == [
        ("net.ipv4.tcp_rmem", "4096 131072 33554432"), ("net.ipv4.tcp_fastopen", "3"),
    ]  # fmt: skip
    for wrong in ("net.ipv4.tcp_fastopen", "=3", "../kernel=3", "a/b=3", "a..b=3"):
        with pytest.raises(SystemExit):
            parser().parse_args([*RUN_WORDS, "--set", wrong])
        assert f"'{wrong}': expected NAME=VALUE" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parser().parse_args([*RUN_WORDS, "--set", "vm.swappiness=60"])
    assert "'vm.swappiness' is not a network setting" in capsys.readouterr().err


class HungUp:
    """Runs nothing: the terminal ends when it begins."""

    running = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        signal.raise_signal(signal.SIGHUP)
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, command: Sequence[str], *, stdout: int) -> RunResult:
        return RunResult(7, 2.0, CROSSED)


@pytest.mark.parametrize("ignored", [True, False])
def test_the_end_of_the_terminal_ends_a_run_unless_it_was_ignored(
    ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Crossing", HungUp)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        assert main.main([*RUN_WORDS, "--", "true"]) == (7 if ignored else 128 + signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


NOBODY = 2**22 + 1
"""No process has a number so high."""


class Network:
    """Its servers never listen."""

    server_address = "192.0.2.1"

    def __init__(self) -> None:
        self._writing: list[int] = []

    def start(self) -> None: ...

    def close(self) -> None:
        for descriptor in self._writing:
            os.close(descriptor)

    def run(self, *_: Any, **__: Any) -> Command:
        reading, writing = os.pipe()
        self._writing.append(writing)
        return Command(NOBODY, reading)

    def listening(self, *_: Any, **__: Any) -> int:
        return 0


def test_a_server_that_never_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "WAITING", -1.0)
    monkeypatch.setattr(run_module, "LISTENING", -1.0)
    network: Any = Network()
    said: list[str] = []
    with pytest.raises(RunError, match=r"^the server sleep 100 does not listen on a TCP port after "):
        Crossing(network, ["sleep 100"], on_waiting=said.append).__enter__()
    assert said == ["waiting for the server sleep 100 to listen on a TCP port"]
