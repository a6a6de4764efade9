"""Parses the texts of changesets, manifests and files.

A manifest is lines, sorted by path: path, NUL, 40 hex digits of the node, a flag (`x`, `l` or none), newline.
"""

from __future__ import annotations

import math
from binascii import unhexlify
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from smartserver.records.alike import common_end, common_start
from smartserver.records.hunks import Hunk
from smartserver.vcs.hg.kinds import NULL, Node, file_key
from smartserver.vcs.patterns import compile_pattern

_LINE: Final = compile_pattern(rb"([^\0\n\r]++)\0([0-9a-f]{40})([xl]?)")
_OUTSIDE: Final = compile_pattern(rb"/\.{0,2}/|^/\.[hH][gG]\.?/")
"""Matches the parts that no path has, with a slash at both ends: an empty part, `.`, `..`, or Mercurial's own
folder."""

_BAD_ESCAPE: Final = compile_pattern(rb"(?<!\\)(?:\\\\)*+\\(?:\0|\Z|x(?![0-9a-fA-F]{2}))")
"""Matches an escape at which every command of hg fails that reads the extras: a backslash at the end of an extra, or an
`x` without two digits."""

_HEX: Final = 40

_UNREADABLE: Final = "it cannot be read as a changeset"

CENSORED: Final = b"\1\ncensored:"
"""The start of the text of a censored version. Mercurial does not read such a text."""

_MARK: Final = b"\1\n"
"""The mark before and after a file version's metadata. A text that begins with it has metadata, which may be empty."""


class Changeset(NamedTuple):
    """The fields of a changeset, without its files and extras."""

    manifest: Node
    """The node of the changeset's manifest; null if its tree is empty."""
    user: bytes
    seconds: int
    """Seconds since 1970."""
    offset: int
    """Seconds that the user's clock is behind UTC."""
    message: bytes


class ManifestLine(NamedTuple):
    """A file in a manifest. `flag`: `x` of an executable, `l` of a link, else empty."""

    path: bytes
    node: Node
    flag: bytes


def changeset_manifest(text: bytes) -> Node:
    """Return the manifest that a changeset names; null if the changeset's tree is empty."""
    return read_changeset(text).manifest


def read_changeset(text: bytes) -> Changeset:
    """Parse a changeset as Mercurial's `changelogrevision` does."""
    try:
        manifest, user, line, rest = text.split(b"\n", 3)
        date, offset, *extras = line.split(b" ", 2)
        seconds = float(date)
    except ValueError:
        raise ValueError(_UNREADABLE) from None
    _, blank, message = (b"\n" + rest).partition(b"\n\n")  # In front of the empty line: the files, if any.
    if not blank or not math.isfinite(seconds):
        raise ValueError(_UNREADABLE)
    if extras:
        _check_extras(extras[0])
    return Changeset(_node(manifest), user, int(seconds), _offset(offset), message)


def _offset(digits: bytes) -> int:
    try:
        return int(digits)
    except ValueError:
        return 0  # As Mercurial has it: other tools wrote such time zones.


def _check_extras(extras: bytes) -> None:
    if not all(b":" in extra for extra in extras.split(b"\0") if extra):
        raise ValueError(_UNREADABLE)
    if b"\\" in extras and _BAD_ESCAPE.search(extras):
        raise ValueError("its extras cannot be read: a backslash escapes nothing")


def closes_branch(text: bytes) -> bool:
    """Tell whether a changeset closes its branch, which it does by an extra `close`. Its text was checked before."""
    extras = text.split(b"\n", 3)[2].split(b" ", 2)[2:]
    return any(extra.startswith(b"close:") for pairs in extras for extra in pairs.split(b"\0"))


def file_text(text: bytes) -> bytes:
    """Return the content of a file's version, without the metadata at its start."""
    end = _end_of_metadata(text)
    return text[end + len(_MARK) :] if end else text


def has_open_metadata(begin: bytes | bytearray, searched: int = 0) -> bool:
    """Tell whether a version's metadata may extend beyond `begin`. The caller must know that the metadata do not end in
    the first `searched` bytes."""
    return _MARK.startswith(begin[: len(_MARK)]) and begin.find(_MARK, max(searched - 1, len(_MARK))) < 0


def copied_from(text: bytes) -> tuple[bytes, Node] | None:
    """Return the file and version that a file's version was copied or renamed from; None if its metadata name none."""
    end = _end_of_metadata(text)
    if not end:
        return None
    said = dict(_pair(line) for line in text[len(_MARK) : end].split(b"\n") if line)
    if b"copy" not in said or b"copyrev" not in said:
        return None
    return said[b"copy"], _node(said[b"copyrev"])


def _end_of_metadata(text: bytes) -> int:
    """Return the place of the mark behind the metadata; 0 if there are none."""
    if not text.startswith(_MARK):
        return 0
    end = text.find(_MARK, len(_MARK))
    if end < 0:
        raise ValueError("the metadata at its begin have no end")
    return end


def _pair(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b": ")
    if not colon:
        raise ValueError("the metadata at its begin cannot be read")
    return name, value


