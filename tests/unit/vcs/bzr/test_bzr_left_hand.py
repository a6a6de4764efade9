from __future__ import annotations

import pytest
from bzr_builders import TRUNK, BzrHistory

from smartserver.records.model import Tip
from smartserver.store.allowance import Allowance
from smartserver.store.content import SnapshotView
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.vcs.bzr.left_hand import LeftHand
from transports.memory import MemoryTransport


@pytest.fixture
def moment() -> SnapshotView:
    history, repository = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(5)
    grafted = history.commit({b"f": b"grafted"}, [line[4]], [b"ghost"], ghost_first=True)
    later = history.commit({b"f": b"later"}, [grafted])
    history.push(repository, history.parents, {TRUNK: Tip(later)})
    transaction = repository.begin(b"", "user")
    return SnapshotView(transaction.refs, transaction.map, repository.snapshot(), Allowance())


def test_where_it_ends(moment: SnapshotView) -> None:
    assert list(LeftHand(moment, 4)) == [4, 3, 2, 1, 0]
    assert LeftHand(moment, 4).length() == 5
    assert list(LeftHand(moment, 6)) == [6, 5]
    line = LeftHand(moment, 6)
    assert [line.at(steps) for steps in (1, 0, 2, 1 << 53, 1)] == [5, 6, None, None, 5]


def test_no_step_is_taken_twice(moment: SnapshotView, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    first_parent = Snapshot.first_parent

    def noted(of: Snapshot, ordinal: int) -> int | None:
        walked.append(ordinal)
        return first_parent(of, ordinal)

    monkeypatch.setattr(Snapshot, "first_parent", noted)
    line = LeftHand(moment, 4)
    assert (line.at(0), walked) == (4, [])
    assert (line.at(2), walked) == (2, [4, 3])
    assert [line.length(), *line, line.at(4), line.at(9)] == [5, 4, 3, 2, 1, 0, 0, None]
    assert walked == [4, 3, 2, 1, 0]
