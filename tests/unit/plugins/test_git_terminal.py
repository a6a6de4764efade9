"""plugins.git.terminal: progress, when and how."""

from __future__ import annotations

import time

import pytest

from smartserver.plugins.git.terminal import Terminal


def ticking(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * step)


def terminal(*, shows_progress: bool) -> tuple[Terminal, list[str]]:
    """One, and what is said on it."""
    said: list[str] = []
    made = Terminal(said.append)
    made.shows_progress = shows_progress
    return made, said


def test_progress_is_told_now_and_then_also_within_a_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 0.15)
    shown, said = terminal(shows_progress=True)
    for size in (10, 20, 30, 40):
        shown.moved("Sending", size * 1_000_000, size // 40, 2)
    shown.moved("Sending", 72_000_000, 2, 2)
    assert said == [
        "Sending:   0% (0/2 revisions), 30.00 MB\r",
        "Sending: 100% (2/2 revisions), 72.00 MB\n",
    ]


def test_the_end_is_told_however_quick_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 0.01)
    shown, said = terminal(shows_progress=True)
    for done in range(1, 7):
        shown.moved("Sending", 1000 * done, done, 6)
    assert said == ["Sending: 100% (6/6 revisions), 0.01 MB\n"]


def test_what_the_server_says_of_itself() -> None:
    shown, said = terminal(shows_progress=True)
    shown.server_progress("checking", 1, 2)
    shown.server_progress("che\x1bcking", 2, 2)
    shown.server_progress("checking", 2, 0)
    assert said == ["remote: checking  50%\r", "remote: che cking 100%\n", "remote: checking\n"]


def test_progress_is_told_only_where_git_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 0.3)
    silent, said = terminal(shows_progress=False)
    silent.moved("Sending", 6000, 6, 6)
    silent.server_progress("checking", 1, 2)
    assert said == []
