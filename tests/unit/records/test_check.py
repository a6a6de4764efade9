"""Keys, parents and references of records; git's forms as real histories have them."""

from __future__ import annotations

import hashlib
from binascii import hexlify

import pytest

from smartserver.records.check import (
    BLOB,
    COMMIT,
    TAG,
    TREE,
    check_bytes,
    git_key,
    is_label,
    make_check,
    own_parents,
    references,
    revision_record,
    verify_record,
)
from smartserver.records.model import Kind

GIT = Kind("object", "git-sha1", True)
GIT256 = Kind("object", "git-sha256", True)
PAGE = Kind("page", "sha1-key", True)
TEXT = Kind("text", "blake2b-128", True)

A, B, C = (hashlib.sha1(name).digest() for name in (b"a", b"b", b"c"))
A256, B256 = (hashlib.sha256(name).digest() for name in (b"a", b"b"))

SIGNED_MERGE = (
    b"tree " + hexlify(A) + b"\nparent " + hexlify(B) + b"\nparent " + hexlify(C) + b"\n"
    b"author A U Thor <a@example.org> 1 +0000\n"
    b"committer A U Thor <a@example.org> 1 +0000\n"
    b"encoding ISO-8859-1\n"
    b"mergetag object " + hexlify(A) + b"\n type commit\n tag v1\n parent " + hexlify(A) + b"\n \n words\n"
    b"gpgsig -----BEGIN PGP SIGNATURE-----\n \n parent " + hexlify(A) + b"\n -----END PGP SIGNATURE-----\n"
    b"\nparent " + hexlify(A) + b"\n"
)


def entry(mode: bytes, name: bytes, key: bytes) -> bytes:
    return mode + b" " + name + b"\0" + key


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


# ---- parents


def test_parents_are_the_lines_at_the_top() -> None:
    assert own_parents(GIT, A, COMMIT, SIGNED_MERGE) == (B, C)


def test_first_commit_has_no_parents() -> None:
    assert own_parents(GIT, A, COMMIT, b"tree " + hexlify(A) + b"\nauthor x\n\nparent " + hexlify(B) + b"\n") == ()


def test_a_parent_may_come_twice() -> None:
    text = b"tree " + hexlify(A) + b"\n" + 2 * (b"parent " + hexlify(B) + b"\n") + b"author x\n\n"
    assert own_parents(GIT, A, COMMIT, text) == (B, B)


def test_sha256_parents() -> None:
    text = b"tree " + hexlify(A256) + b"\nparent " + hexlify(B256) + b"\nauthor x\n\n"
    assert own_parents(GIT256, A256, COMMIT, text) == (B256,)
    assert references(GIT256, A256, COMMIT, text) == (A256,)
    with pytest.raises(ValueError, match="commit"):
        own_parents(GIT, A, COMMIT, text)


@pytest.mark.parametrize(("target", "parents"), [(b"commit", (B,)), (b"tag", (B,)), (b"tree", ()), (b"blob", ())])
def test_parents_of_a_tag(target: bytes, parents: tuple[bytes, ...]) -> None:
    text = b"object " + hexlify(B) + b"\ntype " + target + b"\ntag v1\ntagger x\n\nwords\n"
    assert own_parents(GIT, A, TAG, text) == parents
    assert references(GIT, A, TAG, text) == (B,)


@pytest.mark.parametrize("meta", [TREE, BLOB])
def test_a_bare_tree_or_blob_has_no_parents(meta: bytes) -> None:
    assert own_parents(GIT, A, meta, b"anything") == ()


