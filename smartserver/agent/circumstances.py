"""The rights and settings of a command's process, which its worker must share. The worker reads them in /proc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from smartserver.agent.peer import bounds, read

CPUS, MASK = b"Cpus_allowed:", b"Umask:"
"""The beginnings of two lines of /proc/PROCESS/status."""

NICE, POLICY = 16, 38
"""The indexes of the nice value and of the scheduling policy in /proc/PROCESS/stat, after the program's name."""

OF_WORDS = (b"LC_", b"LANG=", b"PYTHONUTF8=", b"PYTHONIOENCODING=")
"""Variables that decide at Python's start how it encodes and decodes text."""


class Circumstances(NamedTuple):
    """The rights and settings of one process."""

    facts: bytes
    """A text that is equal for two processes if one may run a command for the other."""
    mask: int
    """The mask for the permissions of new files (umask)."""


def circumstances(folder: int, environment: Mapping[bytes, bytes]) -> Circumstances:
    """Return the rights and settings of a process. `folder`: a descriptor of its folder in /proc. `environment`: its
    `os.environb`."""
    status = read("status", folder).splitlines()
    stat = read("stat", folder).rpartition(b")")[2].split()
    facts = [
        bounds(folder),
        *[line for line in status if line.startswith(CPUS)],
        stat[NICE],
        stat[POLICY],
        read("oom_score_adj", folder),
        read("limits", folder),
        *[_unit(line) for line in read("cgroup", folder).splitlines()],
        *sorted(b"%s=%s" % each for each in environment.items() if (each[0] + b"=").startswith(OF_WORDS)),
    ]
    mask = next(line[len(MASK) :] for line in status if line.startswith(MASK))
    return Circumstances(b"\n".join(facts), int(mask, 8))


def _unit(line: bytes) -> bytes:
    """Return a line of /proc/PROCESS/cgroup. The group may limit memory or choose a route. A `.scope` at its end is cut
    off, because each terminal has its own."""
    above, _, last = line.rpartition(b"/")
    return above if last.endswith(b".scope") else line
