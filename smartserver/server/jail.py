"""Client path -> place under the served root. Nothing else may turn one into the other."""

from __future__ import annotations

import itertools
import unicodedata

from smartserver.errors import InvalidPath
from smartserver.store.format import CLUSTER
from smartserver.wire.limits import MAX_PATH

RESERVED = frozenset({"packs", "incoming", "format", "log", "checkpoints", "lost", "lock", "root", "tables", CLUSTER})
"""Names that a repository's own folder uses, `lock`, `root` and `tables` before an upgrade: a path with one of them
could lead inside it. And that of the file in which a store says where its logs are."""

MAX_PART = 200
"""Bytes of one part; file systems take 255 and the store adds none, but temporary names do."""

MAX_SHOWN = 80
"""Characters of a path, or of a part of it, that are said back."""


def clean(path: str) -> str:
    """The path as the store names it: parts joined by `/`, no slash at either end; empty for the root itself.

    Raises:
        InvalidPath: it cannot name a repository.
    """
    return "/".join(_parts(path, below=False))


def is_name(part: str) -> bool:
    """True if a path may have this part."""
    return bool(part) and not _objection(part)


def place(path: str) -> str:
    """The part of a path that can name a repository, where the rest may name a branch in it and a file in that.

    Raises:
        InvalidPath: it could not name a file in a branch either.
    """
    return "/".join(itertools.takewhile(lambda part: not _objection(part), _parts(path, below=True)))


def _parts(path: str, *, below: bool) -> list[str]:
    """The parts of a valid path; none for the root itself. `below`: of what is below a repository."""
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH:
        raise InvalidPath(_shown(path), f"longer than {MAX_PATH} bytes")
    inner = path.strip("/")
    parts = inner.split("/") if inner else []
    for part in parts:
        why = _objection(part, below=below)
        if why:
            raise InvalidPath(_shown(path), why)
    return parts


def file(path: str) -> str:
    """The path of any file below the served folder, for the file-level verbs; empty for that folder itself.

    Names of a repository's own folder are allowed in it, and of one that is being made; other hidden files are not.

    Raises:
        InvalidPath: it cannot be one.
    """
    for part in path.split("/") if path else ():
        why = _objection_to_file(part)
        if why:
            raise InvalidPath(_shown(path), why)
    return path


def is_file_name(part: str) -> bool:
    """True if the path of a file may have this part."""
    return not _objection_to_file(part)


def is_hidden(path: str) -> bool:
    """True if the path would be a file's but for a part that begins with a dot."""
    parts = path.split("/")
    return not any(_objection(part, below=True) for part in parts) and any(part.startswith(".") for part in parts)


def _shown(text: str) -> str:
    """The part of a path that a message has room for: the user has all of it in the command."""
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _objection(whole: str, *, below: bool = False) -> str:
    """Why this cannot be a part of a path; empty where it can. `below`: of what is below a repository."""
    if not whole:
        return "a part of it is empty"
    part = _shown(whole)
    if whole in (".", ".."):
        return f"{part!r} is not allowed in it"
    if not below and whole.startswith("."):
        return f"{part!r} begins with a dot"
    if not below and whole in RESERVED:
        return f"{part!r} is a name the store uses itself"
    if any(character == "\\" or unicodedata.category(character) in ("Cc", "Cs") for character in whole):
        return f"{part!r} has a backslash or a control character"
    if below:
        return ""
    if unicodedata.normalize("NFC", whole) != whole:
        return f"{part!r} is not in Unicode form NFC"
    if len(whole.encode()) > MAX_PART:
        return f"a part of it is longer than {MAX_PART} bytes"
    return ""


def _objection_to_file(whole: str) -> str:
    hidden = whole.startswith(".")
    return _objection(whole, below=True) or (f"{_shown(whole)!r} begins with a dot" if hidden else "")


def prefixes(path: str) -> list[str]:
    """A clean path and everything above it, longest first; the root is the last."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]
