"""The `format` file: one line, written once, that names the family and the swap discipline every writer obeys.

What else can change about a repository is a feature in its root; this line never changes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from smartserver.errors import A_BAZAAR_REPOSITORY, A_GIT_REPOSITORY, CorruptFile, Unsupported
from transports.base import Transport

FORMAT = "format"
ROOT = "root"
LOCK = "lock"
PACKS = "packs"
INCOMING = "incoming"
TABLES = "tables"
LOG = "log"

FOLDERS = (PACKS, INCOMING, TABLES, LOG)
"""The folders of a repository."""
NAMES = frozenset({FORMAT, ROOT, LOCK, *FOLDERS})
"""Every name of a repository's folder, but for the temporary `root.<hex>` and `format.<hex>`."""
TEMPORARY = (f"{ROOT}.", f"{FORMAT}.")
"""What begins the names a crash may leave in the repository's folder; only a holder of the lock makes them."""

FAMILY = "smartserver repository"
VERSION = "1"
"""What is written."""
VERSIONS = (VERSION,)
"""What is read, newest last."""
_LONGEST = 256
"""Bytes of a format line; this release's takes 35."""


class Discipline(enum.Enum):
    """How the root is swapped: a property of the repository, never of the writer."""

    FILE = "file"
    """Under a lock on the file `lock`."""
    FOLDER = "folder"
    """Under a lock folder; for stores that have only files."""
    OBJECT = "object"
    """By the store's own compare-and-swap."""


SPOKEN = f"{FAMILY} {VERSION} swap=file"
"""What this release reads and writes."""


@dataclass(frozen=True, slots=True)
class Format:
    """What the line says."""

    discipline: Discipline
    version: str = VERSION

    def line(self) -> bytes:
        """The content of the file."""
        return f"{FAMILY} {self.version} swap={self.discipline.value}\n".encode()


def parse_format(content: bytes) -> Format:
    """Read the line.

    Raises:
        Unsupported: another family, version or discipline.
        CorruptFile: no whole line.
    """
    line, newline, rest = content[:_LONGEST].partition(b"\n")
    if not newline or rest:
        raise CorruptFile(FORMAT, len(line), f"expected one line, found {content[:_LONGEST]!r}")
    words = line.decode("utf-8", "backslashreplace")
    if not words.startswith(FAMILY + " "):
        raise Unsupported(f"the repository format {words!r} in the file {FORMAT!r}", SPOKEN)
    version, _, swap = words.removeprefix(FAMILY + " ").partition(" ")
    if version not in VERSIONS:
        raise Unsupported(f"version {version} of the repository format in the file {FORMAT!r}", SPOKEN)
    name, _, value = swap.partition("=")
    if name != "swap" or value not in {discipline.value for discipline in Discipline}:
        raise Unsupported(f"the swap discipline {swap!r} in the file {FORMAT!r}", SPOKEN)
    return Format(Discipline(value), version)


def recognise(transport: Transport) -> str | None:
    """What another tool keeps in this folder, e.g. `a git repository`, or None."""
    if transport.exists(".git") or (transport.exists("HEAD") and transport.exists("objects")):
        return A_GIT_REPOSITORY
    if transport.exists(".hg"):
        return "a Mercurial repository"
    if transport.exists(".bzr"):
        return A_BAZAAR_REPOSITORY
    return None
