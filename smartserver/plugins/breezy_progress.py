"""How far a command is, on Breezy's progress bar: only once it has taken a second."""

from __future__ import annotations

import time
from collections.abc import Iterator

from breezy import ui

from smartserver.client.plain import plain

SHOWN_AFTER = 1.0
"""Seconds."""


def counted(what: str, segments: Iterator[bytes], total: int) -> Iterator[bytes]:
    """Pass segments on, showing how many of them."""
    start = time.monotonic()
    bar = None
    try:
        for done, segment in enumerate(segments, 1):
            yield segment
            if bar is None and time.monotonic() - start > SHOWN_AFTER:
                bar = ui.ui_factory.nested_progress_bar()
            if bar is not None:
                bar.update(what, done, total)
    finally:
        if bar is not None:
            bar.finished()


class ServerProgress:
    """What the server says of itself, on a bar of its own while it says it."""

    def __init__(self) -> None:
        self._bar: ui.ProgressTask | None = None

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Show how far it is."""
        if self._bar is None:
            self._bar = ui.ui_factory.nested_progress_bar()
        self._bar.update(f"server: {plain(phase)}", done, total or None)
        if total and done >= total:
            self._bar.finished()
            self._bar = None
