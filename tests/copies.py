"""Copies of a storage in memory and of what goes with it: pickled once, and loaded as often as one is needed."""

from __future__ import annotations

import copyreg
import io
import pickle
import threading
from typing import Any

_LOCKS = {type(new()): lambda _, new=new: (new, ()) for new in (threading.Lock, threading.RLock)}
"""Each copy has locks of its own, that nobody holds."""


def freeze(storage: object) -> bytes:
    """What `thaw` makes equal ones of; equal bytes are equal storages."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    pickler.dispatch_table = {**copyreg.dispatch_table, **_LOCKS}
    pickler.dump(storage)
    return file.getvalue()


def thaw(frozen: bytes) -> Any:
    """A copy."""
    return pickle.loads(frozen)
