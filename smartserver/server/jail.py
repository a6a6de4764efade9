"""Turns the path in a request into a place below the served root. No other module may do that."""

from __future__ import annotations

import itertools
import unicodedata

from smartserver.errors import InvalidPath
from smartserver.store.format import CLUSTER
from smartserver.wire.limits import MAX_PATH

RESERVED = frozenset({"packs", "incoming", "format", "log", "checkpoints", "lost", "lock", "root", "tables", CLUSTER})
"""Names that a repository's own folder uses; earlier formats used `lock`, `root` and `tables`. A path with such a name
could lead into the folder. `CLUSTER` is the file in which a store records where its logs are."""

MAX_PART = 200
"""The most bytes of one part. File systems accept 255, and temporary names are longer than the part."""

MAX_SHOWN = 80
"""The most characters of a path, or of a part of it, that a message repeats."""


def clean(path: str) -> str:
    """Return the path in the form that the store uses: parts joined by `/`, no slash at either end; empty for the root
    itself.

    Raises:
        InvalidPath: the path cannot name a repository.
    """
    return "/".join(_parts(path, below=False))


def is_name(part: str) -> bool:
    """Return True if the path of a repository may have this part."""
    return bool(part) and not _objection(part)


def place(path: str) -> str:
    """Return the part of a path that can name a repository. The rest may name a branch in it and a file in the branch.

    Raises:
        InvalidPath: the rest cannot name a branch or a file.
    """
    return "/".join(itertools.takewhile(lambda part: not _objection(part), _parts(path, below=True)))


def _parts(path: str, *, below: bool) -> list[str]:
    """Return the parts of a valid path; none for the root itself. `below`: True if the path may continue below a
    repository."""
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
    """Return the path of a file below the served folder, for the file-level verbs; empty for that folder itself.

    The path may contain names that a repository's own folder uses. Hidden files are not allowed.

    Raises:
        InvalidPath: the path is not allowed.
    """
    for part in path.split("/") if path else ():
        why = _objection_to_file(part)
        if why:
            raise InvalidPath(_shown(path), why)
    return path


def is_file_name(part: str) -> bool:
    """Return True if the path of a file may have this part."""
    return not _objection_to_file(part)


def is_hidden(path: str) -> bool:
    """Return True if the path is refused only because a part of it begins with a dot."""
    parts = path.split("/")
    return not any(_objection(part, below=True) for part in parts) and any(part.startswith(".") for part in parts)


def _shown(text: str) -> str:
    """Return a path, or its beginning, for a message. The user has the complete path in the command."""
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _objection(whole: str, *, below: bool = False) -> str:
    """Return the reason why a text must not be a part of a path; empty if it is valid. `below`: the part may be below a
    repository."""
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
    """Return a clean path and all its parents, longest first. The root is the last."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]
