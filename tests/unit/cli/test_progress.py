"""cli.progress: lines that appear once a command takes longer than a second."""

from __future__ import annotations

import pytest

from smartserver.cli.progress import OFTEN, QUIET, CountLine, ProgressLine


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
    now = [0.0]
    shown, hidden = CountLine("import", True, lambda: now[0]), CountLine("import", False, lambda: now[0])
    for each in (shown, hidden):
        each.end()
        for seconds, files in ((0.0, 1), (QUIET, 2000), (QUIET + OFTEN / 2, 3000), (QUIET + OFTEN, None)):
            now[0] = seconds
            each(int(seconds * 10_000_000), files)
        each.end()
    said = "\rimport: 2,000 files, 10.0 MB read\rimport: 12.0 MB read\rimport: 12.0 MB read\n"
    assert capsys.readouterr().err == said


def test_the_last_line_has_the_last_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    line = CountLine("export", True, lambda: now[0], done="written")
    now[0] = QUIET
    line(1_000_000, 1)
    line(2_000_000, 2)
    line.end()
    assert capsys.readouterr().err == "\rexport: 1 files, 1.0 MB written\rexport: 2 files, 2.0 MB written\n"
