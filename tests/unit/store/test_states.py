"""store.snapshot.States: what a request looks at is what the log says then, whatever was there before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import MAIN, History, Repeatable, check_whole, push, refs_of
from trips import Trips

from smartserver.records.model import Tip
from smartserver.store.caches import TextCache
from smartserver.store.format import PACKS
from smartserver.store.log_view import TRIES
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import States
from transports.errors import NoSuchFile
from transports.local import LocalTransport


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


def test_an_older_copy_put_back_under_it(history: History, tmp_path: Path) -> None:
    """A backup is put back: versions come a second time, with other content, and are not taken for those before."""
    repository = PackRepository(LocalTransport(tmp_path), "project", randomness=Repeatable())
    line = history.line(6)
    other = history.line(3, line[1], "other")
    push(repository, history, line[:2], {MAIN: line[1]})
    shutil.copytree(tmp_path / "project", tmp_path / "backup")
    for tip in line[2:]:
        push(repository, history, [tip], {MAIN: tip})
    lost = repository.snapshot().state.version
    shutil.rmtree(tmp_path / "project")
    (tmp_path / "backup").rename(tmp_path / "project")
    assert refs_of(repository) == {MAIN: line[1]}
    for tip in other:
        push(repository, history, [tip], {MAIN: tip})
        check_whole(repository, history)
    push(repository, history, [], {b"refs/heads/again": other[0]})
    assert repository.snapshot().state.version == lost
    assert refs_of(repository) == {MAIN: other[2], b"refs/heads/again": other[0]}
    assert refs_of(PackRepository(LocalTransport(tmp_path), "project")) == refs_of(repository)
    check_whole(repository, history)


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
