"""The only place that chooses between a part in Python and its native twin.

`smartserver._native` is a crate of Rust (`native/`), which `setup.py` builds if cargo is installed. Each of its parts
does the same as Python's part of the same name, in a fraction of the time. Python's part is the reference: it runs if
the crate was not built, it makes the error for data that the native part refuses, and tests run on both.
`SMARTSERVER_NATIVE=0` in the environment turns the native parts off.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final, TypeVar

OFF: Final = "SMARTSERVER_NATIVE"

T = TypeVar("T")


_IS_OFF: Final = os.environ.get(OFF) == "0"


def _load() -> Any:
    if _IS_OFF:
        return None
    try:
        return importlib.import_module("smartserver._native")
    except ImportError:
        return None


_native: Final = _load()

PARTS: Final[dict[str, tuple[Any, Any]]] = {}
"""The parts by name, each in Python and as its native twin or None."""


def twin(python: T) -> T:
    """Return the native part with the name of a Python part. If there is none, return the Python part."""
    name: str = python.__name__  # type: ignore[attr-defined]
    native: T | None = getattr(_native, name, None)
    PARTS[name] = python, native
    return python if native is None else native


def native(name: str) -> Any:
    """Return the native part with a name; None if it was not built."""
    return getattr(_native, name, None)


def said() -> str:
    """Return the line that `smartserver --version` adds; empty if the native parts are used."""
    if _native is not None:
        return ""
    if _IS_OFF:
        return f"native parts are turned off by {OFF}=0"
    why = "`pip install --verbose` says why"
    return f"native parts are not built ({why}): large pushes and clones take several times as long"
