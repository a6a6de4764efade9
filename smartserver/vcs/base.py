"""Declares the types and errors that the adapters of all version-control systems share with the client.

VcsError
├── BadStream       a stream in the format of git fast-import cannot be read
├── CannotSend      a push cannot be sent: history or objects are missing here
├── WrongContent    a pulled record does not match its key, or cannot be rebuilt
└── ToolFailed      a command of the version-control system failed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from smartserver.errors import shown
from smartserver.programs import exit_reason
from smartserver.records.model import Key

Progress = Callable[[int, int], None]
"""Called with the number of objects done and the total number of objects, which is 0 while it is unknown."""


class VcsError(Exception):
    """An operation on a local repository failed or is not supported. The message is one line for the user."""


class BadStream(VcsError):
    """A stream cannot be imported. The message gives, on one line, the reason and the line of the stream."""

    @classmethod
    def at(cls, line: int, why: str) -> BadStream:
        """Return the error for a line of the stream."""
        return cls(f"line {line} of the stream: {why}")


class CannotSend(VcsError):
    """The local repository lacks history or objects that a push must send."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WrongContent(VcsError):
    """A pulled record does not match its key, or its base is missing in the local repository."""

    def __init__(self, key: Key, why: str) -> None:
        super().__init__(key, why)
        self.key = key
        self.why = why

    def __str__(self) -> str:
        return f"object {shown(self.key)} from the server: {self.why}"


class ToolFailed(VcsError):
    """A command of the version-control system failed. `said`: its message on one line, or empty."""

    def __init__(self, command: str, status: int, said: str) -> None:
        super().__init__(command, status, said)
        self.command = command
        self.status = status
        self.said = said

    def __str__(self) -> str:
        return f"{self.command} failed with {exit_reason(self.status)}" + (f": {self.said}" if self.said else "")


class InsertReport(NamedTuple):
    """The numbers of objects and revisions that a pull added to the local repository."""

    objects: int
    revisions: int
