"""Describes git's objects to the store: their keys, the parents of commits and tags, and the references of objects.

The key of an object is git's id of it; its meta is git's type number in a pack, one byte.
"""

from __future__ import annotations

import functools
import hashlib
import re
from typing import TYPE_CHECKING, Final

from smartserver.records.check import Hash, KeyCheck
from smartserver.records.model import Key, Kind, Record, RevisionId, Tip
from smartserver.records.system import NOTHING, Changes, References, System, register
from smartserver.vcs.git.format import BLOB, COMMIT, FILE, FOLDER, FORMATS, LINK, TAG, TREE, entry_type
from smartserver.vcs.git.names import HEAD, HEADS
from smartserver.vcs.patterns import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smartserver.records.browse import Contents
    from smartserver.records.content import ReadPlan, ReadScope, RepositoryView, TipReader
    from smartserver.records.faults import FaultChecker

_NAMES: Final = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}
_METAS: Final = {name: meta for meta, name in _NAMES.items()}

_TYPES: Final = {FOLDER: TREE, FILE: BLOB, LINK: BLOB}
"""The type of the object that an entry names. An entry of another mode names a submodule's commit, which is in another
repository."""

MAX_REF_PART: Final = 250
"""The most bytes of one part of a ref's name. A client creates a file with that name and `.lock`, which may have at
most 255 bytes."""

_HASHES: Final = {"git-sha1": hashlib.sha1, "git-sha256": hashlib.sha256}


def git_key(check: str, meta: bytes, text: bytes | memoryview) -> Key:
    """Return the id that git gives an object of the type `meta`. `check` is `git-sha1` or `git-sha256`."""
    digest = _begin(check, meta, len(text))
    digest.update(text)
    return digest.digest()


def _begin(check: str, meta: bytes, length: int) -> Hash:
    """Return the hash of an object before its text is added."""
    name = _NAMES.get(meta)
    if name is None:
        raise ValueError(f"meta {meta!r} is no type of git's objects")
    return _HASHES[check](b"%b %d\0" % (name, length))


