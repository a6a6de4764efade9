from __future__ import annotations

import pytest

from smartserver.server.fair import FairQueue, Tenant


def fill(queue: FairQueue[str], client: Tenant, name: str, count: int) -> None:
    for number in range(count):
        queue.put(client, f"{name}{number}")


def begun(queue: FairQueue[str]) -> list[str]:
    """The jobs that may begin now."""
    names: list[str] = []
    while (found := queue.take()) is not None:
        names.append(found[1])
    return names


def test_the_jobs_that_wait_are_counted() -> None:
    queue: FairQueue[str] = FairQueue(8)
    fill(queue, Tenant("a"), "a", 3)
    fill(queue, Tenant(), "b", 2)
    assert len(queue) == 5
    queue.take()
    assert len(queue) == 4
    begun(queue)
    assert len(queue) == 0
    fill(queue, Tenant(), "c", 2)
    queue.clear()
    assert len(queue) == 0
    assert begun(queue) == []


def test_alone_an_address_gets_half_of_the_threads() -> None:
    queue: FairQueue[str] = FairQueue(8)
    for number in range(10):
        fill(queue, Tenant("a"), f"{number}-", 2)
    assert begun(queue) == ["0-0", "1-0", "2-0", "3-0"]
    fill(queue, Tenant("b"), "b", 20)
    assert begun(queue) == ["b0", "b1"]
    fill(queue, Tenant("c"), "c", 20)
    assert begun(queue) == ["c0"]


@pytest.mark.parametrize("threads", [1, 2, 4, 8, 16])
def test_a_newcomer_finds_a_thread_or_has_its_turn_after_one_job_of_each_address(threads: int) -> None:
    queue: FairQueue[str] = FairQueue(threads)
    busy = Tenant("a")
    fill(queue, busy, "a", 100)
    assert len(begun(queue)) == max(1, threads // 2)
    fill(queue, Tenant("b"), "b", 1)
    if threads == 1:
        for turn in ([], ["a1"], ["b0"]):
            assert begun(queue) == turn
            queue.ended(busy)
    else:
        assert begun(queue) == ["b0"]


def test_addresses_take_turns_and_so_do_their_connections() -> None:
    queue: FairQueue[str] = FairQueue(1)
    first, second, other = Tenant("a"), Tenant("a"), Tenant("b")
    fill(queue, first, "first", 3)
    fill(queue, second, "second", 2)
    fill(queue, other, "other", 2)
    order: list[str] = []
    while (found := queue.take()) is not None:
        order.append(found[1])
        assert queue.take() is None
        queue.ended(found[0])
    assert order == ["first0", "other0", "second0", "other1", "first1", "second1", "first2"]
    assert not queue._running
    assert not queue._waiting


def test_connections_without_an_address_share_with_nobody() -> None:
    queue: FairQueue[str] = FairQueue(4)
    for name in "abcdef":
        fill(queue, Tenant(), name, 2)
    assert begun(queue) == ["a0", "b0", "c0", "d0"]
