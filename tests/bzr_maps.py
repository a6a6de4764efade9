"""Maps of entries as Breezy writes them, pages and all, without Breezy."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping


def entry(file_id: bytes, revision: bytes, *, kind: str = "file", name: bytes = b"", text: bytes = b"") -> bytes:
    """A value of the map."""
    head = b"%s: %s\nroot\n%s\n%s" % (kind.encode(), file_id, name or b"name of " + file_id, revision)
    if kind == "file":
        return head + b"\n%s\n%d\nN" % (hashlib.sha1(text).hexdigest().encode(), len(text))
    return head + b"\ntarget" if kind == "symlink" else head


def leaf(items: Mapping[bytes, bytes], *, parts: int = 1) -> bytes:
    """A page of items."""
    rows = [b"%s\0%d\n%s\n" % (key, value.count(b"\n") + 1, value) for key, value in sorted(items.items())]
    common = rows[0] if rows else b""
    for row in rows:
        while not row.startswith(common):
            common = common[:-1]
    common = common[: common.index(b"\n")] if b"\n" in common else common
    common = common[: common.index(b"\0")] if b"\0" in common else common
    body = b"".join([row[len(common) :] for row in rows])
    return b"chkleaf:\n65536\n%d\n%d\n%s\n" % (parts, len(items), common) + body


def key_of(page: bytes) -> bytes:
    """The key of a page."""
    return b"sha1:" + hashlib.sha1(page).hexdigest().encode()


def write(
    pages: dict[bytes, bytes], items: Mapping[bytes, bytes], most: int, prefix: bytes = b"", *, parts: int = 1
) -> bytes:
    """Add the pages of a map to `pages`, leaves of `most` items; the key of its root. `parts`: of a key, by NULs."""
    page = leaf(items, parts=parts)
    longest = 5 * parts - 1
    if len(items) > most and len(prefix) < longest:
        below: dict[bytes, dict[bytes, bytes]] = {}
        for key, value in items.items():
            search = b"\0".join([zlib.crc32(part).to_bytes(4, "big") for part in key.split(b"\0")]).replace(b"\n", b"_")
            below.setdefault(search[: len(prefix) + 1], {})[key] = value
        while len(below) == 1 and len(prefix) < longest - 1:  # What all have in common is one step.
            (prefix,) = below
            return write(pages, items, most, prefix, parts=parts)
        rows = [(deeper, write(pages, part, most, deeper, parts=parts)) for deeper, part in sorted(below.items())]
        page = b"chknode:\n65536\n%d\n%d\n%s\n" % (parts, len(items), prefix)
        page += b"".join([b"%s\0%s\n" % (deeper[len(prefix) :], key) for deeper, key in rows])
    pages[key_of(page)] = page
    return key_of(page)
