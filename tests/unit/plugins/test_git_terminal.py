"""plugins.git_terminal: progress, when and how."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from smartserver.plugins.git_terminal import Terminal


def ticking(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * step)


def segments(count: int) -> Iterator[bytes]:
    return iter([b"x" * 1000] * count)


def terminal(*, shows_progress: bool) -> tuple[Terminal, list[str]]:
    """One, and what is said on it."""
    said: list[str] = []
    made = Terminal(said.append)
    made.shows_progress = shows_progress
    return made, said


def test_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 0.15)
    shown, said = terminal(shows_progress=True)
    assert list(shown.count("Sending", segments(6), 6)) == [b"x" * 1000] * 6
    assert said == [
        "Sending:  50% (3/6 revisions), 0.00 MB\r",
        "Sending:  83% (5/6 revisions), 0.01 MB\r",
        "Sending: 100% (6/6 revisions), 0.01 MB\n",
    ]


def test_the_end_is_told_however_quick_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 0.01)
    shown, said = terminal(shows_progress=True)
    assert len(list(shown.count("Sending", segments(6), 6))) == 6
    assert said == ["Sending: 100% (6/6 revisions), 0.01 MB\n"]


def test_nothing_is_told_of_nothing() -> None:
    shown, said = terminal(shows_progress=True)
    assert list(shown.count("Sending", segments(0), 0)) == []
    assert said == []


def test_what_the_server_says_of_itself() -> None:
    shown, said = terminal(shows_progress=True)
    shown.server_progress("checking", 1, 2)
    shown.server_progress("che\x1bcking", 2, 2)
    shown.server_progress("checking", 2, 0)
    assert said == ["remote: checking  50%\r", "remote: che cking 100%\n", "remote: checking\n"]


def test_progress_is_told_only_where_git_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 0.3)
    silent, said = terminal(shows_progress=False)
    assert len(list(silent.count("Sending", segments(6), 6))) == 6
    silent.server_progress("checking", 1, 2)
    assert said == []
