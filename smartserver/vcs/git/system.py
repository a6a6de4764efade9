"""Git's objects: their keys, the parents of commits and tags, and what objects refer to.

The key of an object is git's id of it; its meta is git's type number in a pack, one byte.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import re
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from smartserver.records.model import Key, Kind, RevisionId
from smartserver.records.system import NOTHING, Changes, References, System, register
from smartserver.vcs.patterns import compiled

if TYPE_CHECKING:
    from smartserver.records.faults import FaultChecker

COMMIT: Final = b"\x01"
TREE: Final = b"\x02"
BLOB: Final = b"\x03"
TAG: Final = b"\x04"
"""The meta of git's objects: their type number in git's own packs."""

_NAMES: Final = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}
_METAS: Final = {name: meta for meta, name in _NAMES.items()}

_TYPES: Final = {0o040000: TREE, 0o100000: BLOB, 0o120000: BLOB}

HEAD: Final = "HEAD"
"""The setting of a repository that names the branch a clone checks out."""

HEADS: Final = b"refs/heads/"
TAGS: Final = b"refs/tags/"

SHORT_FOR: Final = (b"", b"refs/", TAGS, HEADS, b"refs/remotes/")
"""What a short name may lack in front, in git's order."""

MAX_REF_PART: Final = 250
"""Bytes of one part of a ref's name: a client makes a file of that name and `.lock`, of at most 255 bytes."""

_HASHES: Final = {"git-sha1": (hashlib.sha1, 20), "git-sha256": (hashlib.sha256, 32)}
"""The hash of each object format, bytes of an id."""


class _Format(msgspec.Struct, frozen=True):
    """The object format of one hash: how long ids are, and the expressions its objects and refs are read with."""

    id_bytes: int
    commit: re.Pattern[bytes]
    tag: re.Pattern[bytes]
    tree: re.Pattern[bytes]
    blobs: re.Pattern[bytes]
    trees: re.Pattern[bytes]
    different: re.Pattern[bytes]
    entry_head: re.Pattern[bytes]
    ref: re.Pattern[bytes]


@functools.cache
def _format(check: str) -> _Format:
    """Compiled when they are needed: git's helper needs none, and they take as long as all its modules of records."""
    _, id_bytes = _HASHES[check]
    id_hex = rb"[0-9a-fA-F]{%d}" % (2 * id_bytes)
    id_raw = rb".{%d}" % id_bytes
    # The type of an entry is in the upper bits of its mode. What is neither file, link nor folder is a submodule.
    file, folder = rb"0*+1[02][0-7]{4}", rb"0*+4[0-7]{4}"
    rest = rb" [^\0]++\0"
    return _Format(
        id_bytes,
        # Only the lines at the top count: a mergetag further down holds the lines of a whole tag.
        commit=compiled(rb"tree (%b)\n((?:parent %b\n)*+)(?!parent )" % (id_hex, id_hex)),
        tag=compiled(rb"object (%b)\ntype (commit|tree|blob|tag)\ntag [^\n]*+\n" % id_hex),
        # Of at most six digits: git keeps the lower 32 bits of more.
        tree=compiled(rb"(?:(?=[0-7])0*+[0-7]{0,6}%b%b)*+" % (rest, id_raw), re.DOTALL),
        # Each match begins at an entry, for that is where the one before it ended. At the end one or two are empty.
        blobs=compiled(
            rb"(?:(?!%b )[0-7]++%b%b)*+(?:[0-7]++%b(%b)|\Z)" % (file, rest, id_raw, rest, id_raw), re.DOTALL
        ),
        trees=compiled(
            rb"(?:(?!%b )[0-7]++%b%b)*+(?:[0-7]++%b(%b)|\Z)" % (folder, rest, id_raw, rest, id_raw), re.DOTALL
        ),
        different=compiled(rb"[^\0]"),
        entry_head=compiled(rb"([0-7]++) ([^\0]++)\0"),
        ref=compiled(rb"refs(?:/(?!\.)[^\x00-\x20\x7f~^:?*\[\\/]++(?<!\.lock)){2,}+(?<!\.)"),
    )


