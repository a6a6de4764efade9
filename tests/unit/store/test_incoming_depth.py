"""store.incoming: chains of bases stay short, however records come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from builders import KINDS, MAIN, History, Repeatable, check_whole, create, locate, push, upload
from changes import change
from incoming_uploads import FILE, raw
from twins import IN_PYTHON

from smartserver.records.delta import compress
from smartserver.records.model import BaseTag
from smartserver.records.segment import decode_segment, encode_segment, frames
from smartserver.store import incoming, known_records
from smartserver.store.incoming import MAX_STORED_DEPTH
from smartserver.store.known_records import REBASED_DEPTH
from smartserver.store.repository import PackRepository

pytestmark = pytest.mark.usefixtures("proving")


def one_by_one(repository: PackRepository, history: History, line: Sequence[bytes]) -> None:
    for each in line:
        push(repository, history, [each], {MAIN: each})
        repository.repack_if_needed()


def test_pushes_one_by_one_never_get_deep(repository: PackRepository) -> None:
    history = History()
    line = history.line(MAX_STORED_DEPTH * 4)
    one_by_one(repository, history, line)
    snapshot = check_whole(repository, history)
    depths = [row.depth for pack in snapshot.packs for row in pack.index.rows()]
    assert max(depths) == MAX_STORED_DEPTH
    body = snapshot.read_ranges([(0, len(line))])
    sizes = sum(len(history.segment(each)) for each in line)
    assert body.left < sizes * 1.1
    assert len(snapshot.packs) < 20


def test_a_record_that_is_encoded_anew(repository: PackRepository) -> None:
    history = History()
    line = history.line(MAX_STORED_DEPTH + 3)
    push(repository, history, line[: MAX_STORED_DEPTH + 1], {MAIN: line[MAX_STORED_DEPTH]})
    push(repository, history, line[MAX_STORED_DEPTH + 1 :], {MAIN: line[-1]})
    snapshot = check_whole(repository, history)
    location = locate(snapshot, 0, history.key_at(line[MAX_STORED_DEPTH + 1], FILE))[0]
    # The base is the version 32 before it, as the k-ary rule says: every version until then had its predecessor.
    assert location.depth == MAX_STORED_DEPTH + 1 - 32 + 1 <= REBASED_DEPTH + 1
    assert location.lineage == MAX_STORED_DEPTH + 1
    stored = decode_segment(snapshot.read_ranges([(location.ordinal, location.ordinal + 1)]).read(1 << 20), 0, KINDS)
    sent = decode_segment(history.segment(line[MAX_STORED_DEPTH + 1]), 0, KINDS)
    assert [entry.key for entry in stored.entries] == [entry.key for entry in sent.entries]
    assert (stored.revision, stored.parents) == (sent.revision, sent.parents)
    after = locate(snapshot, 0, history.key_at(line[MAX_STORED_DEPTH + 2], FILE))[0]
    assert after.depth == location.depth + 1


def test_encoded_anew_within_one_push_and_one_segment(
    repository: PackRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole chains in single segments: the records that follow in the segment rest on what was encoded anew."""
    monkeypatch.setattr("smartserver.store.known_records.RecentRecords.put", lambda self, record: None)
    history = History()
    lines = [b"line %d of a file that many files are like\n" % number for number in range(50)]
    files = {}
    for number in range(150):
        lines[number % 50] = b"changed for file %d\n" % number
        files[f"f{number:03}"] = b"".join(lines)
    tip = history.commit(files)
    order = [key for key, _path in history.introduced[tip]]
    segment = decode_segment(raw(history, tip, order), 0, KINDS)
    entries, bodies = [], []
    for index, (entry, frame) in enumerate(
        zip(segment.entries, frames(segment, raw(history, tip, order)), strict=True)
    ):
        body = bytes(frame)
        if index > 2:
            record, before = history.objects[entry.key], history.objects[segment.entries[index - 1].key]
            encoding, body = compress(record.text, before.text)
            entry = entry._replace(encoding=encoding, base=BaseTag.entry(index - 1), frame_length=len(body))
        entries.append(entry)
        bodies.append(body)
    content = encode_segment(tip, [], entries, bodies, KINDS)
    sent = upload(repository, content, 1)
    history._made[tip] = content
    change(repository, create, sent)
    push(repository, history, [], {MAIN: tip})
    snapshot = check_whole(repository, history)
    assert max(row.depth for row in snapshot.packs[0].index.rows()) == MAX_STORED_DEPTH


@IN_PYTHON
def test_a_chain_over_the_limit_is_begun_anew(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (incoming, known_records):
        monkeypatch.setattr(module, "MAX_CHAIN", 8 << 10)
    line = history.line(20)
    one_by_one(repository, history, line)
    snapshot = check_whole(repository, history)
    assert max(row.chain_kib for pack in snapshot.packs for row in pack.index.rows()) <= 8


def test_a_chain_through_another_branch_is_not_used(repository: PackRepository, history: History) -> None:
    """The lowest copy of a base is another branch's, at the end of a long chain: none of it is this branch's."""
    line = history.line(MAX_STORED_DEPTH + 1)
    push(repository, history, line, {MAIN: line[-1]})
    deep = history.key_at(line[-1], FILE)
    other = history.commit({"elsewhere": history.objects[deep].text}, (), "another root")
    text = history.objects[deep].text.replace(b"line", b"LINE", 1)
    child = history.commit({"elsewhere": text + b"more\n"}, (other,))
    push(repository, history, [other], {b"refs/heads/other": other})
    push(repository, history, [child], {b"refs/heads/other": child})
    snapshot = check_whole(repository, history)
    location = locate(snapshot, 0, history.key_at(child, "elsewhere"))[0]
    assert (location.depth, location.lineage) == (0, MAX_STORED_DEPTH + 1)


def test_a_near_base_that_is_too_deep_leads_to_a_farther_one(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_records, "REBASED_DEPTH", 5)
    line = history.line(MAX_STORED_DEPTH + 2)
    one_by_one(repository, history, line)
    location = locate(check_whole(repository, history), 0, history.key_at(line[-1], FILE))[0]
    assert location.depth == 1


def test_encoded_anew_in_full_where_the_base_is_of_no_use(repository: PackRepository, history: History) -> None:
    """Each text shares most with the one before it and nothing with the one 32 before it."""
    noise = Repeatable(3)
    blocks = [noise(256) for _ in range(MAX_STORED_DEPTH + 20)]
    parent: tuple[bytes, ...] = ()
    line: list[bytes] = []
    for number in range(MAX_STORED_DEPTH + 2):
        parent = (history.commit({"noise": b"".join(blocks[number : number + 8])}, parent),)
        line += parent
    push(repository, history, line, {MAIN: line[-1]})
    location = locate(check_whole(repository, history), 0, history.key_at(line[-1], "noise"))[0]
    assert location.depth == 0
    assert location.frame_length == location.length == 8 * 256