@pytest.mark.parametrize("kind", [PAGE, TEXT])
def test_other_kinds_name_none(kind: Kind) -> None:
    assert own_parents(kind, b"key", COMMIT, b"tree") is None
    assert references(kind, b"key", COMMIT, b"tree") == ()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"tree",
        b"tree " + hexlify(A),
        b"tree " + hexlify(A)[:-1] + b"\n",
        b"tree " + hexlify(A)[:-1] + b"g\n",
        b"parent " + hexlify(A) + b"\ntree " + hexlify(A) + b"\n",
    ],
)
def test_no_commit(text: bytes) -> None:
    with pytest.raises(ValueError, match=A.hex() + " cannot be read as a commit"):
        own_parents(GIT, A, COMMIT, text)
    with pytest.raises(ValueError, match=A.hex() + " cannot be read as a commit"):
        references(GIT, A, COMMIT, text)


@pytest.mark.parametrize("text", [b"", b"object " + hexlify(A) + b"\n", b"object " + hexlify(A) + b"\ntype toast\n"])
def test_no_tag(text: bytes) -> None:
    for read in (own_parents, references):
        with pytest.raises(ValueError, match="cannot be read as a tag"):
            read(GIT, A, TAG, text)


def test_the_revisions_own_record() -> None:
    assert revision_record("git sha1") == revision_record("git sha256") == 0
    assert revision_record("bzr 2a") is None


def test_only_tags_are_labels() -> None:
    assert [is_label(GIT, meta) for meta in (COMMIT, TREE, BLOB, TAG)] == [False, False, False, True]
    assert not is_label(TEXT, TAG)


# ---- references


def test_commit_refers_to_its_tree_only() -> None:
    assert references(GIT, A, COMMIT, SIGNED_MERGE) == (A,)


def test_tree_refers_to_all_but_submodules() -> None:
    text = entry(b"100644", b"a", A) + entry(b"160000", b"module", B) + entry(b"40000", b"sub", C)
    assert list(references(GIT, A, TREE, text)) == [A, C]


def test_submodule_mode_in_a_name_is_no_submodule() -> None:
    text = entry(b"100644", b"160000 x", A) + entry(b"100644", b"b", B)
    assert list(references(GIT, A, TREE, text)) == [A, B]


@pytest.mark.parametrize("mode", [b"100664", b"100600", b"040000", b"0100644", b"120000", b"755", b"0"])
def test_odd_modes_are_read(mode: bytes) -> None:
    assert list(references(GIT, A, TREE, entry(mode, b".git", A) + entry(b"100644", b"..", B))) == [A, B]


def test_padded_submodule_mode() -> None:
    assert list(references(GIT, A, TREE, entry(b"0160000", b"module", A) + entry(b"100644", b"b", B))) == [B]


def test_ids_with_every_byte() -> None:
    ids = [bytes([n]) * 20 for n in range(256)]
    text = b"".join(entry(b"100644", b"%d" % n, key) for n, key in enumerate(ids))
    assert list(references(GIT, A, TREE, text)) == ids


def test_sha256_tree() -> None:
    text = entry(b"100644", b"a", A256) + entry(b"40000", b"b", B256)
    assert list(references(GIT256, A256, TREE, text)) == [A256, B256]
    with pytest.raises(ValueError, match="tree"):
        references(GIT, A, TREE, text)


def test_empty_tree_and_blob_refer_to_nothing() -> None:
    assert list(references(GIT, A, TREE, b"")) == []
    assert list(references(GIT, A, BLOB, entry(b"100644", b"a", A))) == []


@pytest.mark.parametrize(
    "text",
    [
        b"x",
        entry(b"100644", b"a", A)[:-1],
        entry(b"100644", b"a", A) + b"\0",
        entry(b"100844", b"a", A),
        entry(b"", b"a", A),
        entry(b"100644", b"", A),
        b"100644a\0" + A,
        entry(b"100644", b"a", A) + b"100644 no end",
    ],
)
def test_no_tree(text: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read as a tree"):
        references(GIT, A, TREE, text)


def test_large_tree_is_read_in_one_go() -> None:
    text = b"".join(entry(b"100644", b"name%d" % n, A) for n in range(50_000))
    assert len(references(GIT, A, TREE, text)) == 50_000
