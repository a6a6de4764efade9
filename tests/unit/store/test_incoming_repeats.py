"""store.incoming: records that are repeated, byte for byte, in another revision of one upload."""

from __future__ import annotations

import pytest
from builders import KINDS, TEXTS, History, Repeatable, upload
from memory_transport import MemoryTransport
from twins import FORMS

from smartserver.errors import CorruptRecord, MissingReference
from smartserver.meters import HASHED, here
from smartserver.records.check import make_check
from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Parent
from smartserver.records.segment import encode_segment
from smartserver.store.repository import PackRepository
from transports.errors import CodedError

pytestmark = pytest.mark.usefixtures("proving")

LINES = [b"%d: a line that stays\n" % number for number in range(40)]
OLD, NEW = b"".join(LINES), b"".join([*LINES[:7], b"a new one\n", *LINES[7:]])


class Twins:
    """A commit and two children that make the same change."""

    def __init__(self) -> None:
        self.history = History()
        self.first = self.history.commit({"src/file.txt": OLD, "README": b"a project\n"})
        files = {"src/file.txt": NEW, "README": b"a project\n"}
        self.twins = [self.history.commit(files, (self.first,), message) for message in ("one", "two")]
        self.repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())

    def send(self, *segments: bytes) -> None:
        """Send the first commit, its first child, then these segments."""
        sent = [self.history.segment(self.first), self.history.segment(self.twins[0]), *segments]
        upload(self.repository, b"".join(sent), len(sent)).abandon()

    def refused(self, *segments: bytes) -> CodedError:
        """Return the error that these segments cause."""
        with pytest.raises(CodedError) as caught:
            self.send(*segments)
        return caught.value

    def second(self, *, based: bool = True, without: bytes = b"", damaged: bytes = b"") -> bytes:
        """Return the second child's segment, with the first's records; one may be left out, or damaged near its end."""
        tip = self.twins[1]
        entries, bodies = [], []
        for key, path in self.history.introduced[tip]:
            if key == without:
                continue
            record = self.history.objects[key]
            base = self.before(path) if based else b""
            encoding, frame = compress(record.text, self.history.objects[base].text if base else b"")
            if key == damaged:
                frame = frame[:-4] + bytes((frame[-4] ^ 255,)) + frame[-3:]
            tag = BaseTag.FULL_KEY if base else BaseTag.NONE
            entries.append(Entry(0, encoding, key, record.meta, tag, base, len(record.text), len(frame), b""))
            bodies.append(frame)
        return encode_segment(tip, [Parent(self.first)], entries, bodies, KINDS)

    def before(self, path: bytes) -> bytes:
        """Return the record of the first commit at a path, or the commit itself if there is none."""
        return next((key for key, each in self.history.introduced[self.first] if path and each == path), self.first)


@pytest.fixture
def twins() -> Twins:
    return Twins()


@pytest.mark.parametrize("proving", FORMS[:1], indirect=True)
@pytest.mark.parametrize(("based", "hashed"), [(True, 0), (False, 1)])
def test_a_copy_of_a_file_is_not_looked_at_again(twins: Twins, based: bool, hashed: int) -> None:
    """The native prover does not decode the copy again, unless it has another base."""
    count = sum(len(twins.history.introduced[each]) for each in (twins.first, *twins.twins))
    before = here.tally[HASHED]
    twins.send(twins.history.segment(twins.twins[1]) if based else twins.second(based=False))
    assert here.tally[HASHED] - before == count - 1 + hashed


def test_a_damaged_copy_is_refused(twins: Twins) -> None:
    for key, _ in twins.history.introduced[twins.twins[1]]:
        error = twins.refused(twins.second(damaged=key))
        assert isinstance(error, CorruptRecord)
        assert error.key == key


def test_a_copied_tree_still_needs_what_it_refers_to(twins: Twins) -> None:
    """The first child introduced the file, but is no ancestor of the second."""
    file = twins.history.key_at(twins.twins[1], "src/file.txt")
    error = twins.refused(twins.second(without=file))
    assert isinstance(error, MissingReference)
    assert (error.revision, error.missing) == (twins.twins[1], file)


def test_a_repeat_whose_check_is_another_is_refused() -> None:
    """If a key proves nothing of its text, the check in the header is compared in every copy."""
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    transaction = repository.begin()
    transaction.create("texts", TEXTS, {})
    sent = repository.receive(transaction)
    encoding, frame = compress(OLD)
    right = make_check(TEXTS[0], b"k", b"", OLD)
    for revision, parents, check in ((b"a", [], right), (b"b", [Parent(b"a")], right[:-1] + b"?")):
        entry = Entry(0, encoding, b"k", b"", BaseTag.NONE, b"", len(OLD), len(frame), check)
        segment = encode_segment(revision, parents, [entry], [frame], TEXTS)
        if check == right:
            sent.write(segment)
    with pytest.raises(CorruptRecord):
        sent.write(segment)
    sent.abandon()
