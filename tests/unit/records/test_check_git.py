"""Parents and references of git's objects, in the forms real histories have."""

from __future__ import annotations

import hashlib
from binascii import hexlify

import pytest

from smartserver.records.check_git import BLOB, COMMIT, TAG, TREE, GitRules

GIT = GitRules("git-sha1")
GIT256 = GitRules("git-sha256")

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


# ---- parents


def test_parents_are_the_lines_at_the_top() -> None:
    assert GIT.own_parents(A, COMMIT, SIGNED_MERGE) == (B, C)


def test_first_commit_has_no_parents() -> None:
    assert GIT.own_parents(A, COMMIT, b"tree " + hexlify(A) + b"\nauthor x\n\nparent " + hexlify(B) + b"\n") == ()


def test_a_parent_may_come_twice() -> None:
    text = b"tree " + hexlify(A) + b"\n" + 2 * (b"parent " + hexlify(B) + b"\n") + b"author x\n\n"
    assert GIT.own_parents(A, COMMIT, text) == (B, B)


def test_sha256_parents() -> None:
    text = b"tree " + hexlify(A256) + b"\nparent " + hexlify(B256) + b"\nauthor x\n\n"
    assert GIT256.own_parents(A256, COMMIT, text) == (B256,)
    assert GIT256.references(0, A256, COMMIT, text) == (0, (A256,))
    with pytest.raises(ValueError, match="commit"):
        GIT.own_parents(A, COMMIT, text)


@pytest.mark.parametrize(("target", "parents"), [(b"commit", (B,)), (b"tag", (B,)), (b"tree", ()), (b"blob", ())])
def test_parents_of_a_tag(target: bytes, parents: tuple[bytes, ...]) -> None:
    text = b"object " + hexlify(B) + b"\ntype " + target + b"\ntag v1\ntagger x\n\nwords\n"
    assert GIT.own_parents(A, TAG, text) == parents
    assert GIT.references(0, A, TAG, text) == (0, (B,))


@pytest.mark.parametrize("meta", [TREE, BLOB])
def test_a_bare_tree_or_blob_has_no_parents(meta: bytes) -> None:
    assert GIT.own_parents(A, meta, b"anything") == ()


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
        GIT.own_parents(A, COMMIT, text)
    with pytest.raises(ValueError, match=A.hex() + " cannot be read as a commit"):
        GIT.references(0, A, COMMIT, text)


@pytest.mark.parametrize("text", [b"", b"object " + hexlify(A) + b"\n", b"object " + hexlify(A) + b"\ntype toast\n"])
def test_no_tag(text: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read as a tag"):
        GIT.own_parents(A, TAG, text)
    with pytest.raises(ValueError, match="cannot be read as a tag"):
        GIT.references(0, A, TAG, text)


def test_only_tags_are_labels() -> None:
    assert GIT.label == TAG


def test_all_but_blobs_may_refer() -> None:
    assert [GIT.may_refer(0, meta) for meta in (COMMIT, TREE, BLOB, TAG)] == [True, True, False, True]


# ---- references


def test_commit_refers_to_its_tree_only() -> None:
    assert GIT.references(0, A, COMMIT, SIGNED_MERGE) == (0, (A,))


def test_tree_refers_to_all_but_submodules() -> None:
    text = entry(b"100644", b"a", A) + entry(b"160000", b"module", B) + entry(b"40000", b"sub", C)
    assert list(GIT.references(0, A, TREE, text)[1]) == [A, C]


def test_submodule_mode_in_a_name_is_no_submodule() -> None:
    text = entry(b"100644", b"160000 x", A) + entry(b"100644", b"b", B)
    assert list(GIT.references(0, A, TREE, text)[1]) == [A, B]


@pytest.mark.parametrize("mode", [b"100664", b"100600", b"040000", b"0100644", b"120000", b"755", b"0"])
def test_odd_modes_are_read(mode: bytes) -> None:
    assert list(GIT.references(0, A, TREE, entry(mode, b".git", A) + entry(b"100644", b"..", B))[1]) == [A, B]


def test_padded_submodule_mode() -> None:
    assert list(GIT.references(0, A, TREE, entry(b"0160000", b"module", A) + entry(b"100644", b"b", B))[1]) == [B]


def test_ids_with_every_byte() -> None:
    ids = [bytes([n]) * 20 for n in range(256)]
    text = b"".join(entry(b"100644", b"%d" % n, key) for n, key in enumerate(ids))
    assert list(GIT.references(0, A, TREE, text)[1]) == ids


def test_sha256_tree() -> None:
    text = entry(b"100644", b"a", A256) + entry(b"40000", b"b", B256)
    assert list(GIT256.references(0, A256, TREE, text)[1]) == [A256, B256]
    with pytest.raises(ValueError, match="tree"):
        GIT.references(0, A, TREE, text)


def test_empty_tree_and_blob_refer_to_nothing() -> None:
    assert list(GIT.references(0, A, TREE, b"")[1]) == []
    assert list(GIT.references(0, A, BLOB, entry(b"100644", b"a", A))[1]) == []


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
        GIT.references(0, A, TREE, text)


def test_large_tree_is_read_in_one_go() -> None:
    text = b"".join(entry(b"100644", b"name%d" % n, A) for n in range(50_000))
    assert len(GIT.references(0, A, TREE, text)[1]) == 50_000
