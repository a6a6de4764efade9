"""What a record's bytes promise: its key, its revision's parents, and the records it refers to.

This is the only module outside `vcs` that knows the bytes of a version-control system. A kind names its rule in
`Kind.check`; the rules are the fixed table `CHECKS`:

    git-sha1, git-sha256   the key is git's object id; meta is git's pack type number, one byte
    sha1-key               the key is `sha1:` and the hex sha1 of the text
    blake2b-128            the key says nothing of the text; 16 bytes in the record's header do
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from smartserver.records import varint
from smartserver.records.model import Key, Kind, RevisionId

CHECK_BYTES: Final = 16
"""Bytes of a check that lies in the record's header."""

COMMIT: Final = b"\x01"
TREE: Final = b"\x02"
BLOB: Final = b"\x03"
TAG: Final = b"\x04"
"""The meta of git's objects: their type number in git's own packs."""

_GIT_NAMES: Final = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}


class _GitRules(msgspec.Struct, frozen=True):
    """The object format of one hash: how long ids are, and expressions that read what a reference walk needs."""

    new: Callable[[bytes], hashlib._Hash]
    id_bytes: int
    commit: re.Pattern[bytes]
    tag: re.Pattern[bytes]
    tree: re.Pattern[bytes]
    tree_ids: re.Pattern[bytes]


def _git_rules(new: Callable[[bytes], hashlib._Hash], id_bytes: int) -> _GitRules:
    id_hex = rb"[0-9a-fA-F]{%d}" % (2 * id_bytes)
    id_raw = rb".{%d}" % id_bytes
    return _GitRules(
        new,
        id_bytes,
        # Only the lines at the top count: a mergetag further down holds the lines of a whole tag.
        commit=re.compile(rb"tree (%b)\n((?:parent %b\n)*+)" % (id_hex, id_hex)),
        tag=re.compile(rb"object (%b)\ntype (commit|tree|blob|tag)\n" % id_hex),
        tree=re.compile(rb"(?:[0-7]++ [^\0]++\0%b)*+" % id_raw, re.DOTALL),
        tree_ids=re.compile(rb"\0(%b)" % id_raw, re.DOTALL),
    )


_GIT: Final = {"git-sha1": _git_rules(hashlib.sha1, 20), "git-sha256": _git_rules(hashlib.sha256, 32)}

CHECKS: Final = frozenset((*_GIT, "sha1-key", "blake2b-128"))
"""Every rule a kind may name."""


KINDS_OF: Final = {
    **{f"git {name}": (Kind("object", f"git-{name}", True),) for name in ("sha1", "sha256")},
    "bzr 2a": (
        Kind("revision", "blake2b-128", True),
        Kind("signature", "blake2b-128", False),
        Kind("inventory", "blake2b-128", True),
        Kind("chk", "sha1-key", True),
        Kind("text", "blake2b-128", True),
    ),
}
"""The kinds of record a repository of a known version-control system has; a client finds them by its `vcs`."""


def check_bytes(kind: Kind) -> int:
    """How many bytes of check a record of this kind has in its header: 0 where the key is the check.

    Raises:
        ValueError: the kind names no rule of `CHECKS`.
    """
    if kind.check not in CHECKS:
        raise ValueError(f"kind {kind.name!r} names an unknown check {kind.check!r}")
    return CHECK_BYTES if kind.check == "blake2b-128" else 0


def git_key(check: str, meta: bytes, text: bytes | memoryview) -> Key:
    """The id git gives an object of the type `meta`; `check` is `git-sha1` or `git-sha256`.

    Raises:
        ValueError: `meta` is not the number of a type.
    """
    name = _GIT_NAMES.get(meta)
    if name is None:
        raise ValueError(f"meta {meta!r} is no type of git's objects")
    digest = _GIT[check].new(b"%b %d\0" % (name, len(text)))
    digest.update(text)
    return digest.digest()


