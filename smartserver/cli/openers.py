"""The processes of this machine that have a file of a folder open, read from /proc of Linux."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")


def openers(folder: str, proc: Path = PROC) -> dict[int, str] | None:
    """Return the other processes that have a file at or below a folder open, as process id -> name. Only root sees the
    processes of other users. Return None if the system has no /proc."""
    place = os.path.realpath(folder)
    if not (proc / "self" / "fd").is_dir():
        return None
    found: dict[int, str] = {}
    for each in proc.iterdir():
        if each.name.isdecimal() and int(each.name) != os.getpid():
            with contextlib.suppress(OSError):  # The process has ended, or belongs to another user.
                if any(_is_in(place, file) for file in (each / "fd").iterdir()):
                    found[int(each.name)] = (each / "comm").read_text().strip()
    return found


def _is_in(place: str, file: Path) -> bool:
    try:
        target = os.readlink(file).removesuffix(" (deleted)")
    except OSError:  # The file was closed.
        return False
    return target == place or target.startswith(f"{place}/")
