"""vcs.git.format: what git's objects say of each other, read from their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.vcs.git.format import FILE, FOLDER, FORMATS, LINK, MAX_LAST, SUBMODULE, canonical_mode, entry_type

A, B = "a1" * 20, "b2" * 20
SHA1 = FORMATS["sha1"]


@pytest.mark.parametrize(
    ("mode", "canonical", "kind"),
    [
        (b"100644", 0o100644, FILE),
        (b"100664", 0o100644, FILE),
        (b"100600", 0o100644, FILE),
        (b"100755", 0o100755, FILE),
        (b"100711", 0o100755, FILE),
        (b"120000", 0o120000, LINK),
        (b"120777", 0o120000, LINK),
        (b"40000", 0o40000, FOLDER),
        (b"040000", 0o40000, FOLDER),
        (b"40755", 0o40000, FOLDER),
        (b"160000", 0o160000, SUBMODULE),
        (b"0", 0o160000, SUBMODULE),
    ],
)
def test_modes_are_what_git_takes_them_for(mode: bytes, canonical: int, kind: int) -> None:
    assert canonical_mode(mode) == canonical
    assert entry_type(mode) == kind


names = st.binary(min_size=1, max_size=9).filter(lambda name: b"\0" not in name)
modes = st.sampled_from([b"40000", b"040000", b"100644", b"100755", b"120000", b"160000"])


@given(st.sampled_from(["sha1", "sha256"]), st.data())
def test_a_tree_comes_back_whatever_its_names_and_keys(name: str, data: st.DataObject) -> None:
    form = FORMATS[name]
    keys = st.binary(min_size=form.id_bytes, max_size=form.id_bytes)
    entries = data.draw(st.lists(st.tuples(modes, names, keys), max_size=6))
    text = b"".join([b"%b %b\0%b" % entry for entry in entries])
    assert form.tree(b"", text) == entries
    if text:
        with pytest.raises(ValueError, match="ab cannot be read as a tree"):
            form.tree(b"\xab", text[:-1])


@given(st.lists(st.tuples(modes, names), min_size=1, max_size=6), st.data())
def test_what_changed_in_a_tree_is_its_entries_with_another_object(
    heads: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    keys = st.lists(st.sampled_from([bytes(20), b"\0" * 19 + b"\1", b" \0" * 10, b"k" * 20]), min_size=6, max_size=6)
    before, now = data.draw(keys), data.draw(keys)
    old, new = (
        b"".join([b"%b %b\0%b" % (*head, key) for head, key in zip(heads, keys, strict=False)])
        for keys in (before, now)
    )
    expected = [(*head, n, b) for head, n, b in zip(heads, now, before, strict=False) if n != b]
    assert SHA1.changed(new, old) == expected
    renamed = [(heads[0][0], heads[0][1][:-1] + (b"b" if heads[0][1].endswith(b"a") else b"a")), *heads[1:]]
    other = b"".join([b"%b %b\0%b" % (*head, key) for head, key in zip(renamed, before, strict=False)])
    assert SHA1.changed(new, other) is None
    assert SHA1.changed(new + b"40000 z\0" + bytes(20), old) is None


def test_a_tree_is_read_once_for_all_that_look_at_it() -> None:
    text = b"40000 a\0" + bytes(20)
    assert SHA1.tree(b"", text) is SHA1.tree(b"", text)
    assert SHA1.changed(text, text) is SHA1.changed(text, text) == []
    large = b"40000 %b\0" % (b"a" * MAX_LAST) + bytes(20)
    assert SHA1.tree(b"", large) is not SHA1.tree(b"", large)


def test_a_commit_names_its_tree_and_parents() -> None:
    text = f"tree {A}\nparent {B}\nparent {A}\nauthor x\ncommitter y\nparent {A}\n\nparent {A}\n".encode()
    assert SHA1.commit(b"", text) == (bytes.fromhex(A), (bytes.fromhex(B), bytes.fromhex(A)))
    assert SHA1.commit(b"", f"tree {A}\n\n".encode()) == (bytes.fromhex(A), ())
    for wrong in ("author x\n\n", f"tree {A}a1\n\n", f"tree {A}\nparent {B[2:]}\n\n"):
        with pytest.raises(ValueError, match="ab cannot be read as a commit"):
            SHA1.commit(b"\xab", wrong.encode())


@pytest.mark.parametrize("name", [b"commit", b"tree", b"blob", b"tag"])
def test_a_tag_names_its_target(name: bytes) -> None:
    text = b"object %b\ntype %b\ntag v1.0.0\n\n" % (A.encode(), name)
    assert SHA1.tag(b"", text) == (bytes.fromhex(A), name)


@pytest.mark.parametrize("text", ["", "object aa", f"type blob\nobject {A}\n", f"object {A}\ntype bolb\ntag x\n\n"])
def test_a_tag_without_a_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ab cannot be read as a tag"):
        SHA1.tag(b"\xab", text.encode())
