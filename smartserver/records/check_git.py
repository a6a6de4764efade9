"""Git's objects: their keys, the parents of commits and tags, and what objects refer to."""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from smartserver.records.model import Key, RevisionId
from smartserver.records.rules import NOTHING, References, Rules

COMMIT: Final = b"\x01"
TREE: Final = b"\x02"
BLOB: Final = b"\x03"
TAG: Final = b"\x04"
"""The meta of git's objects: their type number in git's own packs."""

_NAMES: Final = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}


class _Format(msgspec.Struct, frozen=True):
    """The object format of one hash: how long ids are, and expressions that read what a reference walk needs."""

    new: Callable[[bytes], hashlib._Hash]
    id_bytes: int
    commit: re.Pattern[bytes]
    tag: re.Pattern[bytes]
    tree: re.Pattern[bytes]
    tree_ids: re.Pattern[bytes]


def _format(new: Callable[[bytes], hashlib._Hash], id_bytes: int) -> _Format:
    id_hex = rb"[0-9a-fA-F]{%d}" % (2 * id_bytes)
    id_raw = rb".{%d}" % id_bytes
    return _Format(
        new,
        id_bytes,
        # Only the lines at the top count: a mergetag further down holds the lines of a whole tag.
        commit=re.compile(rb"tree (%b)\n((?:parent %b\n)*+)" % (id_hex, id_hex)),
        tag=re.compile(rb"object (%b)\ntype (commit|tree|blob|tag)\n" % id_hex),
        tree=re.compile(rb"(?:[0-7]++ [^\0]++\0%b)*+" % id_raw, re.DOTALL),
        tree_ids=re.compile(rb"\0(%b)" % id_raw, re.DOTALL),
    )


_FORMATS: Final = {"git-sha1": _format(hashlib.sha1, 20), "git-sha256": _format(hashlib.sha256, 32)}

GIT_CHECKS: Final = frozenset(_FORMATS)


def git_key(check: str, meta: bytes, text: bytes | memoryview) -> Key:
    """The id git gives an object of the type `meta`; `check` is `git-sha1` or `git-sha256`.

    Raises:
        ValueError: `meta` is not the number of a type.
    """
    name = _NAMES.get(meta)
    if name is None:
        raise ValueError(f"meta {meta!r} is no type of git's objects")
    digest = _FORMATS[check].new(b"%b %d\0" % (name, len(text)))
    digest.update(text)
    return digest.digest()


class GitRules(Rules):
    """The rules of git's objects, which are of one kind."""

    # Of an annotated tag the own record is the tag; of a ref to a tree or blob, that tree or blob.
    own_kind = 0
    label = TAG
    ghosts = False
    content_keys = frozenset((0,))

    def __init__(self, check: str) -> None:
        self._format = _FORMATS[check]

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        """The parents of a commit, the target of a tag."""
        if meta == COMMIT:
            lines = _match(self._format.commit, key, text, "commit")[2]
            return tuple(map(binascii.unhexlify, lines.split()[1::2]))
        if meta == TAG:
            found = _match(self._format.tag, key, text, "tag")
            # A tree or blob is no revision: the tag's own segment carries it.
            return (binascii.unhexlify(found[1]),) if found[2] in (b"commit", b"tag") else ()
        return ()

    def may_refer(self, kind: int, meta: bytes) -> bool:
        """Whether it is no blob."""
        return meta != BLOB

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        """A commit's tree, a tree's entries, a tag's target.

        A commit's parents are left out: those are the graph's. So is a submodule's commit, which lies elsewhere.
        """
        if meta == BLOB:
            return NOTHING
        if meta == TREE:
            return 0, self._entries(key, text)
        if meta == COMMIT:
            return 0, (binascii.unhexlify(_match(self._format.commit, key, text, "commit")[1]),)
        return 0, (binascii.unhexlify(_match(self._format.tag, key, text, "tag")[1]),)

    def _entries(self, key: Key, text: bytes) -> Sequence[Key]:
        # As lenient as git: any octal mode and any name that is not empty.
        if self._format.tree.fullmatch(text) is None:
            raise ValueError(f"{key.hex()} cannot be read as a tree")
        ids: list[bytes] = self._format.tree_ids.findall(text)
        if b"60000 " not in text:
            return ids
        found = []
        at = 0
        for target in ids:
            space = text.index(b" ", at)
            if int(text[at:space], 8) & 0o170000 != 0o160000:
                found.append(target)
            at = text.index(b"\0", space) + 1 + self._format.id_bytes
        return found


def _match(pattern: re.Pattern[bytes], key: Key, text: bytes, name: str) -> re.Match[bytes]:
    found = pattern.match(text)
    if found is None:
        raise ValueError(f"{key.hex()} cannot be read as a {name}")
    return found
