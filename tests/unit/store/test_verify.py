from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
from typing import Any

import msgspec
import pytest
from builders import KINDS, MAIN, Clock, History, Repeatable, push, refs_of
from bzr_samples import FIRST, FIRST_PARENTS, SECOND, SECOND_PARENTS
from bzr_samples import KINDS as BZR_KINDS
from bzr_samples import push as push_bzr
from bzr_samples import segment as segment_of
from changes import push_each, replace
from incoming_uploads import altered
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile, CorruptRecord, MissingReference, NoSuchRepository
from smartserver.records.model import Parent, Record, Tip
from smartserver.records.segment import decode_segment
from smartserver.store import verify
from smartserver.store.blocks import seal
from smartserver.store.checkpoint import decode_checkpoint, encode_checkpoint, make_checkpoint
from smartserver.store.format import CHECKPOINTS, PACKS
from smartserver.store.index import ROW
from smartserver.store.index_build import rebuild
from smartserver.store.pack import PackReader, PackWriter
from smartserver.store.record import Change, Entry, Join, PackEntry, record_path
from smartserver.store.repack import MOST_PACKS
from smartserver.store.repository import PackRepository
from smartserver.store.state import REFS, State, encode_value, following
from smartserver.store.verify import NO_INDEX
from transports.base import BytesFile, ReadFile, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import NoSuchFile, PermissionDenied, TransportFailed

pytestmark = pytest.mark.usefixtures("proving")


def problems(repository: PackRepository) -> list[str]:
    """What a process finds that has read nothing yet."""
    return list(PackRepository(repository.folder).verify().problems)


def forge(repository: PackRepository, *segments: bytes, refs: dict[bytes, bytes]) -> None:
    """Add a pack as a writer would that checks nothing."""
    snapshot = repository.snapshot()
    storage, state = repository.folder, snapshot.state
    name = b"f" * 16
    path = f"{PACKS}/{name.hex()}"
    made = storage.create(f"{path}.pack")
    writer = PackWriter(made, state.kinds)
    records = 0
    for segment in segments:
        writer.append(segment)
        records += len(decode_segment(segment, 0, state.kinds).entries)
    length, digest = writer.finish()
    reader = PackReader(storage.open_read(f"{path}.pack"), length, "forged")
    index = rebuild(reader, snapshot.first_row)
    storage.put(f"{path}.idx", [index])
    pack = PackEntry(name, length, digest, len(index), index[-16:], len(segments), records)
    changes = tuple(Change(REFS, ref, None, encode_value((Tip(tip),))) for ref, tip in refs.items())
    tell(repository, entries=(Entry(b"r" * 16, "forger", b"", changes, pack),))


def tell(repository: PackRepository, **said: Any) -> None:
    """Append a record that says whatever it is."""

    def judge(state: State) -> tuple[bytes, State]:
        return following(state, 0, **said)

    repository.log.append(repository.log.look(), judge)


def replace_pack(repository: PackRepository, **changed: object) -> PackEntry:
    """Have the log say something else of the only pack, as a repack that checks nothing would."""
    entry = msgspec.structs.replace(repository.snapshot().state.packs[0], **changed)
    tell(repository, joins=(Join((entry.name,), entry),))
    return entry


def test_a_sound_repository(repository: PackRepository, history: History) -> None:
    line = history.line(8)
    side = history.line(3, line[2], "side")
    push(repository, history, line[:5], {MAIN: line[4]})
    push(repository, history, [*line[5:], *side], {MAIN: line[7], b"refs/heads/side": side[2]})
    seen: list[tuple[int, int]] = []
    report = repository.verify(lambda done, total: seen.append((done, total)))
    assert report.problems == ()
    assert (report.packs, report.segments) == (2, 11)
    assert report.records == sum(len(history.introduced[each]) for each in (*line, *side))
    lengths = sum(pack.entry.length for pack in repository.snapshot().packs)
    assert report.size == lengths
    assert seen[-1] == (lengths, lengths)


