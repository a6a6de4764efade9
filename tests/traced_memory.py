"""The memory that Python takes for a block of code."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Memory:
    """What was taken when the block ended."""

    kept: int = 0
    peak: int = 0


@contextlib.contextmanager
def traced() -> Iterator[Memory]:
    """Trace a block; what it took is said when it has ended."""
    found = Memory()
    tracemalloc.start()
    try:
        yield found
        found.kept, found.peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
