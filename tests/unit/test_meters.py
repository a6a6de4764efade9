"""meters: each is declared once, threads count for themselves and together."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from counting import named

from smartserver import meters
from smartserver.meters import (
    BYTES_READ,
    METERS,
    NOTHING,
    READS,
    Counts,
    counted,
    counted_here,
    here,
    since,
    together,
)


def test_each_has_a_name_of_its_own_and_says_what_it_counts() -> None:
    assert len({meter.name for meter in METERS}) == len(METERS) == len(NOTHING)
    for meter in METERS:
        assert meter.help.endswith("."), meter
        assert meter.name.replace("_", "").isalpha(), meter
        assert meter.name.islower(), meter


def test_threads_count_for_themselves_and_together() -> None:
    everything, mine = counted(), counted_here()

    def read(times: int) -> Counts:
        start = counted_here()
        for _ in range(times):
            here.tally[READS] += 1
            here.tally[BYTES_READ] += 2
        return since(counted_here(), start)

    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(read, range(100, 500, 50)))
    assert [named(part) for part in parts] == [
        {"file_reads": times, "file_read_bytes": 2 * times} for times in range(100, 500, 50)
    ]
    total = NOTHING
    for part in parts:
        total = together(total, part)
    assert since(counted(), everything) == total
    assert counted_here() == mine


def test_a_thread_that_ends_leaves_its_list_to_the_next() -> None:
    before, lists = counted(), len(meters._tallies)

    def read() -> None:
        here.tally[READS] += 1

    for _ in range(50):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert since(counted(), before)[READS] == 50
    assert len(meters._tallies) < lists + 25, "a thread may take a list before the last one has left its own"
