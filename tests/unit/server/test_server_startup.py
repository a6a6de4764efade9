from __future__ import annotations

import contextlib

import pytest
from builders import MAIN
from dialogs import Served, SteppedExecutor
from memory_transport import MemoryTransport

from smartserver.server.executor import InlineExecutor
from smartserver.server.startup import MAX_DEPTH, repositories, tidy_all
from smartserver.store.repository import PackRepository
from transports.errors import NoSpace


def put(served: Served, path: str) -> None:
    with contextlib.closing(served.transport.create(path)) as file:
        file.write(b"x")


@pytest.fixture
def served() -> Served:
    served = Served()
    line = served.history.line(2)
    for path in ("one", "team/two", "team/deep/three"):
        served.push(line, {MAIN: line[1]}, path)
    served.transport.make_directory("team/empty")
    served.transport.make_directory(".hidden")
    put(served, "a file")
    return served


def test_repositories_are_found(served: Served) -> None:
    assert sorted(repositories(served.transport)) == ["one", "team/deep/three", "team/two"]
    assert list(repositories(served.transport, path="one")) == ["one"]
    assert list(repositories(served.transport.child("one"))) == [""]
    assert list(repositories(served.transport, path="nowhere")) == []
    assert list(repositories(served.transport, path="a file")) == []
    served.site.find("one").repository.delete(bytes(16), 0, "user")
    served.push(list(served.history.parents), {}, "one/below")
    assert sorted(repositories(served.transport, path="one")) == ["one", "one/below"]
    # What a link leads out of the root to is not looked at.
    assert list(repositories(served.transport, lambda path: not path.startswith("team"))) == ["one", "one/below"]


def test_the_search_ends() -> None:
    transport = MemoryTransport()
    for depth in range(MAX_DEPTH + 3):
        folders = [f"d{number}" for number in range(depth)]
        for name in ("", "repository", "repository/packs", "repository/incoming"):
            if folders or name:
                transport.make_directory("/".join([*folders, name]) if name else "/".join(folders))
    assert len(list(repositories(transport))) == MAX_DEPTH


def test_what_cannot_be_tidied_is_logged_and_the_rest_is_done(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tidied: list[str] = []

    def collect(repository: PackRepository) -> int:
        tidied.append(repository.path)
        if repository.path == "one":
            raise NoSpace("lock")
        return 0

    monkeypatch.setattr(PackRepository, "collect_garbage_files", collect)
    tidy_all(served.site, InlineExecutor())
    assert sorted(tidied) == ["one", "team/deep/three", "team/two"]
    assert [record.message for record in caplog.records] == ["tidying one: no space left to write 'lock'"]


def test_a_server_that_stops_tidies_no_further_repository(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    tidied: list[str] = []
    executor = SteppedExecutor()

    def collect(repository: PackRepository) -> int:
        tidied.append(repository.path)
        executor.stopping = True
        return 0

    monkeypatch.setattr(PackRepository, "collect_garbage_files", collect)
    tidy_all(served.site, executor)
    assert len(tidied) == 1
