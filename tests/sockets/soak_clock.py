"""`smartserver` with a clock that can be stepped: `python soak_clock.py FILE serve ...`; FILE has the seconds added."""

from __future__ import annotations

import mmap
import struct
import sys
import time

_now = time.time
with open(sys.argv[1], "rb") as _file:
    _offset = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)


def stepped() -> float:
    """The time by the stepped clock."""
    added: float = struct.unpack("d", _offset[:8])[0]
    return _now() + added


time.time = stepped  # Before the modules that take it as a default are imported.

from smartserver.cli.main import main  # noqa: E402

sys.argv[0:2] = ["smartserver"]
main()
