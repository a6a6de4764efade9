"""Lines on a terminal that show the progress of a command that takes longer than a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

QUIET = 1.0
"""Seconds before the first line."""

OFTEN = 0.2
"""Seconds between two lines."""


class ProgressLine:
    """A progress line with the share of a known total, and the bytes so far."""

    def __init__(self, what: str, terminal: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._terminal = terminal
        self._clock = clock
        self._next = clock() + QUIET
        self._said = False

    def __call__(self, size: int, done: int, total: int) -> None:
        """Show that `size` bytes are moved, and `done` of `total` is complete."""
        ends = done >= total
        if self._said if ends else self._terminal and self._clock() >= self._next:
            self._next, self._said = self._clock() + OFTEN, not ends
            share = f"{100 * done // max(total, 1)} %, {size / 1e6:.1f} MB"
            click.echo(f"\r{self._what}: {share}", err=True, nl=ends)


class CountLine:
    """A progress line with the files and bytes so far, for an unknown total."""

    def __init__(
        self, what: str, terminal: bool, clock: Callable[[], float] = time.monotonic, *, done: str = "read"
    ) -> None:
        """`done`: the participle that the line puts after the bytes: `read` or `written`."""
        self._what = what
        self._terminal = terminal
        self._clock = clock
        self._done = done
        self._next = clock() + QUIET
        self._said = False
        self._size = 0
        self._files: int | None = None

    def __call__(self, size: int, files: int | None = None) -> None:
        """Show the bytes and files so far."""
        self._size, self._files = size, files
        if self._terminal and self._clock() >= self._next:
            self._next, self._said = self._clock() + OFTEN, True
            self._show()

    def end(self) -> None:
        """Show the final numbers and end the line, if a line was shown before."""
        if self._said:
            self._show(ends=True)

    def _show(self, *, ends: bool = False) -> None:
        files = "" if self._files is None else f"{self._files:,} files, "
        click.echo(f"\r{self._what}: {files}{self._size / 1e6:.1f} MB {self._done}", err=True, nl=ends)
