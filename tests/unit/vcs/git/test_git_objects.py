"""What git's objects say of each other, read from their bytes."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.vcs.git.objects import (
    BLOB,
    COMMIT,
    SHORT,
    TAG,
    TREE,
    TreeEntry,
    canonical_mode,
    commit_links,
    mode_type,
    parse_tree,
    scratch,
    tag_target,
)

A, B = "a1" * 20, "b2" * 20


@pytest.mark.parametrize(
    ("mode", "canonical", "kind"),
    [
        (0o100644, 0o100644, BLOB),
        (0o100664, 0o100644, BLOB),
        (0o100600, 0o100644, BLOB),
        (0o100755, 0o100755, BLOB),
        (0o100711, 0o100755, BLOB),
        (0o120000, 0o120000, BLOB),
        (0o120777, 0o120000, BLOB),
        (0o40000, 0o40000, TREE),
        (0o40755, 0o40000, TREE),
        (0o160000, 0o160000, 0),
        (0, 0o160000, 0),
    ],
)
def test_modes_are_what_git_takes_them_for(mode: int, canonical: int, kind: int) -> None:
    assert canonical_mode(mode) == canonical
    assert mode_type(canonical) == kind


names = st.binary(min_size=1, max_size=9).filter(lambda name: b"\0" not in name)
modes = st.sampled_from([0o40000, 0o100644, 0o100755, 0o120000, 0o160000])


@given(st.sampled_from([20, 32]), st.data())
def test_a_tree_comes_back_whatever_its_names_and_keys(width: int, data: st.DataObject) -> None:
    entry = st.builds(TreeEntry, names, modes, st.binary(min_size=width, max_size=width))
    entries = data.draw(st.lists(entry, max_size=6))
    text = b"".join([b"%o %s\0%s" % (mode, name, key) for name, mode, key in entries])
    assert parse_tree(text, width) == entries
    if text:
        with pytest.raises(ValueError, match=r"ends within an entry|not found"):
            parse_tree(text[:-1], width)


def test_a_commit_names_its_tree_and_parents() -> None:
    text = f"tree {A}\nparent {B}\nparent {A}\nauthor x\ncommitter y\nparent {A}\n\nparent {A}\n".encode()
    assert commit_links(text) == (bytes.fromhex(A), (bytes.fromhex(B), bytes.fromhex(A)))
    assert commit_links(f"tree {A}\n\n".encode()) == (bytes.fromhex(A), ())
    with pytest.raises(ValueError, match="a commit without a tree"):
        commit_links(b"author x\n\n")


@pytest.mark.parametrize(("name", "kind"), [("commit", COMMIT), ("tree", TREE), ("blob", BLOB), ("tag", TAG)])
def test_a_tag_names_its_target(name: str, kind: int) -> None:
    assert tag_target(f"object {A}\ntype {name}\ntag x\n".encode()) == (bytes.fromhex(A), kind)


@pytest.mark.parametrize("text", [b"", b"object aa", f"type blob\nobject {A}\n".encode()])
def test_a_tag_without_a_target_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="a tag without an object"):
        tag_target(text)
    with pytest.raises(ValueError, match="unknown type"):
        tag_target(f"object {A}\ntype bolb\n".encode())


@pytest.mark.parametrize("size", [0, SHORT, SHORT + 1])
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_file_without_a_name_is_read_from_its_start(
    size: int, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    content = b"?" * size
    with scratch(content) as file:
        assert subprocess.run(["cat"], stdin=file, capture_output=True, check=True).stdout == content
        file.write(b"more")
        file.seek(size)
        assert file.read() == b"more"
    assert file.closed