def git_key(check: str, meta: bytes, text: bytes | memoryview) -> Key:
    """The id git gives an object of the type `meta`; `check` is `git-sha1` or `git-sha256`.

    Raises:
        ValueError: `meta` is not the number of a type.
    """
    name = _NAMES.get(meta)
    if name is None:
        raise ValueError(f"meta {meta!r} is no type of git's objects")
    new, _ = _HASHES[check]
    digest = new(b"%b %d\0" % (name, len(text)))
    digest.update(text)
    return digest.digest()


class GitSystem(System):
    """Git with one object format; objects are records of one kind."""

    # Of an annotated tag the own record is the tag; of a ref to a tree or blob, that tree or blob.
    own_kind = 0
    label = TAG
    ghosts = False
    content_keys = frozenset((0,))
    refs_are_files = True

    def __init__(self, object_format: str) -> None:
        """`object_format`: `sha1` or `sha256`."""
        check = f"git-{object_format}"
        self.name = f"git {object_format}"
        self.kinds = (Kind("object", check, True),)
        self.keys = {check: functools.partial(git_key, check)}
        self._check = check

    @functools.cached_property
    def _format(self) -> _Format:
        return _format(self._check)

    @functools.cached_property
    def faults(self) -> FaultChecker:
        """Those that `git fsck` finds."""
        from smartserver.vcs.git.fsck import GitFaults  # Not before: git's helper judges nothing.

        return GitFaults(self._format.id_bytes)

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        """The parents of a commit, the target of a tag."""
        if meta == COMMIT:
            lines = _match(self._format.commit, key, text, "commit")[2]
            return tuple(map(binascii.unhexlify, lines.split()[1::2]))
        if meta == TAG:
            found = self._tag(key, text)
            # A tree or blob is no revision: the tag's own segment carries it.
            return (binascii.unhexlify(found[1]),) if found[2] in (b"commit", b"tag") else ()
        return ()

    def may_refer(self, kind: int, meta: bytes) -> bool:
        """Whether it is no blob."""
        return meta != BLOB

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        """A commit's tree and parents, a tree's entries, a tag's target, each with the type it must have.

        A submodule's commit is left out: it lies elsewhere.
        """
        if meta == BLOB:
            return NOTHING
        if meta == TREE:
            form = self._format
            # As lenient as git: any name that is not empty.
            if form.tree.fullmatch(text) is None:
                raise ValueError(f"{key.hex()} cannot be read as a tree")
            blobs, trees = form.blobs.findall(text), form.trees.findall(text)
            for ids in (blobs, trees):
                while ids and not ids[-1]:
                    ids.pop()
            return (0, BLOB, blobs), (0, TREE, trees)
        if meta == COMMIT:
            found = _match(self._format.commit, key, text, "commit")
            tree = (0, TREE, (binascii.unhexlify(found[1]),))
            parents = tuple(map(binascii.unhexlify, found[2].split()[1::2]))
            return (tree, (0, COMMIT, parents)) if parents else (tree,)
        found = self._tag(key, text)
        return ((0, _METAS[found[2]], (binascii.unhexlify(found[1]),)),)

    def changes(self, kind: int, meta: bytes, text: bytes, base: bytes) -> Changes | None:
        """Of a tree that has other objects under the same names, those objects: so are 19 of 20 trees."""
        found = None if meta != TREE else exchanged(text, base, self._format.id_bytes)
        if found is None:
            return None
        now: dict[bytes, set[Key]] = {}
        before: dict[bytes, set[Key]] = {}
        for mode, _, new, old in found:
            target = mode_type(mode)
            if target is not None:
                now.setdefault(target, set()).add(new)
                before.setdefault(target, set()).add(old)
        return _groups(now), _groups(before)

    def ref_problem(self, name: bytes) -> str:
        """What git-check-ref-format(1) says, and that it is below `refs/` and fits in a client's folders."""
        if self._format.ref.fullmatch(name) is None or b".." in name or b"@{" in name:
            return "git allows no such ref (git help check-ref-format)"
        longest = max(map(len, name.split(b"/")))
        if longest > MAX_REF_PART:
            return f"{longest} bytes between two slashes, expected no more than {MAX_REF_PART}"
        return ""

    def setting_problem(self, name: str, value: bytes) -> str:
        """Why HEAD cannot name that ref."""
        return self.ref_problem(value) if name == HEAD else ""

    def tip_meta(self, ref: bytes) -> bytes | None:
        """A branch is a commit; any other ref may be any object."""
        return COMMIT if ref.startswith(HEADS) else None

    def type_name(self, meta: bytes) -> str:
        """The name of git's type."""
        return f"a {_NAMES[meta].decode()}" if meta in _NAMES else f"no object (its meta is {meta!r})"

    def _tag(self, key: Key, text: bytes) -> re.Match[bytes]:
        # Git's clients read no tag that is shorter.
        if len(text) < 2 * self._format.id_bytes + 24:
            raise ValueError(f"{key.hex()} cannot be read as a tag")
        return _match(self._format.tag, key, text, "tag")


