"""The `format` file: one line, written once, that names the family and the swap discipline every writer obeys.

What else can change about a repository is a feature in its root; this line never changes.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from smartserver.errors import A_BAZAAR_REPOSITORY, A_GIT_REPOSITORY, CorruptFile, Unsupported
from transports.base import EntryKind, Transport
from transports.steps import Get, GetStat

FORMAT = "format"
ROOT = "root"
LOCK = "lock"
PACKS = "packs"
INCOMING = "incoming"
TABLES = "tables"
LOG = "log"
LOST = "lost"
"""Files that no root names, and that nothing proves to be superseded; made when there is one."""

FOLDERS = (PACKS, INCOMING, TABLES, LOG)
"""The folders of every repository."""
NAMES = frozenset({FORMAT, ROOT, LOCK, LOST, *FOLDERS})
"""Every name of a repository's folder, but for the temporary `root.<hex>` and `format.<hex>`."""
TEMPORARY = (f"{ROOT}.", f"{FORMAT}.")
"""What begins the names a crash may leave in the repository's folder; only a holder of the lock makes them."""
MADE_BESIDE = ".smartserver-"
"""What begins the name under which a repository is made beside its place; no path may have a part that begins so."""

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
    """Under a lock folder; for stores that have only files, and for repositories with several ways in."""
    OBJECT = "object"
    """By the store's own compare-and-swap."""


SPOKEN = f"{FAMILY} {VERSION} swap=file or swap=folder"
"""What this release reads and writes."""


@dataclass(frozen=True, slots=True)
class Format:
    """What the line says."""

    discipline: Discipline
    version: str = VERSION

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of a repository of this format."""
        return (*FOLDERS, LOCK) if self.discipline is Discipline.FOLDER else FOLDERS

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


def is_ours(content: bytes) -> bool:
    """Whether a file of that name and content is a repository's, be it of another release: what else may be called so
    says nothing."""
    return content.startswith(FAMILY.encode())


def is_marked(folder: Transport) -> bool:
    """Whether a folder's `format` is a repository's."""
    looks = GetStat(FORMAT)
    folder.perform([looks])
    if looks.result is None or looks.result.kind is not EntryKind.FILE:
        return False
    line = Get(FORMAT)
    folder.perform([line])
    return is_ours(line.result or b"")


FOREIGN = (".git", "HEAD", "objects", ".hg", ".bzr")
"""Names in a folder by which another tool's repository is told."""


def foreign_in(names: Collection[str]) -> str | None:
    """What another tool keeps in a folder with these of the `FOREIGN` names, e.g. `a git repository`, or None."""
    if ".git" in names or ("HEAD" in names and "objects" in names):
        return A_GIT_REPOSITORY
    if ".hg" in names:
        return "a Mercurial repository"
    if ".bzr" in names:
        return A_BAZAAR_REPOSITORY
    return None


def recognise(transport: Transport) -> str | None:
    """What another tool keeps in this folder, e.g. `a git repository`, or None."""
    looks = [GetStat(name) for name in FOREIGN]
    transport.perform(looks)
    return foreign_in([each.path for each in looks if each.result is not None])
