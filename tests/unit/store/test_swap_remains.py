"""store.swap: no repository is made over what is left of one."""

from __future__ import annotations

import pytest
from builders import MAIN, Clock, History, Repeatable, push

from smartserver.errors import InvalidPath
from smartserver.store.repository import PackRepository
from transports.memory import MemoryTransport


@pytest.mark.parametrize("lost", ["root", "format"])
def test_a_repository_that_lost_a_file_is_not_replaced(lost: str) -> None:
    storage, history = MemoryTransport(), History()
    repository = PackRepository(storage, "project", clock=Clock(), randomness=Repeatable())
    line = history.line(4)
    for tip in (1, 3):
        push(repository, history, line[: tip + 1], {MAIN: line[tip]})
    if lost == "root":  # A busy one: part of its log is in files.
        storage.put("project/log/1-00", [b"a log file"])
    before = storage.get(f"project/{lost}")
    storage.delete(f"project/{lost}")
    other = PackRepository(storage, "project", clock=Clock(), randomness=Repeatable(1))
    with pytest.raises(InvalidPath, match="restore that file"):
        push(other, history, line[:1], {MAIN: line[0]})
    storage.put(f"project/{lost}", [before])
    assert PackRepository(storage, "project").snapshot().view.refs()[MAIN][0].id == line[3]
