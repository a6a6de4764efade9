"""Client path -> place under the served root. Nothing else may turn one into the other."""

from __future__ import annotations

import unicodedata

from smartserver.errors import InvalidPath
from smartserver.wire.limits import MAX_PATH

RESERVED = frozenset({"packs", "incoming", "lock", "root", "format", "log", "tables"})
"""Names a repository's own folder uses (DESIGN 4): a path with one of them could lead inside a repository."""

MAX_PART = 200
"""Bytes of one part; file systems take 255 and the store adds none, but temporary names do."""


def clean(path: str) -> str:
    """The path as the store names it: parts joined by `/`, no slash at either end; empty for the root itself.

    Raises:
        InvalidPath: it cannot name a repository.
    """
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH:
        raise InvalidPath(path[:80] + "...", f"longer than {MAX_PATH} bytes")
    inner = path.strip("/")
    if not inner:
        return ""
    for part in inner.split("/"):
        why = _objection(part)
        if why:
            raise InvalidPath(path, why)
    return inner


def _objection(part: str) -> str:
    if not part:
        return "a part of it is empty"
    if part in (".", ".."):
        return f"{part!r} is not allowed in it"
    if part.startswith("."):
        return f"{part!r} begins with a dot"
    if part in RESERVED:
        return f"{part!r} is a name the store uses itself"
    if any(character == "\\" or unicodedata.category(character) in ("Cc", "Cs") for character in part):
        return f"{part!r} has a backslash or a control character"
    if unicodedata.normalize("NFC", part) != part:
        return f"{part!r} is not in Unicode form NFC"
    if len(part.encode()) > MAX_PART:
        return f"a part of it is longer than {MAX_PART} bytes"
    return ""


def prefixes(path: str) -> list[str]:
    """A clean path and everything above it, longest first; the root is the last."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]
