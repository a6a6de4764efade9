"""store.incoming, store.proof: what is refused, by what name, also for the type of what an object refers to."""

from __future__ import annotations

from binascii import hexlify

import pytest
from builders import MAIN, History, check_whole, locate, push
from calls import calls_of
from incoming_uploads import FILE, raw, receive, refused, send
from twins import IN_PYTHON

from smartserver.errors import (
    CorruptRecord,
    LimitExceeded,
    MissingBase,
    MissingParents,
    MissingReference,
    NoSuchRepository,
    WrongParents,
    WrongTip,
)
from smartserver.records.delta import compress
from smartserver.records.limits import BYTES_OF_RECORD, BYTES_OF_SEGMENT
from smartserver.records.model import Parent
from smartserver.records.segment import encode_graph
from smartserver.records.varint import encode
from smartserver.store import incoming, parts
from smartserver.store.repository import PackRepository
from smartserver.vcs.git.format import BLOB, COMMIT, TAG, TREE
from transports.errors import CodedError

pytestmark = pytest.mark.usefixtures("proving")


def test_no_repository_and_none_made(repository: PackRepository) -> None:
    with pytest.raises(NoSuchRepository):
        repository.receive(repository.begin())


def test_a_missing_parent(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    error = refused(MissingParents, repository, history.segment(line[0]), history.segment(line[2]))
    assert error.revisions == [line[1]]


def test_a_revision_sent_twice(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    error = refused(CorruptRecord, repository, history.segment(tip), history.segment(tip))
    assert "sent twice" in error.why


def test_wrong_parents(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    before = [history.segment(line[0]), history.segment(line[1])]
    for parents in ([], [Parent(line[0])], [Parent(line[1]), Parent(line[0])], [Parent(line[1], absent=True)]):
        error = refused(WrongParents, repository, *before, raw(history, line[2], parents=parents))
        assert error.revision == line[2]


def test_without_its_own_record(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    keys = [key for key, _path in history.introduced[tip]]
    refused(CorruptRecord, repository, raw(history, tip, keys[1:]))
    refused(CorruptRecord, repository, raw(history, tip, []))


def test_a_reference_to_another_branchs_record(repository: PackRepository, history: History) -> None:
    root = history.commit({"a": b"a"})
    side = history.commit({"a": b"a", "b": b"only on the side"}, (root,))
    push(repository, history, [root, side], {MAIN: side})
    child = history.commit({"a": b"a", "c": b"only on the side"}, (root,))
    blob = history.key_at(side, "b")
    keys = [key for key, _path in history.introduced[child]]
    assert blob in keys
    error = refused(MissingReference, repository, raw(history, child, [key for key in keys if key != blob]))
    assert error.missing == blob
    push(repository, history, [child], {b"refs/heads/child": child})
    assert len(locate(check_whole(repository, history), 0, blob)) == 2


def test_a_base_of_another_branch(repository: PackRepository, history: History) -> None:
    root = history.commit({"a": b"a line of text\n" * 20})
    side = history.commit({"a": b"a line of text\n" * 20 + b"side\n"}, (root,))
    push(repository, history, [root, side], {MAIN: side})
    child = history.commit({"a": b"a line of text\n" * 20 + b"child\n"}, (root,))
    grandchild = history.commit({"a": b"a line of text\n" * 20 + b"grandchild\n"}, (child,))
    blob, foreign = history.key_at(child, "a"), history.key_at(side, "a")
    unknown = b"u" * 20
    late = history.key_at(grandchild, "a")
    error = refused(
        MissingBase,
        repository,
        raw(history, child, bases={blob: foreign}),
        raw(history, grandchild, bases={late: unknown}),
    )
    assert error.keys == [foreign, unknown]
    push(repository, history, [child, grandchild], {b"refs/heads/child": grandchild})
    check_whole(repository, history)


def test_after_a_missing_base_what_rests_on_its_record_is_not_missing(
    repository: PackRepository, history: History
) -> None:
    line = history.line(3)
    blobs = [history.key_at(each, FILE) for each in line]
    error = refused(
        MissingBase,
        repository,
        raw(history, line[0], bases={blobs[0]: b"u" * 20}),
        raw(history, line[1], bases={blobs[1]: blobs[0]}),
        raw(history, line[2], bases={blobs[2]: blobs[1]}),
    )
    assert error.keys == [b"u" * 20]


def test_missing_bases_are_named_up_to_a_limit(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "KEYS_NAMED", 2)
    line = history.line(4)
    segments = []
    for number, each in enumerate(line):
        blob = history.key_at(each, FILE)
        segments.append(raw(history, each, bases={blob: b"%020d" % number}))
    error = refused(MissingBase, repository, *segments)
    assert error.keys == [b"%020d" % 0, b"%020d" % 1]


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_text_that_is_not_what_its_key_says(
    repository: PackRepository, history: History, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tip,) = history.line(1)
    blob = history.key_at(tip, FILE)
    length = len(history.objects[blob].text)
    wrong = raw(history, tip, frames_of={blob: compress(b"x" * length)[1]})
    whole = calls_of(monkeypatch, incoming, "decompress", lambda encoding, frame, size, base: size)
    if in_parts:  # As a large one.
        monkeypatch.setattr(parts, "ALONE", 0)
    error = refused(CorruptRecord, repository, wrong)
    assert (length in whole) is not in_parts
    assert (error.revision, error.key) == (tip, blob)
    assert "hashes to" in error.why


def test_every_flipped_byte_of_a_body_is_refused(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    body = history.body(line)
    for at in range(len(body)):
        flipped = bytearray(body)
        flipped[at] ^= 0x41
        sent = receive(repository)
        with pytest.raises(CodedError):
            send(sent, bytes(flipped), 2, len(body))
        sent.abandon()


def test_counts_that_do_not_agree(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    body = history.body([tip])
    for segments, size in ((2, len(body)), (1, len(body) + 1), (0, 0)):
        sent = receive(repository)
        sent.write(body)
        with pytest.raises(CorruptRecord, match=f"its end states {segments} and {size}"):
            sent.finish(segments, size)
        sent.abandon()


def test_segments_that_are_not_as_announced(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    announced = [history.announced(each) for each in line]
    segments = [history.segment(each) for each in line]
    cases = [
        (announced[:2], segments),
        (announced, segments[:2]),
        ([announced[0], announced[2]], segments[:2]),
        ([announced[0], announced[1]._replace(parents=(Parent(line[0], absent=True),))], segments[:2]),
        ([], segments[:1]),
    ]
    for graph, content in cases:
        sent = receive(repository, graph_first=True)
        body = encode_graph(graph) + b"".join(content)
        with pytest.raises(CorruptRecord, match="announced"):
            send(sent, body, len(content), len(body))
        sent.abandon()


def test_a_segment_over_the_limit_is_refused_by_its_length(repository: PackRepository) -> None:
    sent = receive(repository)
    with pytest.raises(LimitExceeded) as raised:
        sent.write(encode(1 << 40))
    assert raised.value.what == BYTES_OF_SEGMENT


@IN_PYTHON
def test_a_record_over_the_limit_is_refused_by_its_length(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = history.commit({"film": b"x" * 5000})
    monkeypatch.setattr(incoming, "MAX_TAKEN", 4000)  # The segment is smaller: it is compressed.
    error = refused(LimitExceeded, repository, history.segment(tip))
    assert (error.what, error.value, error.limit) == (BYTES_OF_RECORD, 5000, 4000)


WHO = b"author A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm\n"
EMPTY_TREE = b""


def commit_of(history: History, tree: bytes, *parents: bytes) -> bytes:
    lines = b"".join(b"parent %s\n" % hexlify(parent) for parent in parents)
    return history.add(COMMIT, b"tree %s\n%b" % (hexlify(tree), lines) + WHO)


def tag_of(history: History, target: bytes, kind: bytes) -> bytes:
    return history.add(TAG, b"object %s\ntype %b\ntag v1\ntagger A <a@b> 1 +0000\n\nm\n" % (hexlify(target), kind))


def parents_of(*parents: bytes) -> list[Parent]:
    return [Parent(parent) for parent in parents]


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
    error = refused(CorruptRecord, repository, *before, raw(history, bad, [bad, tree], parents_of(root)))
    assert (error.key, error.why) == (tree, f"it refers to {target.hex()} as {wanted}, which is {found}")


def test_an_entry_whose_type_its_base_knows_otherwise(repository: PackRepository, history: History) -> None:
    """The base refers to the same blob, as a file."""
    root = history.commit({"a": b"text"})
    push(repository, history, [root], {MAIN: root})
    old = next(key for key, path in history.introduced[root] if history.objects[key].meta == TREE)
    tree = history.add(TREE, b"40000 a\0" + history.key_at(root, "a"))
    bad = commit_of(history, tree, root)
    error = refused(CorruptRecord, repository, raw(history, bad, [bad, tree], parents_of(root), {tree: old}))
    assert "as a tree, which is a blob" in error.why


def test_a_blob_that_looks_like_a_tree_grants_nothing(repository: PackRepository, history: History) -> None:
    """A tree that rests on it must be proved as if it rested on nothing."""
    missing = bytes(range(1, 21))
    fake = history.add(BLOB, b"100644 a\0" + missing)
    root = history.commit({"x": history.objects[fake].text})
    push(repository, history, [root], {MAIN: root})
    tree = history.add(TREE, b"100644 b\0" + missing)
    bad = commit_of(history, tree, root)
    error = refused(CodedError, repository, raw(history, bad, [bad, tree], parents_of(root), {tree: fake}))
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
    error = refused(CorruptRecord, repository, *before, raw(history, bad, [bad, tree], parents_of(tag)))
    assert (error.key, error.why) == (bad, f"it refers to {tag.hex()} as a commit, which is a tag")


@pytest.mark.parametrize(("said", "found"), [(b"tag", "a commit"), (b"tree", "a commit"), (b"blob", "a commit")])
def test_a_tag_that_says_another_type(repository: PackRepository, history: History, said: bytes, found: str) -> None:
    root = history.commit({"a": b"text"})
    bad = tag_of(history, root, said)
    parents = parents_of(root) if said == b"tag" else []
    keys = [bad] if said == b"tag" else [bad, root, *(key for key, _ in history.introduced[root])]
    error = refused(
        CorruptRecord, repository, history.segment(root), raw(history, bad, list(dict.fromkeys(keys)), parents)
    )
    assert error.why == f"it refers to {root.hex()} as a {said.decode()}, which is {found}"


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
    error = refused(CorruptRecord, repository, raw(history, bad, [bad, tree, modules], []))
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
