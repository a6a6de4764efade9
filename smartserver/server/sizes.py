"""The size limits in an access file; `push_checks` checks a push against them.

    [[limits]]
    path = "project/**"
    max-repository-size = "2 GB"
    max-file-size = "50 MB"

The size of a repository is that of its packs and their indexes, as `smartserver stats` prints it. The size of a file is
that of its text before compression. Files that are already stored are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from smartserver.server.watched import UnusableFile

UNITS: Final[Mapping[str, int]] = {"": 1, "B": 1} | {
    f"{letter}{ending}": int(base**power)
    for power, letter in enumerate("KMGT", 1)
    for ending, base in (("B", 1000), ("iB", 1024))
}

_SIZE: Final = re.compile(r"([0-9]{1,15}) ?([A-Za-z]{0,3})")


class SizeLimits(NamedTuple):
    """The most bytes of a repository and of a file in it; None means no limit."""

    repository: int | None
    file: int | None

    def or_else(self, others: SizeLimits) -> SizeLimits:
        """Return these limits. A limit that is None is taken from `others`."""
        return SizeLimits(*(mine if mine is not None else other for mine, other in zip(self, others, strict=True)))


NO_LIMITS: Final = SizeLimits(None, None)


def parse_size(key: str, size: str | int | None) -> int | None:
    """Convert a size of the access file, such as `5000000` or `2 GiB`, to bytes; None stays None. `key`: the name of
    the setting, for the error.

    Raises:
        UnusableFile: the size has no such form.
    """
    if size is None:
        return None
    found = _SIZE.fullmatch(str(size))
    unit = None if found is None else UNITS.get(found[2])
    if found is None or unit is None:
        expected = "bytes, as 5000000, or a number and a unit, as '50 MB' or '2 GiB'"
        raise UnusableFile(f"{key} = {size!r}: expected {expected}")
    return int(found[1]) * unit
