"""`Medium`: a blocking, two-way carrier of bytes, and what goes wrong with one."""

from __future__ import annotations

from typing import Protocol


class MediumError(Exception):
    """Bytes could not be carried."""


class CannotConnect(MediumError):
    """There is nobody to talk to: where, and what the system said."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"cannot connect to {where}: {why}")
        self.why = why


class ConnectionLost(MediumError):
    """The connection ended before the answer."""


class Medium(Protocol):
    """Two streams of bytes. Reading and writing never wait longer than they must; `poll` waits for either."""

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait until one of those asked for can go on, at most `timeout` seconds: which can, both False at the end."""

    def read(self, size: int) -> bytes:
        """At least one byte and at most `size`; empty when the peer sends no more.

        Raises:
            ConnectionLost: the connection broke.
        """

    def write_some(self, data: memoryview) -> int:
        """Hand over what the medium takes now: how many bytes, at least one after `poll` said so.

        Raises:
            ConnectionLost: the connection broke.
        """

    def close(self) -> None:
        """Give it up; closing twice is harmless."""
