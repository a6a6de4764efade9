"""Python's collector of what refers to itself, told to look rarely while a whole history is read or written.

It walks everything that lives each time the number of objects has grown by a quarter; nearly all of ours die by
themselves, so that of a Breezy push of 3,000 revisions it took a seventh, of a git push of 12,500 a twelfth.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

RARELY = 100_000
"""Objects made and not dropped between two looks at the youngest; Python's own number is 700."""


_open = 0
"""Contexts that are open; the last one to be left puts things right, in whatever order that is."""


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Have it look rarely while the context is open."""
    global _open, _before
    if not _open:
        _before = gc.get_threshold()
        gc.set_threshold(RARELY, *_before[1:])
    _open += 1
    try:
        yield
    finally:
        _open -= 1
        if not _open:
            gc.set_threshold(*_before)


_before: tuple[int, int, int] = (0, 0, 0)
