"""`Medium`: a blocking, two-way carrier of bytes, and its errors."""

from __future__ import annotations

from typing import Protocol


class MediumError(Exception):
    """Bytes could not be carried."""


class CannotConnect(MediumError):
    """No connection could be opened. The message names the address and the reason; `why` is the reason alone."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"cannot connect to {where}: {why}")
        self.why = why


class ConnectionLost(MediumError):
    """The connection ended before the answer."""


class Medium(Protocol):
    """Two streams of bytes. `read` waits only for the first byte, and `write_some` does not wait; `poll` waits for
    either."""

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait until a requested direction is ready, at most `timeout` seconds. Return (readable, writable); both are
        False after the timeout."""

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most `size`; empty when the peer sends no more.

        Raises:
            ConnectionLost: the connection broke.
        """

    def write_some(self, data: memoryview) -> int:
        """Write the bytes that the medium accepts without blocking. Return their number, at least 1 if `poll` has
        returned that the medium is writable.

        Raises:
            ConnectionLost: the connection broke.
        """

    def close(self) -> None:
        """Close the medium; closing twice is harmless."""
