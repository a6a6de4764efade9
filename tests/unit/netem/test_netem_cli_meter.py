"""netem.cli.meter: the command line, what is printed, and the exit status; a fake measures."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from netem.cli import meter
from netem.cli.main import main
from netem.counter import Counts

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
    assert main(METER) == 0
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
    assert main(METER) == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("netem: not judged: late timers may have moved the slope by 0.20 round trips, where 0.10 are")
    assert main(["meter", "--to", ":9418", "--json", "--", "git", "fetch"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["judged"] is False
    assert json.loads(out)["why_not"] in err


def test_the_address_is_filled_in() -> None:
    words = ["git://{proxy}/x", "{host}", "p={port}", "stash@{0}", "{}", "{proxy"]
    filled = ["git://h:1/x", "h", "p=1", "stash@{0}", "{}", "{proxy"]
    assert [meter.filled(word, "h", 1) for word in words] == filled
    assert meter.filled("{proxy} {host}", "::1", 4) == "[::1]:4 ::1"


def test_the_reference_names_every_field(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "doc/reference/netem.md").read_text(encoding="utf-8")
    measures(monkeypatch)
    main(["meter", "--to", ":9418", "--json", "--", "git", "fetch"])
    fields = json.loads(capsys.readouterr().out)
    for word in (*fields, "rtt", "late", "{proxy}", "{host}", "{port}"):
        assert re.search(rf"`[^`\n]*{re.escape(word)}", text), f"doc/reference/netem.md does not name {word}"
