"""server.common_counts: what workers count is added up, and outlives them."""

from __future__ import annotations

from smartserver.meters import NOTHING, READS
from smartserver.server.common_counts import CommonCounts
from smartserver.server.request_meters import BUCKETS, CacheCounts, Histogram, ServerCounts
from smartserver.store.caches import Size


def counts(reads: int, connections: int) -> ServerCounts:
    meters = list(NOTHING)
    meters[READS] = reads
    histogram = Histogram()
    histogram.add(BUCKETS[1])
    return ServerCounts(meters, {"verb": {"done": reads}}, {"verb": histogram}, connections)


def test_counts_are_added_up_and_go_on_where_a_worker_ended() -> None:
    common = CommonCounts(2)
    for worker, reads in ((0, 5), (1, 7)):
        common.belong_to(worker)
        common.write(counts(1, 1))
        common.write(counts(reads, 2))
    found = common.read()
    assert (found.meters[READS], found.outcomes, found.open) == (12, {"verb": {"done": 12}}, 4)
    assert found.seconds["verb"].counts[1] == 2
    common.belong_to(0)  # As a new process does.
    common.write(counts(3, 0))
    found = common.read()
    assert (found.meters[READS], found.open) == (15, 2)


def test_a_copy_that_is_half_written_is_none() -> None:
    common = CommonCounts(1)
    common.belong_to(0)
    for reads in (1, 2):
        common.write(counts(reads, 0))
    common._memory[30] ^= 1  # In the copy of the second.
    assert common.read().meters[READS] == 1


def test_what_a_worker_that_ended_was_asked_for_is_not_shown() -> None:
    common = CommonCounts(1)
    common.belong_to(0)
    asked = counts(1, 0)
    asked.caches = {"texts": CacheCounts(9, [Size(1, 2, 3)])}
    common.write(asked)
    assert common.read().caches["texts"].sizes == [Size(1, 2, 3)]
    common.belong_to(0)
    common.write(counts(1, 0))
    assert common.read().caches == {}
