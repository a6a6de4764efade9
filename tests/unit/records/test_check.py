"""records.check, records.rules: keys and checks of records, and which rules a system has."""

from __future__ import annotations

import hashlib

import pytest

from smartserver.records.check import (
    BLOB,
    COMMIT,
    KINDS_OF,
    TAG,
    TREE,
    check_bytes,
    git_key,
    make_check,
    rules_of,
    verify_record,
)
from smartserver.records.model import Kind
from smartserver.records.rules import Rules

GIT = Kind("object", "git-sha1", True)
GIT256 = Kind("object", "git-sha256", True)
PAGE = Kind("page", "sha1-key", True)
TEXT = Kind("text", "blake2b-128", True)

A = hashlib.sha1(b"a").digest()


# ---- keys


@pytest.mark.parametrize(
    ("check", "meta", "text", "key"),
    [
        ("git-sha1", BLOB, b"", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
        ("git-sha1", TREE, b"", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"),
        ("git-sha1", BLOB, b"hello world\n", "3b18e512dba79e4c8300dd08aeb37f8e728b8dad"),
        ("git-sha256", BLOB, b"", "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"),
        ("git-sha256", TREE, b"", "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"),
    ],
)
def test_git_keys_are_gits(check: str, meta: bytes, text: bytes, key: str) -> None:
    assert git_key(check, meta, text).hex() == key
    kind = Kind("object", check, True)
    verify_record(kind, bytes.fromhex(key), meta, text, b"")
    assert make_check(kind, bytes.fromhex(key), meta, text) == b""


def test_git_keys_tell_types_apart() -> None:
    keys = {git_key("git-sha1", meta, b"text") for meta in (COMMIT, TREE, BLOB, TAG)}
    assert len(keys) == 4


@pytest.mark.parametrize("meta", [b"", b"\0", b"\5", b"\1\1", b"blob"])
def test_git_has_four_types(meta: bytes) -> None:
    with pytest.raises(ValueError, match="no type"):
        git_key("git-sha1", meta, b"")
    with pytest.raises(ValueError, match="no type"):
        verify_record(GIT, A, meta, b"", b"")


@pytest.mark.parametrize("kind", [GIT, GIT256])
def test_git_wrong_key_or_text(kind: Kind) -> None:
    key = git_key(kind.check, BLOB, b"text")
    for changed_key, meta, text in ((key, BLOB, b"texT"), (key, TREE, b"text"), (key[:-1], BLOB, b"text")):
        with pytest.raises(ValueError, match=key[:4].hex() + "|expected"):
            verify_record(kind, changed_key, meta, text, b"")


def test_page_keys() -> None:
    key = b"sha1:" + hashlib.sha1(b"page").hexdigest().encode()
    assert make_check(PAGE, key, b"", b"page") == b""
    verify_record(PAGE, key, b"", b"page", b"")
    with pytest.raises(ValueError, match="expected"):
        verify_record(PAGE, key, b"", b"pagE", b"")


def test_check_covers_kind_key_meta_and_text() -> None:
    check = make_check(TEXT, b"key", b"meta", b"text")
    assert len(check) == check_bytes(TEXT) == 16
    verify_record(TEXT, b"key", b"meta", b"text", check)
    others = [
        make_check(Kind("inventory", "blake2b-128", True), b"key", b"meta", b"text"),
        make_check(TEXT, b"kex", b"meta", b"text"),
        make_check(TEXT, b"key", b"mete", b"text"),
        make_check(TEXT, b"key", b"meta", b"texu"),
        make_check(TEXT, b"keym", b"eta", b"text"),
        make_check(TEXT, b"key", b"metat", b"ext"),
    ]
    assert len({check, *others}) == 7
    for other in others:
        with pytest.raises(ValueError, match="expected " + other.hex()):
            verify_record(TEXT, b"key", b"meta", b"text", other)


def test_check_is_fixed() -> None:
    # The bytes are in files: a change of them is a change of the format.
    assert (
        make_check(TEXT, b"key", b"meta", b"text").hex()
        == hashlib.blake2b(b"\x04text\x03key\x04metatext", digest_size=16).hexdigest()
    )


def test_unknown_check() -> None:
    with pytest.raises(ValueError, match="md5"):
        check_bytes(Kind("x", "md5", False))


@pytest.mark.parametrize("vcs", KINDS_OF)
def test_rules_fit_the_kinds(vcs: str) -> None:
    rules, kinds = rules_of(vcs), KINDS_OF[vcs]
    assert rules.own_kind == 0
    assert rules.content_keys == {number for number, kind in enumerate(kinds) if not check_bytes(kind)}
    assert all(number < len(kinds) for number in rules.of_revision)


def test_of_another_system_nothing_is_known() -> None:
    rules: Rules = rules_of("hg")
    assert rules.own_kind is None
    assert rules.label is None
    assert not rules.content_keys | rules.of_revision
    assert not rules.may_refer(0, COMMIT)
    assert rules.own_parents(b"key", COMMIT, b"tree") == ()
    assert rules.references(0, b"key", COMMIT, b"tree") == ()
