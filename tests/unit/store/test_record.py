"""store.record, history, checkpoint: the files of the log, the entries that are kept, and what is cleaned up."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from functools import partial
from itertools import count

import msgspec
import pytest
from log_builders import begin_log, contents, judge
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile, LimitExceeded, Unsupported
from smartserver.store import checkpoint
from smartserver.store import record as records
from smartserver.store.checkpoint import (
    FEW,
    FLOOR_AGE,
    MANY,
    SHARE,
    Since,
    checkpoint_path,
    clean_log,
    decode_checkpoint,
    encode_checkpoint,
    is_due,
    make_checkpoint,
    newest_first,
)
from smartserver.store.format import LOG
from smartserver.store.history import ALL, CLOCK_MARGIN, KEPT, KEPT_BYTES, KEPT_ENTRIES, MOST_BESIDE, History
from smartserver.store.log import Log
from smartserver.store.record import (
    HEADER,
    MAGIC,
    VERSION,
    Beginning,
    Change,
    Entry,
    PackEntry,
    Record,
    decode_record,
    encode_record,
    hash_of,
)
from smartserver.store.state import DECLARED, REFS, Misfit, State, beginning

PACK = PackEntry(b"p" * 16, 100, b"h" * 16, 50, b"i" * 16, 1, 3)
MADE = Entry(
    b"r" * 16,
    "joe",
    b"answer",
    (Change(DECLARED, b"tags", None, b"ids"), Change(REFS, b"main", None, b"value")),
    PACK,
    Beginning(b"n" * 16, "git sha1", ()),
)


def first() -> State:
    return beginning(b"x" * 16, 0.005)[1]


def made(**what: object) -> bytes:
    fields = {"number": 2, "parent": first().hash, "time": 7, "entries": (MADE,), **what}
    return encode_record(Record(**fields))  # type: ignore[arg-type]


def after(*contents: bytes) -> State:
    state = first()
    for content in contents:
        state = state.after(decode_record(content, "log/x"), hash_of(content))
    return state


def foreign(*fields: object) -> bytes:
    """A record or a head as a later release may write it."""
    payload = msgspec.msgpack.encode(fields)
    return HEADER.pack(MAGIC, VERSION, 0, records._hash(payload)) + payload


@pytest.mark.parametrize(
    ("content", "decode"), [(made(), decode_record), (encode_checkpoint(after(made())), decode_checkpoint)]
)
def test_a_part_of_a_file_is_refused(content: bytes, decode: Callable[[bytes, str], object]) -> None:
    """Each byte that is changed is refused, too: `tests/faults/test_store_corruption.py`."""
    for wrong in (*[content[:at] for at in range(len(content))], content + b"\0"):
        with pytest.raises(CorruptFile) as caught:
            decode(wrong, "the/file")
        assert caught.value.path == "the/file"


def test_the_hash_comes_first() -> None:
    content = made()
    assert hash_of(content[:28]) == hash_of(content) == after(content).hash
    assert hash_of(made(time=8)) != hash_of(content)


def test_a_later_release_may_append_fields() -> None:
    kept = decode_record(foreign(2, first().hash, [], 7, [], [], [], [], b"", "more"), "log/2")
    assert kept == Record(number=2, parent=first().hash, time=7)


@pytest.mark.parametrize("rest", [(), ("another", "layout")])
def test_a_feature_of_a_later_release_is_named(rest: tuple[str, ...]) -> None:
    with pytest.raises(Unsupported, match="the repository feature 'trees'"):
        decode_record(foreign(2, first().hash, ["trees"], *rest), "log/2")


def test_features_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FEATURES", frozenset({"trees"}))
    content = made(features=("trees",))
    state = after(content, made(number=3, parent=hash_of(content), entries=(), features=("trees",)))
    assert state.features == ("trees",)
    checkpoint = encode_checkpoint(state)
    assert decode_checkpoint(checkpoint, "c").features == ("trees",)
    monkeypatch.undo()
    with pytest.raises(Unsupported, match="the repository feature 'trees'"):
        decode_checkpoint(checkpoint, "c")


def test_a_record_has_at_most_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(made())
    monkeypatch.setattr(records, "MAX_RECORD", size - 1)
    with pytest.raises(LimitExceeded, match=str(size)):
        made()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"number": 3}, "record 1 is"),
        ({"parent": b"o" * 16}, "follows 6f6f6f"),
        ({"entries": (Entry(b"", "", b"", (Change(REFS, b"main", None, b"v"),)),)}, "'refs' does not exist"),
        ({"joins": (records.Join((b"a" * 16,), PACK),)}, "side by side"),
    ],
)
def test_what_does_not_follow(what: dict[str, object], why: str) -> None:
    with pytest.raises(Misfit, match=why):
        after(made(**what))


def test_names_of_checkpoints() -> None:
    names = ["0000000007-" + "ab" * 16, "0000000012-" + "cd" * 16]
    others = ["7-" + "ab" * 16, "0000000007-AB", "0000000009", "x-" + "ab" * 16, "0000000012-" + "cd" * 16 + ".12ab"]
    assert newest_first([*names, *others]) == [(12, b"\xcd" * 16), (7, b"\xab" * 16)]
    assert checkpoint_path(12, b"\xcd" * 16) == f"checkpoints/{names[1]}"
    assert newest_first(["12345678901-" + "ab" * 16]) == [(12345678901, b"\xab" * 16)]


NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000


def request(number: int) -> bytes:
    return number.to_bytes(16, "big")


def record(number: int, time: int = NOW, size: int = 1) -> Record:
    entry = Entry(request(number), "joe", b"x" * size, (Change("refs", b"main", None, b"%d" % number),))
    return Record(number=number, parent=bytes(16), time=time, entries=(entry,))


def extended(history: History, record: Record, record_hash: bytes) -> History:
    made = copy.copy(history)
    made.extend(record, record_hash)
    return made


def line(times: list[int], history: History | None = None) -> History:
    """After a record of each time, from record 2 on; the mark of each is its number."""
    found = history or History()
    for number, time in enumerate(times, 2):
        found = extended(found, record(number, time), number.to_bytes(2, "big") + bytes(14))
    return found


def versions(history: History) -> list[int]:
    return [entry.version for entry in history]


def test_the_entries_of_a_day_are_kept_and_a_thousand() -> None:
    young = line([NOW] * 1500)
    assert (len(young), young.horizon) == (1500, ALL)
    old = extended(young, record(1502, NOW + KEPT + 1), bytes(16))
    assert len(old) == KEPT_ENTRIES
    assert (old.horizon.version, old.horizon.mark, old.horizon.since) == (502, 502, NOW + CLOCK_MARGIN)
    assert old.find(request(502)) is None
    found = old.find(request(503))
    assert found is not None
    assert (found.version, found.user, found.time) == (503, "joe", NOW)
    assert len(young) == 1500
    assert young.find(request(2)) is not None, "an older state sees what it saw"


def test_no_more_bytes_are_kept() -> None:
    history = History()
    for number in range(2, 30):
        history = extended(history, record(number, size=1 << 20), bytes(16))
    assert sum(len(entry.outcomes) for entry in history) in range(KEPT_BYTES - (2 << 20), KEPT_BYTES)
    history = extended(history, record(30, size=KEPT_BYTES + 1), bytes(16))
    assert versions(history) == [30]


def test_two_that_follow_the_same_one_at_once_do_not_see_each_other() -> None:
    """Two threads do so, one of which may then lose the place of its record. Nothing of that is ever seen."""
    common = line([NOW] * 10)
    for number in range(12, 12 + 2 * MOST_BESIDE):
        lost, won = copy.copy(common), copy.copy(common)
        lost.extend(record(9999), bytes(16))
        won.extend(record(number), bytes(16))
        assert won.find(request(9999)) is None
        assert lost.find(request(number)) is None
        assert versions(lost) == [*versions(common), 9999]
        assert versions(won) == [*versions(common), number] == [*reversed([each.version for each in reversed(won)])]
        assert [each.version for each in won.after(number - 2)] == [number - 1, number]
        common = won
    assert [common.find(request(number)) is not None for number in (2, 11, 12, 11 + 2 * MOST_BESIDE)] == [True] * 4


def test_a_clock_that_was_ahead_hides_no_later_request() -> None:
    year = 365 * DAY
    history = extended(line([NOW + year] * (KEPT_ENTRIES + 5)), record(2000, NOW), bytes(16))
    assert history.horizon == ALL
    for number in range(KEPT_ENTRIES):
        history = extended(history, record(3000 + number, NOW + year + 2 * DAY), bytes(16))
    assert history.horizon.since <= NOW + year + 2 * DAY


def test_what_came_after_a_version() -> None:
    history = line([NOW] * 10)
    assert [entry.version for entry in history.after(8)] == [9, 10, 11]
    assert [entry.version for entry in history.after(0)] == list(range(2, 12))
    assert list(history.after(11)) == []
    assert [history.mark(version) for version in (1, 2, 7, 99)] == [0, 2, 7, 11]


def test_a_request_first_sent_before_is_not_covered() -> None:
    history = copy.copy(line([NOW]))
    history.forget(NOW)
    assert history.find(request(2)) is not None
    assert history.horizon.since <= NOW
    assert history.horizon.since > NOW - 1


@pytest.mark.parametrize("kept", [1, 700])
def test_what_is_not_kept_takes_no_memory(kept: int) -> None:
    """The line of a long-lived server is copied now and then, without what no state sees any more."""
    history, numbers = History(), count(2)
    for _ in range(3):
        history = line([NOW] * kept, history)
    for number in numbers:
        history = extended(history, record(10_000 + number, NOW + number * DAY), bytes(16))
        if number == 5000:
            break
    assert len(history) == KEPT_ENTRIES
    assert len(history._line.entries) <= 2 * KEPT_ENTRIES + 1


class Site:
    """A log, its store and its clock."""

    def __init__(self) -> None:
        self.now = 1e9
        self.store = MemoryTransport(clock=lambda: self.now)
        begin_log(self.store)
        self._names = itertools.count()
        self.log = Log(self.store, "r", self.name)

    def name(self, size: int) -> bytes:
        return next(self._names).to_bytes(size, "big")

    def carry_out(self, *numbers: int) -> None:
        for number in numbers:
            self.log.append(self.log.look(), partial(judge, number))

    def checkpoint(self) -> None:
        make_checkpoint(self.store, self.log.look().state, self.name)

    def clean(self) -> int:
        return clean_log(self.store, self.name)

    @property
    def records(self) -> list[int]:
        return [int(name) for name in self.store.list_directory(LOG)]

    @property
    def checkpoints(self) -> list[int]:
        return [int(name.partition("-")[0]) for name in self.store.list_directory("checkpoints")]


@pytest.mark.parametrize(
    ("records", "size", "checkpoint", "due"),
    [
        (FEW - 1, 10**9, 0, False),
        (FEW, 100, 100 * SHARE, True),
        (FEW, 100, 100 * SHARE + 1, False),
        (MANY, 0, 10**9, True),
    ],
)
def test_when_a_checkpoint_is_due(records: int, size: int, checkpoint: int, due: bool) -> None:
    assert is_due(Since(records, size, checkpoint=checkpoint)) == due


def test_records_are_deleted_below_an_old_checkpoint_that_is_not_the_newest() -> None:
    site = Site()
    site.carry_out(1, 2)
    site.checkpoint()
    assert site.clean() == 0
    site.now += FLOOR_AGE + 1
    assert site.clean() == 0, "the newest may rot"
    site.carry_out(3)
    site.checkpoint()
    site.carry_out(4)
    assert site.clean() == 2
    assert (site.records, site.checkpoints) == ([3, 4, 5], [3, 4])
    site.carry_out(5)
    site.checkpoint()
    assert site.clean() == 0, "that of record 4 is not an hour old"
    site.now += FLOOR_AGE
    site.checkpoint()  # The same again, whose file tells the time.
    assert site.clean() == 1
    assert (site.records, site.checkpoints) == ([4, 5, 6], [4, 6])
    assert contents(Log(site.store, "r", site.name).look().state) == [1, 2, 3, 4, 5]
    assert site.store.list_directory("incoming") == []


@pytest.mark.parametrize("harm", ["damaged", "of another log"])
def test_nothing_is_deleted_below_what_is_no_floor(harm: str) -> None:
    site = Site()
    site.carry_out(1)
    site.checkpoint()
    path = f"checkpoints/{site.store.list_directory('checkpoints')[0]}"
    content = site.store.get(path)
    site.store.delete(path)
    if harm == "damaged":
        site.store.put(path, [content[:-1]])
    else:
        site.store.put(f"{path[:-32]}{'ab' * 16}", [content])
    site.now += 2 * FLOOR_AGE
    site.carry_out(2)
    site.checkpoint()
    assert site.clean() == 0
    assert site.records == [1, 2, 3]


def test_two_at_once_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.carry_out(*range(1, 9))
    site.checkpoint()
    site.now += FLOOR_AGE
    site.carry_out(9)
    site.checkpoint()
    floor = checkpoint._floor

    def another_first(*arguments: object) -> int | None:
        monkeypatch.setattr(checkpoint, "_floor", floor)
        site.clean()
        return floor(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "_floor", another_first)
    assert site.clean() == 0
    assert site.records == [9, 10]