class GitSystem(System):
    """Git with one object format. All objects are records of one kind."""

    # The own record of an annotated tag is the tag. That of a ref to a tree or blob is the tree or blob.
    own_kind = 0
    label = TAG
    ghosts = False
    refs_are_files = True

    def __init__(self, object_format: str) -> None:
        """`object_format`: `sha1` or `sha256`."""
        check = f"git-{object_format}"
        self.name = f"git {object_format}"
        self.kinds = (Kind("object", check, True),)
        self.keys = {check: KeyCheck(lambda _, meta, length: _begin(check, meta, length))}
        self._format = FORMATS[object_format]
        self.hash_bytes = self._format.id_bytes

    @functools.cached_property
    def faults(self) -> FaultChecker:
        """The checker for the faults that `git fsck` finds."""
        from smartserver.vcs.git.fsck import GitFaults  # Imported late: git's helper checks no faults.

        return GitFaults(self._format)

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        """Return the parents of a commit, or the commit or tag that a tag names; empty for other objects."""
        if meta == COMMIT:
            return self._format.commit(key, text)[1]
        if meta == TAG:
            target, name = self._format.tag(key, text)
            # A tree or blob is no revision: the tag's own segment carries it.
            return (target,) if name in (b"commit", b"tag") else ()
        return ()

    def may_refer(self, kind: int, meta: bytes) -> bool:
        """Return False for a blob, which is the only object without references."""
        return meta != BLOB

    def is_file(self, kind: int, meta: bytes) -> bool:
        """Tell whether a record is a blob."""
        return meta == BLOB

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        """Return a commit's tree and parents, a tree's entries, or a tag's target, each with the type it must have.

        A submodule's commit is left out, because it is in another repository.
        """
        if meta == BLOB:
            return NOTHING
        if meta == TREE:
            groups: dict[bytes, list[Key]] = {BLOB: [], TREE: []}
            for mode, _, entry in self._format.tree(key, text):
                target_type = _TYPES.get(entry_type(mode))
                if target_type is not None:
                    groups[target_type].append(entry)
            return tuple([(0, target_type, keys) for target_type, keys in groups.items()])
        if meta == COMMIT:
            tree, parents = self._format.commit(key, text)
            return ((0, TREE, (tree,)), (0, COMMIT, parents)) if parents else ((0, TREE, (tree,)),)
        target, name = self._format.tag(key, text)
        return ((0, _METAS[name], (target,)),)

    def changes(self, record: Record, base: Record) -> Changes | None:
        """Return the objects that differ between two trees with the same names; None if the names differ. 19 of 20
        changed trees have the same names."""
        found = None if not record.meta == base.meta == TREE else self._format.changed(record.text, base.text)
        if found is None:
            return None
        now: dict[bytes, set[Key]] = {}
        before: dict[bytes, set[Key]] = {}
        for mode, _, new, old in found:
            target = _TYPES.get(entry_type(mode))
            if target is not None:
                now.setdefault(target, set()).add(new)
                before.setdefault(target, set()).add(old)
        return _groups(now), _groups(before)

    def read(self, stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
        """Return a part of the commits or of their objects, for a shallow or partial fetch."""
        from smartserver.vcs.git.reading import read  # Imported late: a client answers no reads.

        return read(stored, self._format, selector, question)

    def contents(self, stored: RepositoryView, question: ReadScope) -> Contents:
        """Return the `Contents` of a git repository."""
        from smartserver.vcs.git.content import GitContents  # Imported late: a client answers no reads.

        return GitContents(stored, self._format)

    def ref_problem(self, name: bytes) -> str:
        """Return the reason why a ref must not have this name; empty if it may. A name must follow
        git-check-ref-format(1), begin with `refs/`, and have no part that is too long for a client."""
        if _ref().fullmatch(name) is None or b".." in name or b"@{" in name:
            return "git allows no such ref (git help check-ref-format)"
        longest = max(map(len, name.split(b"/")))
        if longest > MAX_REF_PART:
            return f"it has {longest} bytes between two slashes, expected no more than {MAX_REF_PART}"
        return ""

    def setting_problem(self, name: str, value: bytes) -> str:
        """Return the reason why a setting must not have this value; empty if it may. HEAD must name a valid ref."""
        return self.ref_problem(value) if name == HEAD else ""

    def tip_meta(self, ref: bytes) -> bytes | None:
        """Return the meta that a ref's tip must have; None if any object is allowed. A branch must name a commit."""
        return COMMIT if ref.startswith(HEADS) else None

    def tip_fact(self, meta: bytes, text: bytes) -> bytes:
        """Return the target of a tag; empty for any other object."""
        return self._format.tag(b"", text)[0] if meta == TAG else b""

    def prove_tips(self, stored: TipReader, tips: Sequence[RevisionId]) -> Sequence[Tip]:
        """Return the tips with their attributes. The attributes of an annotated tag are the id of the object to which
        it peels; those of any other object are empty."""
        peeled = dict.fromkeys(tips, b"")
        at = {tip: tip for tip in tips}
        while at:
            facts = stored.facts(list(at.values()))
            at = {tip: target for tip, target in zip(at, facts, strict=True) if target}
            peeled |= at
        return [Tip(tip, peeled[tip]) for tip in tips]

    def type_name(self, meta: bytes) -> str:
        """Return the name of a type of objects, for a message."""
        return f"a {_NAMES[meta].decode()}" if meta in _NAMES else f"no object (its meta is {meta!r})"


@functools.cache
def _ref() -> re.Pattern[bytes]:
    """Compile the pattern of a ref's name on first use, because many an `ls-remote` never needs it."""
    return compile_pattern(rb"refs(?:/(?!\.)[^\x00-\x20\x7f~^:?*\[\\/]++(?<!\.lock)){2,}+(?<!\.)")


def _groups(keys: dict[bytes, set[Key]]) -> References:
    return tuple([(0, meta, group) for meta, group in keys.items()])


GIT: Final = {system.name: system for system in (GitSystem("sha1"), GitSystem("sha256"))}

register(*GIT.values())
