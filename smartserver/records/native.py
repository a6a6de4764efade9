"""Chooses between a part (a class or function) in Python and its native twin; no other module does.

`smartserver._native` is a crate of Rust (`native/`), which `setup.py` builds if cargo is installed. Each of its parts
does the same as the part of this name in Python, in a fraction of the time. The part in Python is the reference: it
runs if the crate was not built, it raises the error for data that the native part refuses, and tests run on both.
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
"""The parts that have a native twin, by name: the part in Python, and the twin or None."""


def twin(python: T) -> T:
    """Return the native part that has the name of a Python part; the Python part itself if there is no native part."""
    name: str = python.__name__  # type: ignore[attr-defined]
    native: T | None = getattr(_native, name, None)
    PARTS[name] = python, native
    return python if native is None else native


def native(name: str) -> Any:
    """Return the native part with a name; None if it was not built."""
    return getattr(_native, name, None)


def said() -> str:
    """Return the line of `smartserver --version` about unused native parts; empty if they are used."""
    if _native is not None:
        return ""
    if _IS_OFF:
        return f"native parts are turned off by {OFF}=0"
    why = "`pip install --verbose` says why"
    return f"native parts are not built ({why}): large pushes and clones take several times as long"
