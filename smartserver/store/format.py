"""The `format` file: one line with the family and the version of a repository.

Only the upgrade from version 1 replaces the line. Later changes of the format are features in the records.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from smartserver.errors import A_BAZAAR_REPOSITORY, A_GIT_REPOSITORY, CorruptFile, Unsupported
from transports.base import Transport
from transports.steps import GetPublished, GetStat

FORMAT = "format"
PACKS = "packs"
INCOMING = "incoming"
LOG = "log"
CHECKPOINTS = "checkpoints"
LOST = "lost"
"""The folder to which `recover` moves records; it is created when needed."""

FOLDERS = (PACKS, INCOMING, LOG, CHECKPOINTS)
"""The folders of every repository."""
IMMUTABLE = re.compile(rf"(?:.+/)?(?:{PACKS}/[0-9a-f]+\.(?:pack|idx|summaries)|{CHECKPOINTS}/[^/]+)")
"""Matches the path of a file whose local copies never become stale: a name of a pack is used only once, and the
content of a checkpoint always has the same meaning."""
NAMES = frozenset({FORMAT, LOST, *FOLDERS})
"""All names that a repository may have in its folder."""

FAMILY = "smartserver repository"
VERSION = "2"
"""The version of new repositories."""
LINE = f"{FAMILY} {VERSION}\n".encode()
"""The content of the format file."""
_LONGEST = 256
"""The most bytes of a format line. The line of this release has 25."""


def parse_format(content: bytes) -> str:
    """Return the line of a format file. Raise Unsupported or CorruptFile if this release cannot read it."""
    line, newline, rest = content[:_LONGEST].partition(b"\n")
    if not newline or rest:
        raise CorruptFile(FORMAT, len(line), f"expected one line, found {content[:_LONGEST]!r}")
    if is_old(content):
        change = "`smartserver upgrade FOLDER` on the repository's machine changes it to version 2"
        raise Unsupported(f"version 1 of the repository format: {change}", LINE.decode().strip())
    words = line.decode("utf-8", "backslashreplace")
    if words.encode() + b"\n" != LINE:
        raise Unsupported(f"the repository format {words!r} in the file {FORMAT!r}", LINE.decode().strip())
    return words


def is_old(content: bytes) -> bool:
    """Tell whether a format file with this content is of version 1 (`old_root`)."""
    return content.startswith(f"{FAMILY} 1 ".encode())


def is_ours(content: bytes) -> bool:
    """Tell whether a `format` file with this content is that of a repository, of any release."""
    return content.startswith(FAMILY.encode())


def is_marked(folder: Transport) -> bool:
    """Tell whether a folder has the format file of a repository."""
    line = GetPublished(FORMAT)
    folder.perform([line])
    return is_ours(line.result or b"")


DERIVED = (".idx", ".summaries")
"""The suffixes of the files that can be rebuilt from the pack of the same name."""

CLUSTER = "smartserver-cluster"
"""The file in the root of a store whose logs are in a database."""
FOREIGN = (".git", "HEAD", "objects", ".hg", ".bzr")
"""The names by which another tool's repository is recognised."""


def foreign_in(names: Collection[str]) -> str | None:
    """Describe what a folder with these names is, such as `a git repository`, for a message. Return None if it is
    neither another tool's repository nor a store with `CLUSTER`."""
    if ".git" in names or ("HEAD" in names and "objects" in names):
        return A_GIT_REPOSITORY
    if ".hg" in names:
        return "a Mercurial repository"
    if ".bzr" in names:
        return A_BAZAAR_REPOSITORY
    if CLUSTER in names:
        return "a store whose logs are in a database"
    return None


def recognise(transport: Transport) -> str | None:
    """Describe the other tool's repository in a folder, such as `a git repository`; None if the folder has none."""
    looks = [GetStat(name) for name in FOREIGN]
    transport.perform(looks)
    return foreign_in([look.path for look in looks if look.result is not None])
