"""Parses git's objects, for the server's checks and the client's pushes. No other module parses them.

The texts may come from anyone. Every expression takes time in proportion to the text.
"""

from __future__ import annotations

import functools
import re
from binascii import unhexlify
from typing import Final

from smartserver.records.model import Key, RevisionId
from smartserver.vcs.patterns import compile_pattern

COMMIT: Final = b"\x01"
TREE: Final = b"\x02"
BLOB: Final = b"\x03"
TAG: Final = b"\x04"
"""The meta of git's objects: their type number in git's own packs."""

FOLDER: Final = 0o040000
FILE: Final = 0o100000
LINK: Final = 0o120000
SUBMODULE: Final = 0o160000
"""The types of a tree's entries: the upper bits of a mode."""

TreeEntry = tuple[bytes, bytes, Key]
"""An entry of a tree: mode, name and object."""

ChangedEntry = tuple[bytes, bytes, Key, Key]
"""A changed entry of a tree: mode, name, new object and old object."""

_REST: Final = rb" [^\0]++\0"
"""The bytes that follow the mode of an entry."""


class ObjectFormat:
    """Parses the objects of one object format. Each expression is compiled on first use, because git's helper needs
    few."""

    def __init__(self, id_bytes: int) -> None:
        self.id_bytes = id_bytes
        self._hex = rb"[0-9a-fA-F]{%d}" % (2 * id_bytes)
        self._raw = rb".{%d}" % id_bytes

    def commit(self, key: Key, text: bytes) -> tuple[Key, tuple[RevisionId, ...]]:
        """Return the tree and the parents of a commit.

        Raises:
            ValueError: the text is no commit.
        """
        found = self._commit.match(text)
        if found is None:
            raise ValueError(f"{key.hex()} cannot be read as a commit")
        return unhexlify(found[1]), tuple(map(unhexlify, found[2].split()[1::2]))

    def tag(self, key: Key, text: bytes) -> tuple[Key, bytes]:
        """Return the object that a tag names, and the name of its type.

        Raises:
            ValueError: the text is not a tag.
        """
        found = self._tag.match(text)
        # Git's clients read no tag that is shorter.
        if found is None or len(text) < 2 * self.id_bytes + 24:
            raise ValueError(f"{key.hex()} cannot be read as a tag")
        return unhexlify(found[1]), found[2]

    def tree(self, key: Key, text: bytes) -> list[TreeEntry]:
        """Return the entries of a tree.

        Raises:
            ValueError: the text is no tree.
        """
        # As lenient as git: any name that is not empty.
        if self._tree.fullmatch(text) is None:
            raise ValueError(f"{key.hex()} cannot be read as a tree")
        return self._entry.findall(text)

    def changed(self, text: bytes, base: bytes) -> list[ChangedEntry] | None:
        """Return the entries of a tree whose objects differ from those in `base`, or None if names or modes differ.
        `base`: a tree that was parsed before.

        All bytes are compared at once, so that no tree is parsed for one entry.
        """
        size = len(text)
        if size != len(base):
            return None
        both = int.from_bytes(text, "big") ^ int.from_bytes(base, "big")
        differs = both.to_bytes(size, "big")
        found: list[ChangedEntry] = []
        at = 0
        while (different := _same_until(differs, at)) < size:
            head = self._head.match(text, at, different)
            if head is None:
                return None
            begin, at = head.end(), head.end() + self.id_bytes
            found.append((head[1], head[2], text[begin:at], base[begin:at]))
        return found

    @functools.cached_property
    def _commit(self) -> re.Pattern[bytes]:
        # Only the lines at the top count: a mergetag further down holds the lines of a whole tag.
        return compile_pattern(rb"tree (%b)\n((?:parent %b\n)*+)(?!parent )" % (self._hex, self._hex))

    @functools.cached_property
    def _tag(self) -> re.Pattern[bytes]:
        return compile_pattern(rb"object (%b)\ntype (commit|tree|blob|tag)\ntag [^\n]*+\n" % self._hex)

    @functools.cached_property
    def _tree(self) -> re.Pattern[bytes]:
        # Modes of at most six digits: git keeps the lower 32 bits of more.
        return compile_pattern(rb"(?:(?=[0-7])0*+[0-7]{0,6}%b%b)*+" % (_REST, self._raw), re.DOTALL)

    @functools.cached_property
    def _entry(self) -> re.Pattern[bytes]:
        return compile_pattern(rb"([0-7]++) ([^\0]++)\0(%b)" % self._raw, re.DOTALL)

    @functools.cached_property
    def _head(self) -> re.Pattern[bytes]:
        """Matches whole entries, then the mode and name of the next entry. So far, the text must be that of a tree."""
        return compile_pattern(rb"(?:[^\0]++\0%b)*+([0-7]++) ([^\0]++)\0" % self._raw, re.DOTALL)


FORMATS: Final = {"sha1": ObjectFormat(20), "sha256": ObjectFormat(32)}
"""The object formats by git's names for them."""

_SAME: Final = re.compile(rb"\0*+")
"""Matches NUL bytes. Matching a repeated literal is eight times as fast as searching for any other byte."""


def _same_until(differs: bytes, at: int) -> int:
    """Return the offset of the next byte that is not 0, else the end."""
    same = _SAME.match(differs, at)
    assert same is not None  # It may be empty.
    return same.end()


def entry_type(mode: bytes) -> int:
    """Return the type of an entry of this mode. To git, all but a file, a link or a folder is a submodule."""
    return _entry_type(mode[-6:])  # Any number of zeros may precede it.


@functools.lru_cache(maxsize=64)
def _entry_type(mode: bytes) -> int:
    kind = int(mode, 8) & 0o170000
    return kind if kind in (FILE, LINK, FOLDER) else SUBMODULE


def canonical_mode(mode: bytes) -> int:
    """Return `mode` as git sees it: one of five values, whatever odd bits an old tool wrote."""
    kind = entry_type(mode)
    if kind == FILE:
        return 0o100755 if int(mode, 8) & 0o100 else 0o100644
    return kind
