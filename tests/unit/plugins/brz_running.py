"""A command of brz that is taken to run, for what reads off its name and arguments what it is about to want."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from breezy.revisionspec import RevisionSpec

from smartserver.plugins import breezy_shim as hpss


@contextmanager
def running(command: str, **arguments: object) -> Iterator[None]:
    """While this lasts the command runs, begun by the one before, if any."""
    hpss.running.append(hpss.RunningCommand(command, arguments))
    try:
        yield
    finally:
        hpss.running.pop()


def specs(*said: str) -> list[RevisionSpec]:
    """The values of `-r`."""
    return [RevisionSpec.from_string(each) for each in said]
