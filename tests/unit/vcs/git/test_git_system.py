"""Parents and references of git's objects, in the forms real histories have.

vcs.git.folder: the objects of a folder are those of git. What is sent: `interop/test_git_stream_commands.py`."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from binascii import hexlify
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.records import limits
from smartserver.records.check import verify_record
from smartserver.records.keys import KeyTable
from smartserver.records.model import Kind, Record
from smartserver.records.system import Changes
from smartserver.vcs.git.folder import BadFolder, FolderCommit, FolderTree, commit_text
from smartserver.vcs.git.format import BLOB, COMMIT, TAG, TREE
from smartserver.vcs.git.system import GIT, git_key

ODD = [b"a", b"a.b", b"a0", b"sub/x", b"sub.x", b"sub0", b"sub-x/y", b"\xff\xfe", b"new\nline", b"deep/er/and/deeper"]


def write(folder: Path, names: list[bytes]) -> None:
    for name in names:
        place = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(b"text of " + name)


def tree_of_git(folder: Path, object_format: str) -> bytes:
    """The tree that git makes of a folder."""
    git = ["git", "-c", "core.fileMode=true", f"--git-dir={folder}-git", f"--work-tree={folder}"]
    variables = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(
        ["git", "init", "-q", "--bare", f"--object-format={object_format}", f"{folder}-git"], check=True, env=variables
    )
    subprocess.run([*git, "config", "core.bare", "false"], check=True, env=variables)
    subprocess.run([*git, "add", "-f", "-A"], check=True, cwd=folder, env=variables)
    done = subprocess.run([*git, "write-tree"], check=True, cwd=folder, env=variables, capture_output=True)
    return bytes.fromhex(done.stdout.decode())


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_the_tree_is_that_of_git(tmp_path: Path, object_format: str) -> None:
    folder = tmp_path / "folder"
    write(folder, ODD)
    (folder / ".gitignore").write_text("*\n")
    (folder / "a0").chmod(0o744)
    (folder / "link").symlink_to("nowhere")
    (folder / "to-folder").symlink_to("sub")
    (folder / "empty/er").mkdir(parents=True)
    seen: list[tuple[int, int]] = []
    tree = FolderTree(str(folder), f"git {object_format}", lambda size, files: seen.append((files, size)))
    assert seen[-1] == (len(tree.files), sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    assert tree.root == tree_of_git(folder, object_format)
    assert len(tree.files) == len(ODD) + 3
    assert len(tree.keys) == len({file.key for file in tree.files}) + len(tree.trees)


def test_what_other_systems_keep_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [b".git/HEAD", b".hg/store", b".bzr/README", b"file", b"below/.hg/kept"])
    assert sorted(file.path for file in FolderTree(str(tmp_path), "git sha1").files) == [b"below/.hg/kept", b"file"]


def test_what_has_no_place_in_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [b"below/.GIT/HEAD"])
    with pytest.raises(BadFolder, match=r"below/\.GIT: git keeps nothing of this name"):
        FolderTree(str(tmp_path), "git sha1")
    (tmp_path / "below").rename(tmp_path / ".git")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFolder, match="pipe is neither a file nor a link nor a folder"):
        FolderTree(str(tmp_path), "git sha1")
    (tmp_path / "pipe").unlink()
    with open(tmp_path / "large", "wb") as file:
        file.truncate(limits.MAX_RECORD + 1)
    with pytest.raises(BadFolder, match=r"large has 268435457 bytes, expected no more than 268435456 in a file"):
        FolderTree(str(tmp_path), "git sha1")
    monkeypatch.setattr(os, "fstat", lambda _descriptor: os.stat_result((0,) * 10))
    (tmp_path / "large").write_bytes(b"grew")
    with pytest.raises(BadFolder, match="large was changed while it was read"):
        FolderTree(str(tmp_path), "git sha1")


def test_a_file_that_changes_before_it_is_sent(tmp_path: Path) -> None:
    write(tmp_path, [b"a"])
    tree = FolderTree(str(tmp_path), "git sha1")
    (tmp_path / "a").write_bytes(b"other")
    commit = FolderCommit(tree, [], commit_text(tree.root, [], b"A <a@b> 1 +0000", b"", b""), KeyTable())
    with pytest.raises(BadFolder, match="a was changed while it was read; try again"):
        list(commit.segments())


def test_a_file_that_grew_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, [b"a"])
    tree = FolderTree(str(tmp_path), "git sha1")
    with open(tmp_path / "a", "r+b") as file:
        file.truncate(1 << 40)  # More than fits into memory.
    with pytest.raises(BadFolder, match="a was changed while it was read; try again"):
        tree.text(tree.files[0])


def test_more_than_a_commit_may_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    for number in range(8):
        (tmp_path / str(number)).write_bytes(chance.randbytes(1000))
    tree = FolderTree(str(tmp_path), "git sha1")
    commit = FolderCommit(tree, [], commit_text(tree.root, [], b"A <a@b> 1 +0000", b"", b""), KeyTable())
    monkeypatch.setattr(limits, "MAX_TAKEN", 5000)
    with pytest.raises(BadFolder, match=r"more than 5000 bytes \(compressed\).*: import a part of them first"):
        list(commit.segments())
    monkeypatch.setattr(limits, "MAX_TAKEN", 50_000)
    monkeypatch.setattr(limits, "MAX_SEGMENT_TEXT", 5000)
    monkeypatch.setattr(limits, "MAX_ENTRIES", 3)
    with pytest.raises(BadFolder, match="it cannot be one commit"):
        list(commit.segments())


GIT1, GIT256 = GIT["git sha1"], GIT["git sha256"]

A, B, C = (hashlib.sha1(name).digest() for name in (b"a", b"b", b"c"))

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


def needs(meta: bytes, text: bytes) -> dict[bytes, list[bytes]]:
    """The objects that an object needs, by the type that must be."""
    return {wanted: list(keys) for _, wanted, keys in GIT1.references(0, A, meta, text) if wanted and keys}


# ---- keys


@pytest.mark.parametrize("meta", [b"", b"\0", b"\5", b"\1\1", b"blob"])
def test_git_has_four_types(meta: bytes) -> None:
    with pytest.raises(ValueError, match="no type"):
        git_key("git-sha1", meta, b"")
    with pytest.raises(ValueError, match="no type"):
        verify_record(GIT1.kinds[0], A, meta, b"", b"")


@pytest.mark.parametrize("kind", [*GIT1.kinds, *GIT256.kinds])
def test_git_wrong_key_or_text(kind: Kind) -> None:
    key = git_key(kind.check, BLOB, b"text")
    for changed_key, meta, text in ((key, BLOB, b"texT"), (key, TREE, b"text"), (key[:-1], BLOB, b"text")):
        with pytest.raises(ValueError, match=key[:4].hex() + "|expected"):
            verify_record(kind, changed_key, meta, text, b"")


# ---- parents


def test_parents_are_the_lines_at_the_top() -> None:
    assert GIT1.own_parents(A, COMMIT, SIGNED_MERGE) == (B, C)
    assert needs(COMMIT, SIGNED_MERGE) == {TREE: [A], COMMIT: [B, C]}


@pytest.mark.parametrize(
    ("target", "meta", "parents"),
    [(b"commit", COMMIT, (B,)), (b"tag", TAG, (B,)), (b"tree", TREE, ()), (b"blob", BLOB, ())],
)
def test_parents_of_a_tag(target: bytes, meta: bytes, parents: tuple[bytes, ...]) -> None:
    text = b"object " + hexlify(B) + b"\ntype " + target + b"\ntag v1\ntagger x\n\nwords\n"
    assert GIT1.own_parents(A, TAG, text) == parents
    assert needs(TAG, text) == {meta: [B]}


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
        GIT1.own_parents(A, COMMIT, text)
    with pytest.raises(ValueError, match=A.hex() + " cannot be read as a commit"):
        GIT1.references(0, A, COMMIT, text)


@pytest.mark.parametrize("rest", [b"\n", b"\ntype toast\n", b"\ntype commit\ntagger x", b"\ntype tag\ntag \n"])
def test_no_tag(rest: bytes) -> None:
    text = b"object " + hexlify(A) + rest
    with pytest.raises(ValueError, match="cannot be read as a tag"):
        GIT1.own_parents(A, TAG, text)
    with pytest.raises(ValueError, match="cannot be read as a tag"):
        GIT1.references(0, A, TAG, text)


def test_all_but_blobs_may_refer() -> None:
    assert [GIT1.may_refer(0, meta) for meta in (COMMIT, TREE, BLOB, TAG)] == [True, True, False, True]


# ---- references


def test_tree_refers_to_all_but_submodules() -> None:
    text = entry(b"100644", b"a", A) + entry(b"160000", b"module", B) + entry(b"40000", b"sub", C)
    assert needs(TREE, text) == {BLOB: [A], TREE: [C]}


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        (b"100664", BLOB),
        (b"100600", BLOB),
        (b"0100644", BLOB),
        (b"120000", BLOB),
        (b"040000", TREE),
        (b"40755", TREE),
        # Git takes what is neither file, link nor folder for a submodule.
        (b"755", None),
        (b"0", None),
        (b"60000", None),
        (b"0160000", None),
    ],
)
def test_odd_modes_are_read_as_git_reads_them(mode: bytes, wanted: bytes | None) -> None:
    text = entry(mode, b".git", A) + entry(b"100644", b"..", B)
    expected = {BLOB: [B]} if wanted is None else {BLOB: [A, B]} if wanted == BLOB else {BLOB: [B], TREE: [A]}
    assert needs(TREE, text) == expected


# ---- how a tree differs from its base


def changes(meta: bytes, text: bytes, base: bytes, base_meta: bytes | None = None) -> Changes | None:
    return GIT1.changes(Record(0, A, meta, text), Record(0, B, base_meta or meta, base))


def test_a_tree_with_other_names_or_modes_and_another_object_are_read_whole() -> None:
    before = entry(b"100644", b"a", A) + entry(b"100644", b"b", B)
    others = [
        before + entry(b"100644", b"c", A),
        entry(b"100644", b"x", A) + entry(b"100644", b"b", B),
        entry(b"100755", b"a", A) + entry(b"100644", b"b", B),
        entry(b"40000", b"ab", A) + entry(b"100644", b"b", B),
    ]
    assert [changes(TREE, each, before) for each in others] == [None] * 4
    assert changes(COMMIT, before, before) is None
    assert changes(TREE, before, before, BLOB) is None


@given(st.data())
def test_changes_are_the_difference_of_the_references(data: st.DataObject) -> None:
    ids = st.binary(min_size=20, max_size=20).map(lambda key: b"\0" + key[1:-1] + b" ")
    modes = st.sampled_from([b"100644", b"40000", b"160000", b"120000"])
    names = data.draw(st.lists(st.tuples(modes, st.sampled_from([b"a", b"40000 b", b"c c", b"d"])), max_size=5))
    keys = [data.draw(st.tuples(ids, ids)) for _ in names]
    old = b"".join(entry(*name, key[0]) for name, key in zip(names, keys, strict=True))
    new = b"".join(entry(*name, key[1]) for name, key in zip(names, keys, strict=True))
    found = changes(TREE, new, old)
    assert found is not None
    for wanted in (BLOB, TREE):
        now, before = ({key for _, meta, keys in each if meta == wanted for key in keys} for each in found)
        assert {*needs(TREE, new).get(wanted, ())} - {*needs(TREE, old).get(wanted, ())} <= now
        assert now <= {*needs(TREE, new).get(wanted, ())}
        assert before <= {*needs(TREE, old).get(wanted, ())}


@pytest.mark.parametrize(
    "text",
    [
        b"x",
        entry(b"100644", b"a", A)[:-1],
        entry(b"100644", b"a", A) + b"\0",
        entry(b"100844", b"a", A),
        entry(b"1040000", b"a", A),  # Git keeps the lower bits: a folder to git, which nobody would have proved.
        entry(b"", b"a", A),
        entry(b"100644", b"", A),
        b"100644a\0" + A,
        entry(b"100644", b"a", A) + b"100644 no end",
    ],
)
def test_no_tree(text: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read as a tree"):
        GIT1.references(0, A, TREE, text)
