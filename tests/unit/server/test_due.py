"""server.due: a repository is due once however often it was changed, and presses once it was changed too often."""

from __future__ import annotations

from smartserver.server.due import Due
from smartserver.store.repack import AHEAD
from smartserver.store.repository import PackRepository
from transports.memory import MemoryTransport


def test_a_repository_presses_until_it_is_taken() -> None:
    storage, due = MemoryTransport(), Due()
    one, again, other = (PackRepository(storage, path) for path in ("one", "one", "other"))
    assert [due.add(each) for each in (one, again, other)] == [True, False, True]
    pressing = []
    for _ in range(AHEAD):
        pressing.append(due.pressing)
        due.add(one)
    assert pressing == [*[False] * (AHEAD - 2), True, True]
    due.take(other)
    assert due.pressing
    due.take(again)
    assert not due.pressing
    assert due.add(one)
