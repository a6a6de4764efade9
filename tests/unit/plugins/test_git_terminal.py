"""plugins.git.terminal: progress, when and how."""

from __future__ import annotations

import time

import pytest

from smartserver.plugins.git.terminal import Terminal


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def terminal(said: list[str]) -> Terminal:
    made = Terminal(said.append)
    made.shows_progress = True
    return made


def test_progress_is_told_now_and_then_also_within_a_revision(
    terminal: Terminal, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * 0.15)
    for size in (10, 20, 30, 40):
        terminal.moved("Sending", size * 1_000_000, size // 40, 2)
    terminal.moved("Sending", 72_000_000, 2, 2)
    assert said == [
        "Sending:   0% (0/2 revisions), 30.00 MB\r",
        "Sending: 100% (2/2 revisions), 72.00 MB\n",
    ]


def test_what_the_server_says_of_itself(terminal: Terminal, said: list[str]) -> None:
    terminal.server_progress("checking", 1, 2)
    terminal.server_progress("che\x1bcking", 2, 2)
    terminal.server_progress("checking", 2, 0)
    assert said == ["remote: checking  50%\r", "remote: che cking 100%\n", "remote: checking\n"]
