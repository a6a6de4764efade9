from __future__ import annotations

import copy
from itertools import count

import pytest

from smartserver.store.history import ALL, CLOCK_MARGIN, KEPT, KEPT_BYTES, KEPT_ENTRIES, MOST_BESIDE, History
from smartserver.store.record import Change, Entry, Record

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
