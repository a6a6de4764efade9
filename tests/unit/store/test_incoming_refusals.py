"""store.incoming, store.proof: what is refused, by what name, also for the type of what an object refers to.

store.incoming, store.parts: a push is charged as it is done, and decodes large records one at a time."""

from __future__ import annotations

import threading
from binascii import hexlify
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from builders import GIT, KINDS, MAIN, SETTINGS, History, Repeatable, check_whole, locate, push, upload
from calls import calls_of
from incoming_uploads import FILE, raw, receive, refused, send
from memory_transport import MemoryTransport
from twins import IN_PYTHON

from smartserver.errors import (
    Cancelled,
    CorruptRecord,
    LimitExceeded,
    MissingBase,
    MissingParents,
    MissingReference,
    NoSuchRepository,
    WrongParents,
    WrongTip,
)
from smartserver.records import delta, limits
from smartserver.records.delta import compress
from smartserver.records.hunks import Buffer
from smartserver.records.limits import BYTES_OF_RECORD, BYTES_OF_SEGMENT
from smartserver.records.model import Parent
from smartserver.records.segment import encode_graph
from smartserver.records.varint import encode
from smartserver.store import allowance as allowances
from smartserver.store import incoming, known_records, parts
from smartserver.store.allowance import Allowance
from smartserver.store.known_records import KnownRecords, RecentRecords
from smartserver.store.repository import PackRepository
from smartserver.store.upload import Upload
from smartserver.vcs.git import fsck as fsck_git
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


def begin(allowance: Allowance, *, graph_first: bool = False) -> Upload:
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    transaction = repository.begin(allowance=allowance)
    transaction.create(GIT, KINDS, SETTINGS)
    return repository.receive(transaction, graph_first=graph_first)


def zeros(files: int, size: int) -> tuple[History, list[bytes]]:
    history = History()
    return history, [history.commit({f"file{number}": bytes(size + number) for number in range(files)}, [])]


def test_zeros_are_decoded_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowances, "DECODED", 1 << 20)
    history, line = zeros(20, 200_000)
    body, allowance = history.body(line), Allowance()
    allowance.came(len(body))
    sent = begin(allowance)
    with pytest.raises(LimitExceeded, match="decoded bytes of one request"):
        sent.write(body)
    sent.abandon()
    most = (1 << 20) + allowances.DECODED_OF_BYTE * len(body)
    assert most < allowance.decoded < most + 210_000


def test_a_base_that_was_not_seen_lately_is_charged_with_all_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    line: list[bytes] = []
    for number in range(6):
        line.append(history.commit({"file": Repeatable(7)(50_000) + b"%d" % number}, line[-1:]))
    charged: list[int] = []
    for kept in (True, False):
        allowance = Allowance()
        if not kept:  # In Python, and natively.
            monkeypatch.setattr(known_records, "RecentRecords", lambda: RecentRecords(0))
            monkeypatch.setattr(incoming, "TEXT_BYTES", 0)
        sent = begin(allowance)
        sent.write(history.body(line))
        sent.abandon()
        charged.append(allowance.decoded)
    seen, unseen = charged
    assert 6 * 50_000 < seen < 7 * 50_000
    assert unseen > (1 + 2 + 3 + 4 + 5 + 6) * 50_000


@IN_PYTHON
def test_a_push_ends_at_the_next_record_once_its_client_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    history, line = zeros(20, 1000)
    allowance = Allowance()
    sent = begin(allowance)
    decoded: list[int] = []

    def noted(encoding: int, frame: memoryview, length: int, base: bytes) -> bytes:
        decoded.append(length)
        allowance.cancelled = len(decoded) == 3
        return delta.decompress(encoding, frame, length, base)

    monkeypatch.setattr(incoming, "decompress", noted)
    with pytest.raises(Cancelled):
        sent.write(history.body(line))
    sent.abandon()
    assert len(decoded) == 3


@pytest.mark.long
def test_the_graph_of_a_client_that_is_gone_is_read_no_further() -> None:
    history = History()
    line = history.line(3000)
    allowance = Allowance()
    sent = begin(allowance, graph_first=True)
    allowance.cancelled = True
    with pytest.raises(Cancelled):
        sent.write(history.body(line, graph_first=True))
    assert sent.graph() is None
    sent.abandon()


