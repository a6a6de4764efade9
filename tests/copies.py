"""Copies of a storage in memory and its companions: pickled once, and loaded whenever a copy is needed."""

from __future__ import annotations

import copyreg
import io
import pickle
import threading
from typing import Any

_LOCKS = {type(new()): lambda _, new=new: (new, ()) for new in (threading.Lock, threading.RLock)}
"""Makes new locks for each copy, held by nobody."""


def freeze(storage: object) -> bytes:
    """Return the bytes from which `thaw` makes equal storages; equal bytes are equal storages."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    pickler.dispatch_table = {**copyreg.dispatch_table, **_LOCKS}
    pickler.dump(storage)
    return file.getvalue()


def thaw(frozen: bytes) -> Any:
    """Return a copy of a frozen storage."""
    return pickle.loads(frozen)
