"""Shows the progress of a command to the user of git, and declares the error that ends a command with one line."""

from __future__ import annotations

import time
from collections.abc import Callable

from smartserver.client.plain import plain

INTERVAL = 0.2
"""Seconds between two lines of progress, as in git."""


class CannotGoOn(Exception):
    """The command cannot continue. The message is one line for the user."""


class Terminal:
    """Writes lines with `say`. Lines about progress are written only while git wants them shown."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.shows_progress = False
        """The last value of git's `option progress`."""
        self._told = 0.0

    def moved(self, what: str, size: int, done: int, total: int) -> None:
        """Show how many bytes and revisions were transferred, at most every `INTERVAL` seconds and at the end. `total`
        is 0 if it is unknown; then `done` is 0 at the end."""
        now = time.monotonic()
        moves = done < total or (not total and done)
        if not self.shows_progress or (moves and now - self._told <= INTERVAL):
            return
        self._told = now
        if not total:
            self.say(f"{what}: {size / 1e6:.2f} MB" + ("\r" if moves else "\n"))
            return
        end = "\r" if done < total else "\n"
        self.say(f"{what}: {100 * done // total:3d}% ({done}/{total} revisions), {size / 1e6:.2f} MB{end}")

    def server_progress(self, phase: str, done: int, total: int) -> None:
        """Show the progress that the server reports."""
        if self.shows_progress:
            share = f" {100 * done // total:3d}%" if total else ""
            self.say(f"remote: {plain(phase)}{share}" + ("\n" if done >= total else "\r"))
