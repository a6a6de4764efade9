"""Reads the texts of changesets, manifests and files for what they name.

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
"""The parts that no path has, with a slash at both ends: an empty part, `.`, `..`, or Mercurial's own folder."""

_BAD_ESCAPE: Final = compile_pattern(rb"(?<!\\)(?:\\\\)*+\\(?:\0|\Z|x(?![0-9a-fA-F]{2}))")
"""An escape that ends every command of hg that reads the extras: a backslash at the end of one, an `x` without two
digits."""

_HEX: Final = 40

_UNREADABLE: Final = "it cannot be read as a changeset"

CENSORED: Final = b"\1\ncensored:"
"""The begin of the text of a version that was taken away: Mercurial reads none that begins so."""

_MARK: Final = b"\1\n"
"""The mark before and after the metadata of a file's version; a text that begins so has some, if only none."""


class Changeset(NamedTuple):
    """The fields of a changeset, but for its files and extras."""

    manifest: Node
    """Null where its tree is empty."""
    user: bytes
    seconds: int
    """Since 1970."""
    offset: int
    """Seconds that the user's clock is behind UTC."""
    message: bytes


class ManifestLine(NamedTuple):
    """A file in a manifest; `flag`: `x` of an executable, `l` of a link, else empty."""

    path: bytes
    node: Node
    flag: bytes


def changeset_manifest(text: bytes) -> Node:
    """The manifest that a changeset names, null where its tree is empty."""
    return read_changeset(text).manifest


def read_changeset(text: bytes) -> Changeset:
    """The fields of a changeset, read as Mercurial's `changelogrevision` reads it."""
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
    """True if a changeset, which can be read, closes its branch: it has the extra `close`."""
    extras = text.split(b"\n", 3)[2].split(b" ", 2)[2:]
    return any(extra.startswith(b"close:") for pairs in extras for extra in pairs.split(b"\0"))


def file_text(text: bytes) -> bytes:
    """The content of a file's version, without the metadata at its begin."""
    end = _end_of_metadata(text)
    return text[end + len(_MARK) :] if end else text


def has_open_metadata(begin: bytes | bytearray, searched: int = 0) -> bool:
    """True if the metadata of a version may go on behind its begin. They do not end in the first `searched` bytes."""
    return _MARK.startswith(begin[: len(_MARK)]) and begin.find(_MARK, max(searched - 1, len(_MARK))) < 0


def copied_from(text: bytes) -> tuple[bytes, Node] | None:
    """The file and its version that a file's version was copied or renamed from; None unless its metadata name both."""
    end = _end_of_metadata(text)
    if not end:
        return None
    said = dict(_pair(line) for line in text[len(_MARK) : end].split(b"\n") if line)
    if b"copy" not in said or b"copyrev" not in said:
        return None
    return said[b"copy"], _node(said[b"copyrev"])


def _end_of_metadata(text: bytes) -> int:
    """The place of the mark behind the metadata; 0 where there are none."""
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
    """A line of a manifest, without its end."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"a line of {len(line)} bytes cannot be read as one of a manifest")
    return ManifestLine(match[1], bytes.fromhex(match[2].decode()), match[3])


def lines_starting(manifest: bytes, start: bytes) -> bytes:
    """The lines of a manifest that begin so. They lie side by side, as the lines are sorted."""
    if not start or b"\n" in start:
        return b"" if start else manifest
    at = 0 if manifest.startswith(start) else manifest.find(b"\n" + start) + 1
    if not at and not manifest.startswith(start):
        return b""
    last = manifest.rfind(b"\n" + start, at) + 1 or at
    return manifest[at : manifest.index(b"\n", last) + 1]


def entries(lines: Iterable[bytes]) -> dict[bytes, Node]:
    """The paths and nodes of lines of a manifest.

    Raises:
        ValueError: one cannot be read.
    """
    found: dict[bytes, Node] = {}
    for line in lines:
        path, node, _ = read_line(line)
        if _OUTSIDE.search(b"/%b/" % path):
            raise ValueError("a path in the manifest cannot be checked out")
        found[path] = node
    return found


def lines_of(text: bytes) -> list[bytes]:
    """The lines of a manifest, sorted as they must be."""
    lines = text.split(b"\n")
    if lines.pop():
        raise ValueError("the last line of the manifest has no end")
    if lines != sorted(lines):  # NUL, after the path, comes before any byte of a longer path.
        raise ValueError("the lines of the manifest are not sorted")
    return lines


def all_entries(text: bytes) -> dict[bytes, Node]:
    """The paths and nodes of a whole manifest."""
    lines = lines_of(text)
    found = entries(lines)
    if len(found) != len(lines):
        raise ValueError("a path is in the manifest twice")
    return found


def differing(new: bytes, old: bytes) -> tuple[dict[bytes, Node], dict[bytes, Node]]:
    """The entries of the lines that each of two manifests has and the other has not.

    Of the new one the lines around those are checked, too: if the old one is sound, so is the new one then.
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
    """The same of a manifest that has these hunks otherwise, not checked; None where they are not of whole lines."""
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
    """The begin of the whole lines in which two texts differ, and their end in each."""
    ahead = common_start(new, old)
    behind = common_end(new, old, min(len(new), len(old)) - ahead)
    start = new.rfind(b"\n", 0, ahead) + 1
    end = len(new) - behind
    # The first line that is all of what they end with in common, and no part of a longer one in either.
    if not all(at == 0 or text[at - 1 : at] == b"\n" for text, at in ((new, end), (old, len(old) - behind))):
        end = new.find(b"\n", end) + 1 or len(new)
    return start, end, len(old) - (len(new) - end)


def _between(new: bytes, old: bytes) -> tuple[int, int, int]:
    """The same of two manifests, with a line more on both sides."""
    start, end, old_end = differing_lines(new, old)
    start = new.rfind(b"\n", 0, max(0, start - 1)) + 1
    more = (new.find(b"\n", end) + 1 or len(new)) - end
    return start, end + more, old_end + more


def keys(found: dict[bytes, Node]) -> list[bytes]:
    """The keys of the records that entries name."""
    return [file_key(path, node) for path, node in found.items() if node != NULL]
