"""The processes of this machine that have a file of a folder open, as Linux tells it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")


def openers(folder: str, proc: Path = PROC) -> dict[int, str] | None:
    """The other processes that have a file at or below a folder open: number and name. Those of other users cannot be
    looked at, except by root. None: the system does not tell."""
    place = os.path.realpath(folder)
    if not (proc / "self" / "fd").is_dir():
        return None
    found: dict[int, str] = {}
    for each in proc.iterdir():
        if each.name.isdecimal() and int(each.name) != os.getpid():
            with contextlib.suppress(OSError):  # It has ended, or is another user's.
                if any(_is_in(place, file) for file in (each / "fd").iterdir()):
                    found[int(each.name)] = (each / "comm").read_text().strip()
    return found


def _is_in(place: str, file: Path) -> bool:
    try:
        target = os.readlink(file).removesuffix(" (deleted)")
    except OSError:  # It was closed.
        return False
    return target == place or target.startswith(f"{place}/")
