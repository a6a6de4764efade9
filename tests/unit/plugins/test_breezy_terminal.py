"""plugins.breezy.terminal: progress, when and how."""

from __future__ import annotations

import contextlib
import time

import pytest
from breezy import ui

from smartserver.plugins.breezy.terminal import ServerProgress, moving


class Bar:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def update(self, *what: object) -> None:
        self.told.append(what)

    def finished(self) -> None:
        self.told.append(("finished",))


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    """The bars that were begun."""
    begun: list[Bar] = []

    class Factory:
        def nested_progress_bar(self) -> Bar:
            begun.append(Bar())
            return begun[-1]

    monkeypatch.setattr(ui, "ui_factory", Factory())
    return begun


def test_bytes_and_revisions_are_shown_after_a_second(monkeypatch: pytest.MonkeyPatch, bars: list[Bar]) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * 0.4)
    with moving("Sending") as moved:
        for size in range(1, 5):
            moved(size * 1_000_000, size // 4, 1)
    (bar,) = bars
    assert bar.told == [("Sending, 3.0 MB", 0, 1), ("Sending, 4.0 MB", 1, 1), ("finished",)]


def test_nothing_is_shown_of_what_is_quick(bars: list[Bar]) -> None:
    with moving("Sending") as moved:
        moved(1, 0, 2)
        moved(2, 2, 2)
    assert not bars


def test_the_bar_ends_with_an_error(monkeypatch: pytest.MonkeyPatch, bars: list[Bar]) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * 2)
    with contextlib.suppress(ConnectionError), moving("Sending") as moved:
        moved(1, 0, 3)
        raise ConnectionError
    assert bars[0].told[-1] == ("finished",)


def test_what_the_server_says(bars: list[Bar]) -> None:
    progress = ServerProgress()
    progress("checking", 1, 0)
    progress("che\x1bcking", 2, 3)
    progress("checking", 3, 3)
    progress("swap", 1, 2)
    assert [bar.told for bar in bars] == [
        [
            ("server: checking", 1, None),
            ("server: che cking", 2, 3),
            ("server: checking", 3, 3),
            ("finished",),
        ],
        [("server: swap", 1, 2)],
    ]
