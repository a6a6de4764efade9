"""Progress and advice of a server, shown to the user of brz."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from breezy import trace, ui

from smartserver.client.body import OnSent
from smartserver.client.places import served_by
from smartserver.client.plain import plain
from smartserver.plugins.breezy.running import runs

if TYPE_CHECKING:
    from smartserver.client.advice import Advice
    from smartserver.client.places import Place
    from smartserver.client.repository import RemoteRepository

SHOWN_AFTER = 1.0
"""Seconds."""


@contextmanager
def moving(what: str) -> Iterator[OnSent]:
    """A function that shows how many bytes and revisions were moved."""
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
    """Show messages of the server on a progress bar of their own."""

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


def listen(repository: RemoteRepository, location: Place) -> None:
    """Show what the answers to a repository's requests advise."""
    repository.asks_for_advice = runs("info")

    def advised(found: Sequence[Advice]) -> None:
        from smartserver.client.advice import lines  # There is nearly never any.

        if trace.is_quiet():
            return
        known = repository.knowledge
        url = served_by(location) + (known.at or "")
        for line in lines(found, url, "brz pack", known.path, always=runs("info")):
            trace.note("%s", line)

    repository.advised = advised