Exchanged = tuple[bytes, bytes, Key, Key]
"""Mode and name of an entry, its object, and the one it had before."""


MAX_LAST: Final = 64 << 10
"""Bytes of a tree that is kept to be looked at again: each thread keeps one, and its base."""

_last: Final = threading.local()


def exchanged(text: bytes, base: bytes, id_bytes: int) -> list[Exchanged] | None:
    """The entries of a tree that have another object than in `base`, a tree; None where it has other names or modes.

    Found by comparing all bytes at once: whole trees are not taken apart for one entry. What was found last is kept,
    for a tree is looked at twice: for what it refers to, and for its faults.
    """
    before = getattr(_last, "found", None)
    if before is not None and before[0] is text and before[1] is base:
        known: list[Exchanged] | None = before[2]
        return known
    found = _exchanged(text, base, id_bytes)
    if len(text) <= MAX_LAST:
        _last.found = text, base, found
    return found


def _exchanged(text: bytes, base: bytes, id_bytes: int) -> list[Exchanged] | None:
    size = len(text)
    if size != len(base):
        return None
    both = int.from_bytes(text, "big") ^ int.from_bytes(base, "big")
    differs = both.to_bytes(size, "big")
    form = _format("git-sha1" if id_bytes == 20 else "git-sha256")
    found: list[Exchanged] = []
    at = 0
    while (different := form.different.search(differs, at)) is not None:
        before = form.tree.match(text, at, different.start())
        head = None if before is None else form.entry_head.match(text, before.end())
        if head is None or head.end() > different.start():
            return None
        begin, at = head.end(), head.end() + id_bytes
        found.append((head[1], head[2], text[begin:at], base[begin:at]))
    return found


def mode_type(mode: bytes) -> bytes | None:
    """The type of object that an entry with this mode must name; None: a submodule's, which lies elsewhere."""
    return _TYPES.get(int(mode, 8) & 0o170000)


def _groups(keys: dict[bytes, set[Key]]) -> References:
    return tuple([(0, meta, frozenset(each)) for meta, each in keys.items()])


def _match(pattern: re.Pattern[bytes], key: Key, text: bytes, name: str) -> re.Match[bytes]:
    found = pattern.match(text)
    if found is None:
        raise ValueError(f"{key.hex()} cannot be read as a {name}")
    return found


GIT: Final = {system.name: system for system in (GitSystem("sha1"), GitSystem("sha256"))}
"""Git's systems, by name."""

register(*GIT.values())
