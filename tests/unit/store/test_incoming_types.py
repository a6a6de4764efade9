"""store.incoming, store.proof: what an object refers to is of the type that it says."""

from __future__ import annotations

from binascii import hexlify

import pytest
from builders import MAIN, History, push
from incoming_uploads import raw, receive, refused, send

from smartserver.errors import CorruptRecord, WrongTip
from smartserver.records.model import Parent
from smartserver.store.repository import PackRepository
from smartserver.vcs.git.format import BLOB, COMMIT, TAG, TREE

pytestmark = pytest.mark.usefixtures("proving")

WHO = b"author A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm\n"
EMPTY_TREE = b""


def commit_of(history: History, tree: bytes, *parents: bytes) -> bytes:
    lines = b"".join(b"parent %s\n" % hexlify(parent) for parent in parents)
    return history.add(COMMIT, b"tree %s\n%b" % (hexlify(tree), lines) + WHO)


def tag_of(history: History, target: bytes, kind: bytes) -> bytes:
    return history.add(TAG, b"object %s\ntype %b\ntag v1\ntagger A <a@b> 1 +0000\n\nm\n" % (hexlify(target), kind))


def parents_of(*parents: bytes) -> list[Parent]:
    return [Parent(parent) for parent in parents]


def test_a_commit_whose_tree_is_a_blob(repository: PackRepository, history: History) -> None:
    blob = history.add(BLOB, b"text")
    bad = commit_of(history, blob)
    error = refused(repository, raw(history, bad, [bad, blob], []))
    assert isinstance(error, CorruptRecord)
    assert error.why == f"it refers to {blob.hex()} as a tree, which is a blob"


def test_a_commit_whose_tree_is_a_stored_blob(repository: PackRepository, history: History) -> None:
    """Also where the blob's type is in a header of an older pack alone."""
    root = history.commit({"a": b"text"})
    push(repository, history, [root], {MAIN: root})
    blob = history.key_at(root, "a")
    bad = commit_of(history, blob, root)
    error = refused(repository, raw(history, bad, [bad], parents_of(root)))
    assert isinstance(error, CorruptRecord)
    assert "as a tree, which is a blob" in error.why


@pytest.mark.parametrize(("mode", "wanted", "found"), [(b"40000", "a tree", "a blob"), (b"100644", "a blob", "a tree")])
@pytest.mark.parametrize("stored", [False, True])
def test_an_entry_of_the_wrong_type(
    repository: PackRepository, history: History, mode: bytes, wanted: str, found: str, stored: bool
) -> None:
    root = history.commit({"a": b"text"})
    if stored:
        push(repository, history, [root], {MAIN: root})
    blob = history.key_at(root, "a")
    target = blob if found == "a blob" else history.add(TREE, b"100644 a\0" + blob)
    tree = history.add(TREE, mode + b" x\0" + target)
    bad = commit_of(history, tree, root)
    before = [] if stored else [history.segment(root)]
    error = refused(repository, *before, raw(history, bad, [bad, tree], parents_of(root)))
    assert isinstance(error, CorruptRecord)
    assert (error.key, error.why) == (tree, f"it refers to {target.hex()} as {wanted}, which is {found}")


def test_an_entry_whose_type_its_base_knows_otherwise(repository: PackRepository, history: History) -> None:
    """The base refers to the same blob, as a file."""
    root = history.commit({"a": b"text"})
    push(repository, history, [root], {MAIN: root})
    old = next(key for key, path in history.introduced[root] if history.objects[key].meta == TREE)
    tree = history.add(TREE, b"40000 a\0" + history.key_at(root, "a"))
    bad = commit_of(history, tree, root)
    error = refused(repository, raw(history, bad, [bad, tree], parents_of(root), {tree: old}))
    assert isinstance(error, CorruptRecord)
    assert "as a tree, which is a blob" in error.why


def test_a_blob_that_looks_like_a_tree_grants_nothing(repository: PackRepository, history: History) -> None:
    """A tree that rests on it must be proved as if it rested on nothing."""
    missing = bytes(range(1, 21))
    fake = history.add(BLOB, b"100644 a\0" + missing)
    root = history.commit({"x": history.objects[fake].text})
    push(repository, history, [root], {MAIN: root})
    tree = history.add(TREE, b"100644 b\0" + missing)
    bad = commit_of(history, tree, root)
    error = refused(repository, raw(history, bad, [bad, tree], parents_of(root), {tree: fake}))
    assert missing.hex() in str(error)