def make_check(kind: Kind, key: Key, meta: bytes, text: bytes) -> bytes:
    """The check for a record's header: 16 bytes over kind, key, meta and text, or empty where the key is the check."""
    if not check_bytes(kind):
        return b""
    digest = hashlib.blake2b(digest_size=CHECK_BYTES)
    for part in (kind.name.encode(), key, meta):
        digest.update(varint.encode(len(part)) + part)
    digest.update(text)
    return digest.digest()


def verify_record(kind: Kind, key: Key, meta: bytes, text: bytes, check: bytes) -> None:
    """Check that the text is what key and header say.

    Raises:
        ValueError: it is not; the message says what was expected.
    """
    if kind.check in _GIT:
        actual, expected = git_key(kind.check, meta, text), key
    elif kind.check == "sha1-key":
        actual, expected = b"sha1:" + hashlib.sha1(text).hexdigest().encode(), key
    else:
        actual, expected = make_check(kind, key, meta, text), check
    if actual != expected:
        raise ValueError(f"the text hashes to {actual.hex()}, expected {expected.hex()}")


def revision_record(vcs: str) -> int | None:
    """The kind whose record is a revision's own, the one with the revision's id as key; None where there is none.

    With git it is the commit; of an annotated tag the tag; of a ref to a tree or blob, that tree or blob.
    """
    return 0 if vcs.startswith("git ") else None


def own_parents(kind: Kind, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...] | None:
    """The parents a revision's own record names; None where records of this kind name none.

    Raises:
        ValueError: the record cannot be parsed.
    """
    rules = _GIT.get(kind.check)
    if rules is None:
        return None
    if meta == COMMIT:
        lines = _match(rules.commit, key, text, "commit")[2]
        return tuple(map(binascii.unhexlify, lines.split()[1::2]))
    if meta == TAG:
        found = _match(rules.tag, key, text, "tag")
        # A tree or blob is no revision: the tag's own segment carries it.
        return (binascii.unhexlify(found[1]),) if found[2] in (b"commit", b"tag") else ()
    return ()


def is_label(kind: Kind, meta: bytes) -> bool:
    """Whether a revision's own record only says something of its parent, as an annotated tag does of a commit."""
    return kind.check in _GIT and meta == TAG


def may_refer(kind: Kind, meta: bytes) -> bool:
    """Whether a record of this kind and meta can refer to others, whatever its text."""
    return kind.check in _GIT and meta != BLOB


def references(kind: Kind, key: Key, meta: bytes, text: bytes) -> Sequence[Key]:
    """The keys of the records of the same kind that this one needs, in its order; a key may come twice.

    A commit's parents are left out: those are the graph's. So is a submodule's commit, which lies elsewhere.

    Raises:
        ValueError: the record cannot be parsed.
    """
    if not may_refer(kind, meta):
        return ()
    rules = _GIT[kind.check]
    if meta == TREE:
        return _tree_references(rules, key, text)
    if meta == COMMIT:
        return (binascii.unhexlify(_match(rules.commit, key, text, "commit")[1]),)
    return (binascii.unhexlify(_match(rules.tag, key, text, "tag")[1]),)


def _match(pattern: re.Pattern[bytes], key: Key, text: bytes, name: str) -> re.Match[bytes]:
    found = pattern.match(text)
    if found is None:
        raise ValueError(f"{key.hex()} cannot be read as a {name}")
    return found


def _tree_references(rules: _GitRules, key: Key, text: bytes) -> Sequence[Key]:
    # As lenient as git: any octal mode and any name that is not empty.
    if rules.tree.fullmatch(text) is None:
        raise ValueError(f"{key.hex()} cannot be read as a tree")
    ids: list[bytes] = rules.tree_ids.findall(text)
    if b"60000 " not in text:
        return ids
    found = []
    at = 0
    for target in ids:
        space = text.index(b" ", at)
        if int(text[at:space], 8) & 0o170000 != 0o160000:
            found.append(target)
        at = text.index(b"\0", space) + 1 + rules.id_bytes
    return found