@IN_PYTHON
def test_a_folder_is_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "MAX_REFERRING", 300)
    history, line = zeros(20, 400)
    sent = begin(Allowance())
    with pytest.raises(LimitExceeded, match=f"too many {limits.BYTES_OF_REFERRING}: .*, at most 300 are allowed"):
        sent.write(history.body(line))
    sent.abandon()


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text is kept, as none of a large record is."""
    monkeypatch.setattr(known_records, "RecentRecords", lambda: RecentRecords(0))


def read_by_git(name: str, text: bytes, allowance: Allowance, *, stored: bool = False) -> None:
    """Push a file that git itself reads. `stored`: the repository has it already under another name."""
    history = History()
    line = [history.commit({"file": text}, [])] if stored else []
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    if stored:
        push(repository, history, line, {MAIN: line[0]})
    line.append(history.commit({name: text}, line))
    transaction = repository.begin(allowance=allowance)
    if not stored:
        transaction.create(GIT, KINDS, SETTINGS)
    sent = repository.receive(transaction)
    try:
        sent.write(history.body(line[-1:]))
    finally:
        sent.abandon()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("name", "limit"), [(".gitmodules", "MAX_GITMODULES"), (".gitattributes", "MAX_GITATTRIBUTES")]
)
def test_a_file_for_git_that_is_too_large_is_refused_undecoded(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: str, stored: bool
) -> None:
    text = b"#\n" * 25_000
    monkeypatch.setattr(fsck_git, limit, len(text) - 1)
    reads = calls_of(monkeypatch, KnownRecords, "read")
    allowance = Allowance()
    with pytest.raises(CorruptRecord, match=f"Large: {name} has 50000 bytes, expected no more than 49999"):
        read_by_git(name, text, allowance, stored=stored)
    assert reads == []
    assert allowance.decoded < len(text) + 5000


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", [".gitmodules", ".gitattributes"])
def test_a_file_for_git_that_is_decoded_again_is_charged_again(name: str, stored: bool) -> None:
    text = b"#\n" * 25_000
    plain, allowance = Allowance(), Allowance()
    read_by_git("file", text, plain)
    read_by_git(name, text, allowance, stored=stored)
    first = 0 if stored else len(text)
    assert first + len(text) <= allowance.decoded < first + len(text) + 5000
    assert plain.decoded < len(text) + 5000


def test_the_settings_of_a_file_for_git_are_charged() -> None:
    allowance = Allowance()
    text = b'[submodule "x"]\n' + b"a\n" * 10_000
    read_by_git(".gitmodules", text, allowance)
    assert 10_000 < allowance.steps < 11_000


PATIENCE = 60
LARGE = 1 << 20


class Turn:
    """Stands for the lock; tells when somebody asks for it."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.count = 0
        self._lock = threading.Lock()
        self._waiting: set[int] = set()

    def acquire(self, timeout: float = -1) -> bool:
        here = threading.get_ident()
        if here not in self._waiting:
            self._waiting.add(here)
            self.count += 1
            self.asked.release()
        if not self._lock.acquire(timeout=timeout):
            return False
        self._waiting.discard(here)
        return True

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Turn:
    made = Turn()
    monkeypatch.setattr(parts, "_turn", made)
    monkeypatch.setattr(parts, "ALONE", LARGE)
    return made


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that were decoded."""
    lengths: list[int] = []

    def decompress(encoding: int, frame: memoryview, length: int, base: bytes) -> bytes:
        lengths.append(length)
        return delta.decompress(encoding, frame, length, base)

    def decompress_parts(
        encoding: int, frame: Iterable[Buffer], length: int, base: Iterable[Buffer] = ()
    ) -> Iterator[Buffer]:
        lengths.append(length)
        return delta.decompress_parts(encoding, frame, length, base)

    monkeypatch.setattr(incoming, "decompress", decompress)
    monkeypatch.setattr(incoming, "decompress_parts", decompress_parts)
    return lengths


def send_files(*sizes: int) -> None:
    """A push of a file that has these sizes one after the other, each version a delta on the one before."""
    history = History()
    line: list[bytes] = []
    for number, size in enumerate(sizes):
        line.append(history.commit({"file": bytes(size - 8) + b"%8d" % number}, line[-1:]))
    sent = upload(PackRepository(MemoryTransport(), "project", randomness=Repeatable()), history.body(line), len(line))
    assert sent.entry is not None
    sent.abandon()


@IN_PYTHON
def test_who_decodes_one_is_waited_for(turn: Turn, decoded: list[int]) -> None:
    with ThreadPoolExecutor(2) as threads:
        waiting: list[Future[None]] = []
        with turn:
            assert turn.asked.acquire(timeout=PATIENCE)
            for _ in range(2):
                waiting.append(threads.submit(send_files, LARGE + 1))
                assert turn.asked.acquire(timeout=PATIENCE)
            assert not [length for length in decoded if length > LARGE]
        for each in waiting:
            each.result(PATIENCE)
    assert [length for length in decoded if length > LARGE] == [LARGE + 1] * 2


def test_smaller_ones_wait_for_nobody(turn: Turn) -> None:
    """However long the chain is that they end."""
    with turn:
        send_files(LARGE)
        send_files(*range(LARGE // 8, LARGE // 8 + 40))
    assert turn.count == 1


@IN_PYTHON
def test_a_base_counts(turn: Turn) -> None:
    send_files(LARGE // 2, LARGE // 2 + 1)
    assert turn.count == 1
    send_files(LARGE // 2, LARGE // 2)
    assert turn.count == 1


@pytest.mark.parametrize("size", [LARGE, LARGE + 1])
def test_a_file_for_git_is_read_in_its_turn(turn: Turn, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """It is decoded a second time, and also where the repository has it under another name."""
    monkeypatch.setattr(known_records, "RecentRecords", lambda: RecentRecords(0))
    history = History()
    text = (b"#\n" * size)[:size]
    first = history.commit({".gitattributes": text}, [])
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    push(repository, history, [first], {MAIN: first})
    assert turn.count == (2 if size > LARGE else 0)
    second = history.commit({"a": b"", "b": text}, [first])
    push(repository, history, [second], {MAIN: second})
    third = history.commit({"a": b"", "b": b"", ".gitattributes": text}, [second])
    push(repository, history, [third], {MAIN: third})
    assert turn.count == (3 if size > LARGE else 0)


def test_what_is_refused_lets_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ALONE", 100)
    history = History()
    (tip,) = history.line(1)
    segment = bytearray(history.segment(tip))
    segment[-3] ^= 255
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    with pytest.raises(CorruptRecord):
        upload(repository, bytes(segment), 1)
    push(repository, history, [tip], {MAIN: tip})
    assert repository.snapshot().state.refs()[MAIN][0].id == tip


def test_who_waits_for_a_turn_and_is_gone_waits_no_longer(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LOOK", 0.001)
    allowance = Allowance()
    allowance.cancelled = True
    with turn, pytest.raises(Cancelled), parts.turn(1 << 20, LARGE + 1, lambda: 0, allowance):
        pass
    assert turn.count == 2