@pytest.mark.parametrize("stored", [False, True])
def test_a_parent_that_is_a_tag(repository: PackRepository, history: History, stored: bool) -> None:
    root = history.commit({"a": b"text"})
    tag = history.tag(root)
    tree = history.add(TREE, EMPTY_TREE)
    bad = commit_of(history, tree, tag)
    if stored:
        push(repository, history, [root, tag], {MAIN: root, b"refs/tags/v1": tag})
    before = [] if stored else [history.segment(root), history.segment(tag)]
    error = refused(repository, *before, raw(history, bad, [bad, tree], parents_of(tag)))
    assert isinstance(error, CorruptRecord)
    assert (error.key, error.why) == (bad, f"it refers to {tag.hex()} as a commit, which is a tag")


@pytest.mark.parametrize(("said", "found"), [(b"tag", "a commit"), (b"tree", "a commit"), (b"blob", "a commit")])
def test_a_tag_that_says_another_type(repository: PackRepository, history: History, said: bytes, found: str) -> None:
    root = history.commit({"a": b"text"})
    bad = tag_of(history, root, said)
    parents = parents_of(root) if said == b"tag" else []
    keys = [bad] if said == b"tag" else [bad, root, *(key for key, _ in history.introduced[root])]
    error = refused(repository, history.segment(root), raw(history, bad, list(dict.fromkeys(keys)), parents))
    assert isinstance(error, CorruptRecord)
    assert error.why == f"it refers to {root.hex()} as a {said.decode()}, which is {found}"


def test_what_is_right_is_taken(repository: PackRepository, history: History) -> None:
    """A moved file, a merge, a tag of a tag and a tag of a tree: their types are read in headers."""
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    moved = history.commit(
        {"elsewhere/f": history.files(line[1])["src/file.txt"]}
        if "src/file.txt" in history.files(line[1])
        else {"moved": b"m"},
        (line[1],),
    )
    merge = history.commit({"a": b"merge"}, (moved, line[0]))
    tag = history.tag(history.tag(merge), "v2")
    inner = history.parents[tag][0]
    push(repository, history, [moved, merge, inner, tag], {MAIN: merge, b"refs/tags/v2": tag})


@pytest.mark.parametrize("stored", [False, True])
def test_a_branch_must_be_a_commit(repository: PackRepository, history: History, stored: bool) -> None:
    """Found at the commit where the tip came with the request, at once where it is stored."""
    root = history.commit({"a": b"text"})
    tag = history.tag(root)
    if stored:
        push(repository, history, [root, tag], {b"refs/tags/v1": tag})
    with pytest.raises(WrongTip) as caught:
        push(repository, history, [] if stored else [root, tag], {MAIN: tag})
    assert str(caught.value) == f"'refs/heads/main' must point at a commit; {tag.hex()} is a tag"
    push(repository, history, [] if stored else [root, tag], {b"refs/tags/v2": tag})


def test_faults_are_judged(repository: PackRepository, history: History) -> None:
    """The two parts of a push give each other a role: the tree comes first, then the file that git reads."""
    modules = history.add(BLOB, b'[submodule "../x"]\n\tpath = x\n')
    tree = history.add(TREE, b"100644 .gitmodules\0" + modules)
    bad = commit_of(history, tree)
    error = refused(repository, raw(history, bad, [bad, tree, modules], []))
    assert isinstance(error, CorruptRecord)
    assert error.key == modules
    assert error.why.startswith("gitmodulesName: ")


def test_lesser_faults_are_counted(repository: PackRepository, history: History) -> None:
    blob = history.add(BLOB, b"text")
    tree = history.add(TREE, b"0100644 f\0" + blob)
    odd = history.add(COMMIT, b"tree %s\nauthor A <a@b> 1 +51800\ncommitter A <a@b> 1 +0000\n\nm" % hexlify(tree))
    body = raw(history, odd, [odd, tree, blob], [])
    sent = receive(repository)
    send(sent, body, 1, len(body))
    assert sent.warnings == {"badTimezone": (1, odd), "zeroPaddedFilemode": (1, tree)}
    sent.abandon()
