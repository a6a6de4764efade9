"""plugins.breezy_progress: progress, when and how."""

from __future__ import annotations

import time

import pytest
from breezy import ui

from smartserver.plugins.breezy_progress import ServerProgress, counted


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
    """Those that were begun."""
    begun: list[Bar] = []

    class Factory:
        def nested_progress_bar(self) -> Bar:
            begun.append(Bar())
            return begun[-1]

    monkeypatch.setattr(ui, "ui_factory", Factory())
    return begun


def test_segments_are_counted_after_a_second(monkeypatch: pytest.MonkeyPatch, bars: list[Bar]) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * 0.4)
    segments = [b"1", b"2", b"3", b"4"]
    assert list(counted("Sending", iter(segments), 4)) == segments
    (bar,) = bars
    assert bar.told == [("Sending", 3, 4), ("Sending", 4, 4), ("finished",)]


def test_nothing_is_shown_of_what_is_quick(bars: list[Bar]) -> None:
    assert list(counted("Sending", iter([b"1", b"2"]), 2)) == [b"1", b"2"]
    assert not bars


def test_the_bar_ends_where_the_reader_does(monkeypatch: pytest.MonkeyPatch, bars: list[Bar]) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * 2)
    sent = counted("Sending", iter([b"1", b"2", b"3"]), 3)
    next(sent)
    next(sent)
    sent.close()  # type: ignore[attr-defined]
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