def _node(digits: bytes) -> Node:
    if len(digits) != _HEX:
        raise ValueError(f"{len(digits)} hex digits, expected {_HEX}")
    return unhexlify(digits)


def read_line(line: bytes) -> ManifestLine:
    """Parse a line of a manifest, without its newline."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"a line of {len(line)} bytes cannot be read as one of a manifest")
    return ManifestLine(match[1], bytes.fromhex(match[2].decode()), match[3])


def lines_starting(manifest: bytes, start: bytes) -> bytes:
    """Return the lines of a manifest that begin with `start`. They are adjacent, because the lines are sorted."""
    if not start or b"\n" in start:
        return b"" if start else manifest
    at = 0 if manifest.startswith(start) else manifest.find(b"\n" + start) + 1
    if not at and not manifest.startswith(start):
        return b""
    last = manifest.rfind(b"\n" + start, at) + 1 or at
    return manifest[at : manifest.index(b"\n", last) + 1]


def entries(lines: Iterable[bytes]) -> dict[bytes, Node]:
    """Return the paths and nodes of lines of a manifest.

    Raises:
        ValueError: a line cannot be parsed, or its path cannot be checked out.
    """
    found: dict[bytes, Node] = {}
    for line in lines:
        path, node, _ = read_line(line)
        if _OUTSIDE.search(b"/%b/" % path):
            raise ValueError("a path in the manifest cannot be checked out")
        found[path] = node
    return found


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of a manifest. Check that they are sorted."""
    lines = text.split(b"\n")
    if lines.pop():
        raise ValueError("the last line of the manifest has no end")
    if lines != sorted(lines):  # NUL, after the path, comes before any byte of a longer path.
        raise ValueError("the lines of the manifest are not sorted")
    return lines


def all_entries(text: bytes) -> dict[bytes, Node]:
    """Return the paths and nodes of a whole manifest."""
    lines = lines_of(text)
    found = entries(lines)
    if len(found) != len(lines):
        raise ValueError("a path is in the manifest twice")
    return found


def differing(new: bytes, old: bytes) -> tuple[dict[bytes, Node], dict[bytes, Node]]:
    """Return the entries that only the new manifest has, and those that only the old manifest has.

    In the new manifest, the lines around these entries are checked, too. So if the old manifest is valid, the new one
    is, too.
    """
    if not old:
        return all_entries(new), {}
    start, end, old_end = _between(new, old)
    here, there = new[start:end], old[start:old_end]
    lines, before = lines_of(here), lines_of(there)
    kept = frozenset(before) if len(before) > 1 else before
    mine = [line for line in lines if line not in kept]
    others = frozenset(lines)
    theirs = [line for line in before if line not in others]
    found = entries(mine)
    if len(found) != len(mine):
        raise ValueError("a path is in the manifest twice")
    for line, path in zip(mine, found, strict=True):
        at = bisect_left(lines, line)
        name = path + b"\0"
        if any(near.startswith(name) for near in lines[max(0, at - 1) : at] + lines[at + 1 : at + 2]):
            raise ValueError("a path is in the manifest twice")
    return found, entries(theirs)


def differing_in(hunks: Sequence[Hunk], old: bytes) -> tuple[dict[bytes, Node], dict[bytes, Node]] | None:
    """Return the entries that hunks add to a manifest, and those that they remove. The order of lines is not checked.
    Return None if a hunk does not consist of whole lines."""
    added = b"".join([piece for _, _, piece in hunks])
    removed = b"".join([old[start:end] for start, end, _ in hunks])
    ends = [old[at - 1 : at] for start, end, _ in hunks for at in (start, end) if at]
    ends += [piece[-1:] for _, _, piece in hunks if piece]
    if any(end_byte != b"\n" for end_byte in ends):
        return None
    lines, before = added.split(b"\n")[:-1], removed.split(b"\n")[:-1]
    kept, others = frozenset(before), frozenset(lines)
    return entries([line for line in lines if line not in kept]), entries(
        [line for line in before if line not in others]
    )


def differing_lines(new: bytes, old: bytes) -> tuple[int, int, int]:
    """Return the start of the whole lines in which two texts differ, and their end in each text."""
    ahead = common_start(new, old)
    behind = common_end(new, old, min(len(new), len(old)) - ahead)
    start = new.rfind(b"\n", 0, ahead) + 1
    end = len(new) - behind
    # The common end must begin with a line that is whole in both texts, and no part of a longer one.
    if not all(at == 0 or text[at - 1 : at] == b"\n" for text, at in ((new, end), (old, len(old) - behind))):
        end = new.find(b"\n", end) + 1 or len(new)
    return start, end, len(old) - (len(new) - end)


def _between(new: bytes, old: bytes) -> tuple[int, int, int]:
    """Return the `differing_lines` of two manifests, with one more line on both sides."""
    start, end, old_end = differing_lines(new, old)
    start = new.rfind(b"\n", 0, max(0, start - 1)) + 1
    more = (new.find(b"\n", end) + 1 or len(new)) - end
    return start, end + more, old_end + more


def keys(found: dict[bytes, Node]) -> list[bytes]:
    """Return the keys of the file versions in entries of a manifest."""
    return [file_key(path, node) for path, node in found.items() if node != NULL]
