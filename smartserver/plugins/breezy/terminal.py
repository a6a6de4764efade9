"""Shows the progress of transfers and of the server on Breezy's progress bars."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from breezy import ui

from smartserver.client.body import OnSent
from smartserver.client.plain import plain

SHOWN_AFTER = 1.0
"""Seconds after which the progress of a transfer is shown."""


@contextmanager
def moving(what: str) -> Iterator[OnSent]:
    """Yield a function that shows how many bytes and revisions were transferred."""
    start = time.monotonic()
    bar: ui.ProgressTask | None = None

    def moved(size: int, done: int, total: int) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - start > SHOWN_AFTER:
            bar = ui.ui_factory.nested_progress_bar()
        if bar is not None:
            bar.update(f"{what}, {size / 1e6:.1f} MB", done, total)

    try:
        yield moved
    finally:
        if bar is not None:
            bar.finished()


class ServerProgress:
    """Shows the progress that the server reports, on a progress bar of its own."""

    def __init__(self) -> None:
        self._bar: ui.ProgressTask | None = None

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Show the progress of a phase; a `total` of 0 means unknown."""
        if self._bar is None:
            self._bar = ui.ui_factory.nested_progress_bar()
        self._bar.update(f"server: {plain(phase)}", done, total or None)
        if total and done >= total:
            self._bar.finished()
            self._bar = None
