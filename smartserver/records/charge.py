"""Charges for the work of a request: the type of the function that charges, and the cost of an entry of a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Charge = Callable[[int], None]
"""A function that is called with a number of steps or bytes. It raises an error to end the work."""

PATH_BYTES: Final = 64
"""Bytes of a path that cost one step. Path lengths are charged because those of nested folders together grow with the
square of the bytes that the folders take in the store."""


def free(steps: int) -> None:
    """Charge nothing."""


def steps_of(path: bytes) -> int:
    """Return the number of steps to charge for an entry of a tree with this path."""
    return 1 + len(path) // PATH_BYTES
