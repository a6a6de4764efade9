"""Charges for the work of a request: what is called with it, and how much an entry of a tree costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Charge = Callable[[int], None]
"""Told how many steps were taken, or how many bytes; ends the work by what it raises."""

PATH_BYTES: Final = 64
"""Bytes of a path that are a step: the paths of folders in each other take the square of what is stored of them."""


def free(steps: int) -> None:
    """Charge nobody."""


def steps_of(path: bytes) -> int:
    """The steps that an entry of a tree is charged for."""
    return 1 + len(path) // PATH_BYTES
