"""store.states: what a request looks at is what the log says then, whatever was there before."""

from __future__ import annotations

import pytest
from builders import MAIN, History, push
from trips import Trips

from smartserver.records.model import Tip
from smartserver.store.caches import TextCache
from smartserver.store.format import PACKS
from smartserver.store.log import TRIES
from smartserver.store.repository import PackRepository
from smartserver.store.states import States
from transports.errors import NoSuchFile


def test_a_snapshot_stays_as_it_was(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    before = repository.snapshot()
    push(repository, history, line[1:], {MAIN: line[1]})
    assert (before.graph.count, repository.snapshot().graph.count) == (1, 2)
    assert before.state.ref(MAIN) == (Tip(line[0]),)
    assert repository.snapshot() is repository.snapshot()


def test_a_pack_that_is_gone_means_the_log_is_read_again(repository: PackRepository, history: History) -> None:
    """So often, and then it is missed."""
    line = history.line(1)
    push(repository, history, line, {MAIN: line[0]})
    for name in repository.folder.list_directory(PACKS):
        repository.folder.delete(f"{PACKS}/{name}")
    trips = Trips(repository.folder)
    with pytest.raises(NoSuchFile):
        PackRepository(trips).snapshot()
    assert sum("GetPublished log/0000000003" in each for each in trips.log) == TRIES


def test_a_slower_thread_does_not_bring_back_an_older_one(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    states = States(repository.log, TextCache())
    before = states.read()
    push(repository, history, line[1:], {MAIN: line[1]})
    after = states.read()
    assert before.snapshot is not None
    older = states.open(before.snapshot.state)
    assert older is not None
    assert older.state is before.snapshot.state
    assert states.latest is after.snapshot