def test_progress_of_a_large_pack(repository: PackRepository, history: History) -> None:
    tips = [history.commit({"random": Repeatable(7)(1 << 20)}, (), f"{number}") for number in range(3)]
    tips += [history.commit({"random": Repeatable(8 + number)(1 << 20)}, (), "more") for number in range(3)]
    push(repository, history, tips, {MAIN: tips[0]})
    seen: list[tuple[int, int]] = []
    repository.verify(lambda done, total: seen.append((done, total)))
    assert len(seen) >= 5
    assert seen == sorted(seen)


def test_no_repository(repository: PackRepository, history: History) -> None:
    with pytest.raises(NoSuchRepository):
        repository.verify()
    push(repository, history, [])
    repository.delete(b"r" * 16, 0, "user")
    with pytest.raises(NoSuchRepository):
        repository.verify()


def test_a_damaged_record_and_what_lies_above_it(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(2)
    push_each(repository, history, line)
    whole = storage.get(record_path(2))
    replace(storage, record_path(2), whole[:-1])
    (problem,) = problems(repository)
    assert problem == f"{record_path(2)} is damaged at byte 28: the content does not match its check"
    storage.delete(record_path(2))
    assert problems(repository) == [
        f"{record_path(2)} is damaged at byte 0: it is missing, although a file of change 3 exists"
    ]
    for ask in (PackRepository(storage).exists, PackRepository(storage).snapshot):  # Never: there is no repository.
        with pytest.raises(CorruptFile, match="is missing"):
            ask()
    storage.put(record_path(2), [whole])
    assert problems(repository) == []


def test_what_only_a_recovery_would_read(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    """Records below the newest checkpoint, and an older checkpoint."""
    line = history.line(5)
    for number, tip in enumerate(line):
        push(repository, history, [tip], {MAIN: tip, b"refs/heads/%d" % number: tip})
        if number in (0, 3):
            make_checkpoint(storage, repository.log.look().state, repository.randomness)
    checkpoints = [f"{CHECKPOINTS}/{name}" for name in storage.list_directory(CHECKPOINTS)]
    said = encode_checkpoint(repository.log.look().state)
    older = decode_checkpoint(storage.get(checkpoints[0]), "")
    other = dataclasses.replace(older, settings={"HEAD": b"refs/heads/other"})
    for path, content, problem in (
        (record_path(3), None, f"{record_path(3)} is missing"),
        (record_path(3), b"cut", f"{record_path(3)} is damaged at byte 0: 3 bytes, too short for a record"),
        (checkpoints[0], b"cut", f"{checkpoints[0]} is damaged at byte 0: 3 bytes, too short for a checkpoint"),
        (checkpoints[1], said, f"{checkpoints[1]}: it is of another record 5"),
        (checkpoints[0], encode_checkpoint(other), f"{checkpoints[0]}: it is not what the records before it say"),
    ):
        whole = storage.get(path)
        storage.delete(path)
        if content is not None:
            storage.put(path, [content])
        assert problem in problems(repository)
        assert refs_of(PackRepository(storage)) == refs_of(repository)
        with contextlib.suppress(NoSuchFile):
            storage.delete(path)
        storage.put(path, [whole])
    assert problems(repository) == []


def test_a_ref_that_points_nowhere(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    forge(repository, refs={b"refs/heads/lost": line[1]})
    assert refs_of(repository)[b"refs/heads/lost"] == line[1]
    (problem,) = problems(repository)
    assert problem == f"log: ref b'refs/heads/lost' is at {line[1].hex()}, which is not stored"


def test_a_missing_index_stays_so_until_its_pack_is_joined(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(MOST_PACKS + 1)
    push_each(repository, history, line)
    name = repository.snapshot().packs[-1].entry.name.hex()
    storage.delete(f"{PACKS}/{name}.idx")
    again = PackRepository(storage, clock=Clock())
    for _ in range(2):
        assert again.verify().problems == (f"{PACKS}/{name}.idx: {NO_INDEX}",)
    assert again.repack_if_needed()
    assert again.verify().problems == ()


def test_a_missing_pack(repository: PackRepository, history: History, storage: MemoryTransport) -> None:
    line = history.line(4)
    push(repository, history, line[:2], {MAIN: line[1]})
    push(repository, history, line[2:], {MAIN: line[3]})
    name = repository.snapshot().packs[1].entry.name.hex()
    storage.delete(f"{PACKS}/{name}.pack")
    (problem,) = problems(repository)
    assert f"{PACKS}/{name}.pack" in problem
    storage.delete(f"{PACKS}/{name}.idx")
    report = PackRepository(storage).verify()
    (problem,) = report.problems
    assert name in problem
    assert problem.endswith("1 of 2 packs cannot be checked")
    assert report.segments == 2


def test_a_missing_first_pack(repository: PackRepository, history: History, storage: MemoryTransport) -> None:
    """The packs after it are checked all the same, with the right ancestry."""
    line = history.line(3)
    fresh = history.commit({"new": b"a text of its own\n" * 5}, (line[1],))
    push(repository, history, line[:2], {MAIN: line[1]})
    push(repository, history, [line[2], fresh], {MAIN: line[2]})
    name = repository.snapshot().packs[0].entry.name.hex()
    storage.delete(f"{PACKS}/{name}.pack")
    report = PackRepository(storage).verify()
    assert report.segments == 2
    assert f"{PACKS}/{name}.pack" in report.problems[0]
    resting = {entry.key.hex() for entry in decode_segment(history.segment(line[2]), 0, KINDS).entries if entry.base}
    resting |= {entry.key.hex() for entry in decode_segment(history.segment(fresh), 0, KINDS).entries if entry.base}
    assert resting
    assert len(report.problems) == 1 + len(resting)
    assert all(any(key in problem for key in resting) for problem in report.problems[1:])


def test_a_bad_sector(repository: PackRepository, history: History, storage: MemoryTransport) -> None:
    line = [history.commit({"a": b"text %d" % number}) for number in range(4)]
    push(repository, history, line, {MAIN: line[3]})
    index = repository.snapshot().packs[0].index
    bad = index.segment_offsets[1] + 5

    class BadFile(BytesFile):
        def read_at(self, offset: int, size: int) -> bytes:
            if offset <= bad < offset + size and offset:
                raise TransportFailed("a pack", "input/output error")
            return super().read_at(offset, size)

    class BadSector(PassingTransport):
        def open_read(self, path: str) -> ReadFile:
            return BadFile(self.inner.get(path))

    report = PackRepository(BadSector(storage)).verify()
    assert report.segments == 3
    assert "input/output error" in report.problems[0]
    assert "the hash it ends with" in report.problems[1]
    assert len(report.problems) == 2


def test_a_missing_blob(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    push(repository, history, line[:2], {MAIN: line[1]})
    blob = history.key_at(line[2], "src/file.txt")
    forge(repository, altered(history, line[2], without=blob), refs={})
    (problem,) = problems(repository)
    assert problem.startswith(f"{PACKS}/{(b'f' * 16).hex()}.pack is damaged at byte ")
    assert blob.hex() in problem
    assert line[2].hex() in problem


def test_wrong_parents(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    push(repository, history, line[:2], {MAIN: line[1]})
    orphan = altered(history, history.commit({"a": b"a"}, (line[1],)), parents=(Parent(line[1]), Parent(line[0])))
    forge(repository, orphan, refs={})
    (problem,) = problems(repository)
    assert "the parents sent with it differ from those in its own record" in problem


def test_a_parent_that_is_not_here_or_comes_later(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = history.commit({"another": b"root"})
    forge(repository, altered(history, root, parents=(Parent(line[1]),)), refs={})
    (problem,) = problems(repository)
    assert f"the parent {line[1].hex()} is in no pack before it" in problem


def test_a_revision_in_two_packs(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    forge(repository, history.segment(line[0]), refs={})
    (problem,) = problems(repository)
    assert problem.endswith(f": revision {line[0].hex()}: a later pack has it again")


def test_a_base_of_no_ancestor(repository: PackRepository, history: History) -> None:
    root = history.commit({"a": b"a line of text\n" * 9})
    side = history.commit({"a": b"a line of text\n" * 9 + b"side\n"}, (root,))
    child = history.commit({"a": b"a line of text\n" * 9 + b"child\n"}, (root,))
    push(repository, history, [root, side], {MAIN: side})
    blob, foreign = history.key_at(child, "a"), history.key_at(side, "a")
    forge(repository, altered(history, child, base=(blob, foreign)), refs={})
    (problem,) = problems(repository)
    assert f"its base {foreign.hex()} comes from no ancestor" in problem
    assert blob.hex() in problem


def test_a_record_that_is_not_what_its_key_says_and_what_rests_on_it(
    repository: PackRepository, history: History
) -> None:
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    blob, after = (history.key_at(each, "src/file.txt") for each in line[1:])
    bad = altered(history, line[1], frame=(blob, b"no frame"))
    forge(repository, bad, history.segment(line[2]), refs={MAIN: line[2]})
    first, second = problems(repository)
    assert blob.hex() in first
    assert after.hex() in second
    assert f"its base {blob.hex()} cannot be read" in second


def test_an_index_that_is_not_its_packs(repository: PackRepository, history: History, storage: MemoryTransport) -> None:
    """The hash is right, the writer was not."""
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    pack = repository.snapshot().packs[0]
    content = bytearray(storage.get(f"{PACKS}/{pack.entry.name.hex()}.idx"))
    rows = pack.index.all_rows()
    deeper = next(row for row, said in enumerate(pack.index.rows()) if said.depth == 1)
    content[content.index(rows) + (deeper + 1) * ROW.size - 1] = 9
    body = b"".join(seal([bytes(content[:-32])]))
    made = body[-16:]
    replace(storage, f"{PACKS}/{pack.entry.name.hex()}.idx", body)
    entry = replace_pack(repository, index_hash=made)
    (problem,) = problems(repository)
    assert problem.startswith(f"{PACKS}/{entry.name.hex()}.idx: row ")


def test_counts_of_the_log(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    entry = replace_pack(repository, segments=3)
    (problem,) = problems(repository)
    assert f"the file has 2 revisions and {entry.records} records, but the log states 3 and {entry.records}" in problem


def test_no_more_problems_than_fit(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "MAX_PROBLEMS", 3)
    line = history.line(6)
    push(repository, history, line[:1], {MAIN: line[0]})
    bad = [altered(history, each, frame=(history.key_at(each, "src/file.txt"), b"no frame")) for each in line[1:]]
    forge(repository, *bad, refs={})
    found = problems(repository)
    assert len(found) == 4
    assert found[-1].startswith("and more")


class Ends(PassingTransport):
    """A store behind a link, which is lost after so many files were looked at, or one that lets no more be read."""

    left = [1 << 60]
    lost = True

    def reach(self, path: str) -> Transport:
        self.left[0] -= 1
        if self.left[0] < 0:
            raise TransportFailed("", "the connection to h is lost") if self.lost else PermissionDenied(path)
        return self.inner

    def get(self, path: str) -> bytes:
        return self.reach(path).get(path)

    def open_read(self, path: str) -> ReadFile:
        return self.reach(path).open_read(path)


@pytest.mark.parametrize("lost", [True, False])
def test_a_store_that_cannot_be_reached_or_read_is_no_damage(
    storage: MemoryTransport, repository: PackRepository, lost: bool
) -> None:
    """At whatever point: of the files that were not read nothing is known."""
    history = History()
    for number, revision in enumerate(history.line(3)):
        push(repository, history, [revision], {MAIN: revision, b"refs/tags/%d" % number: revision})
    link = Ends(storage)
    link.lost = lost
    for left in itertools.count():
        link.left[0] = left
        with contextlib.suppress(TransportFailed if lost else PermissionDenied):
            assert PackRepository(link).verify().problems == ()
            break
    assert left > 6


def test_a_store_that_is_lost_takes_no_damage_with_it(storage: MemoryTransport, repository: PackRepository) -> None:
    """The damage that was found before is told, and that the rest is not known."""
    history = History()
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    bad = altered(history, line[1], frame=(history.key_at(line[1], "src/file.txt"), b"no frame"))
    forge(repository, bad, refs={})
    other = history.commit({"another": b"root"})
    push(repository, history, [other], {MAIN: other})
    (damage,) = problems(repository)
    link, ends = Ends(storage), set[tuple[str, ...]]()
    for left in itertools.count():
        link.left[0] = left
        with contextlib.suppress(TransportFailed):
            found, *more = PackRepository(link).verify().problems
            assert found == damage
            ends.add(tuple(more))
            if not more:
                break
    assert ends == {(), ("the connection to h is lost: what comes after that was not checked",)}


def test_empty_records_lie_where_the_next_one_does(repository: PackRepository, history: History) -> None:
    """Their frames have no bytes; which of the two is first is told by their headers."""
    line: list[bytes] = []
    for number in range(24):
        files = {"f": b"a line of text\n" * 9 + b"%d" % number} | ({"e": b""} if number % 2 else {})
        line.append(history.commit(files, tuple(line[-1:])))
    push(repository, history, line, {MAIN: line[-1]})
    index = repository.snapshot().packs[0].index
    assert len({row.frame_offset for row in index.rows()}) < index.records
    assert problems(repository) == []


# -- a repository of Breezy's


def test_a_sound_repository_with_a_ghost(repository: PackRepository) -> None:
    push_bzr(repository, segment_of(FIRST, FIRST_PARENTS), refs={b".": FIRST[0].key})
    push_bzr(repository, segment_of(SECOND, SECOND_PARENTS), refs={b".": SECOND[0].key, b"trunk": FIRST[0].key})
    report = repository.verify()
    assert (report.problems, report.ghosts) == ((), 1)
    assert (report.packs, report.segments, report.records) == (2, 2, len(FIRST + SECOND))
    graph = repository.snapshot().graph
    assert [graph.parents(ordinal) for ordinal in range(2)] == [(), (0,)]


def test_the_texts_of_a_revision_that_is_no_ancestor(repository: PackRepository) -> None:
    push_bzr(repository, segment_of(FIRST, FIRST_PARENTS), refs={b".": FIRST[0].key})
    ghosts = tuple(Parent(parent.id, True) for parent in SECOND_PARENTS)
    with pytest.raises(MissingReference):
        push_bzr(repository, segment_of(SECOND, ghosts), refs={})
    push_bzr(repository, segment_of([*SECOND, *FIRST[3:5], *FIRST[6:]], ghosts), refs={b".": SECOND[0].key})
    report = repository.verify()
    assert (report.problems, report.ghosts) == ((), 1), "of the two that are said to be absent one is there"


def test_what_refers_to_a_missing_record_is_named_as_text(repository: PackRepository) -> None:
    with pytest.raises(MissingReference) as caught:
        push_bzr(repository, segment_of(FIRST[:-1], FIRST_PARENTS), refs={})
    page = FIRST[2].key.decode()
    said = f"{page} of revision joe@example.org-1 refers to run-id joe@example.org-1, which is missing"
    assert str(caught.value) == said


@pytest.mark.parametrize("number", range(4))
def test_a_text_that_cannot_be_read(repository: PackRepository, number: int) -> None:
    record = FIRST[number]
    text = record.text + b"\n"
    key = b"sha1:" + hashlib.sha1(text).hexdigest().encode() if BZR_KINDS[record.kind].name == "chk" else record.key
    records = list(FIRST)
    records[number] = Record(record.kind, key, b"", text)
    with pytest.raises(
        CorruptRecord, match=r"of revision joe@example\.org-1 is not valid: cannot be read as "
    ) as caught:
        push_bzr(repository, segment_of(records, FIRST_PARENTS), refs={})
    assert caught.value.key == key
