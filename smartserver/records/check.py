"""What a record's bytes promise: its key, its revision's parents, and the records it refers to.

This module and its parts are the only ones outside `vcs` that know the bytes of a version-control system: `check_git`,
`check_bzr`, and `content` with `bzr_content`, which read the same bytes (`bzr`). A kind names in `Kind.check` what
proves its text; the checks are the fixed table `CHECKS`:

    git-sha1, git-sha256   the key is git's object id; meta is git's pack type number, one byte
    sha1-key               the key is `sha1:` and the hex sha1 of the text
    blake2b-128            the key says nothing of the text; 16 bytes in the record's header do

What records say of each other is the system's to know: `rules_of`.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Final

from smartserver.errors import shown
from smartserver.records import varint
from smartserver.records.check_git import BLOB as BLOB
from smartserver.records.check_git import COMMIT as COMMIT
from smartserver.records.check_git import GIT_CHECKS, GitRules
from smartserver.records.check_git import TAG as TAG
from smartserver.records.check_git import TREE as TREE
from smartserver.records.check_git import git_key as git_key
from smartserver.records.model import Key, Kind
from smartserver.records.rules import Rules

if TYPE_CHECKING:
    from smartserver.records.faults import FaultChecker

CHECK_BYTES: Final = 16
"""Bytes of a check that lies in the record's header."""

CHECKS: Final = frozenset((*GIT_CHECKS, "sha1-key", "blake2b-128"))
"""Every check a kind may name."""


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


@functools.lru_cache(maxsize=16)
def rules_of(vcs: str) -> Rules:
    """What records of a repository of this system say of each other; nothing, where the system is not known."""
    if vcs == "bzr 2a":
        from smartserver.records.check_bzr import BzrRules  # Not before: it is a tenth of what git's helper loads.

        return BzrRules()
    return GitRules(f"git-{vcs.removeprefix('git ')}") if vcs in ("git sha1", "git sha256") else Rules()


@functools.lru_cache(maxsize=16)
def faults_of(vcs: str) -> FaultChecker:
    """What looks for the faults of records of this system; it finds none where none are known."""
    from smartserver.records.faults import FaultChecker  # Not before: git's helper judges nothing.

    if vcs not in ("git sha1", "git sha256"):
        return FaultChecker()
    from smartserver.records.fsck_git import GitFaults

    return GitFaults(32 if vcs == "git sha256" else 20)


def known_faults() -> list[str]:
    """The ids of all faults that are looked for, of any system."""
    return sorted({fault for vcs in KINDS_OF for fault in faults_of(vcs).severities})


def check_bytes(kind: Kind) -> int:
    """How many bytes of check a record of this kind has in its header: 0 where the key is the check.

    Raises:
        ValueError: the kind names no check of `CHECKS`.
    """
    if kind.check not in CHECKS:
        raise ValueError(f"kind {kind.name!r} names an unknown check {kind.check!r}")
    return CHECK_BYTES if kind.check == "blake2b-128" else 0


def make_check(kind: Kind, key: Key, meta: bytes, text: bytes) -> bytes:
    """The check for a record's header: 16 bytes over kind, key, meta and text, or empty where the key is the check."""
    if kind.check != "blake2b-128" and not check_bytes(kind):
        return b""
    encode = varint.encode
    head = b"%b%b%b%b%b" % (_begin(kind.name), encode(len(key)), key, encode(len(meta)), meta)
    digest = hashlib.blake2b(head, digest_size=CHECK_BYTES)
    digest.update(text)
    return digest.digest()


@functools.lru_cache(maxsize=64)
def _begin(name: str) -> bytes:
    """What all checks of a kind begin with."""
    named = name.encode()
    return varint.encode(len(named)) + named


def verify_record(kind: Kind, key: Key, meta: bytes, text: bytes, check: bytes) -> None:
    """Check that the text is what key and header say.

    Raises:
        ValueError: it is not; the message says what was expected.
    """
    by = kind.check
    if by == "sha1-key":
        actual, expected = b"sha1:" + hashlib.sha1(text).hexdigest().encode(), key
    elif by in GIT_CHECKS:
        actual, expected = git_key(by, meta, text), key
    else:
        actual, expected = make_check(kind, key, meta, text), check
    if actual != expected:
        raise ValueError(f"the text hashes to {shown(actual)}, expected {shown(expected)}")
