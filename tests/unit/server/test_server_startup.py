from __future__ import annotations

import pytest
from builders import MAIN
from dialogs import Served, walk

from smartserver.server.startup import MAX_DEPTH, repositories, tidy_all
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.errors import NoSpace
from transports.memory import MemoryTransport


@pytest.fixture
def served() -> Served:
    served = Served()
    line = served.history.line(2)
    for path in ("one", "team/two", "team/deep/three"):
        served.push(line, {MAIN: line[1]}, path)
    served.transport.make_directory("team/empty")
    served.transport.make_directory(".hidden")
    with served.transport.create("a file") as file:
        file.write(b"x")
    return served


def test_repositories_are_found(served: Served) -> None:
    assert sorted(repositories(served.transport)) == ["one", "team/deep/three", "team/two"]
    assert list(repositories(served.transport, "one")) == ["one"]
    assert list(repositories(served.transport.child("one"))) == [""]
    assert list(repositories(served.transport, "nowhere")) == []
    assert list(repositories(served.transport, "a file")) == []


def test_the_search_ends(served: Served) -> None:
    transport: Transport = MemoryTransport()
    path = ""
    for depth in range(MAX_DEPTH + 2):
        path = f"{path}/d{depth}" if path else f"d{depth}"
        transport.make_directory(path)
        for name in ("packs", "incoming"):
            transport.make_directory(f"{path}/x{depth}") if name == "packs" else None
            transport.make_directory(f"{path}/x{depth}/{name}")
    found = list(repositories(transport))
    assert len(found) == MAX_DEPTH
    assert max(found, key=len) in found


def test_what_a_crash_left_is_cleared(served: Served) -> None:
    served.transport.make_directory("one/incoming/dead")
    with served.transport.create("one/incoming/dead/x.pack") as file:
        file.write(b"half a pack")
    tidy_all(served.site)
    assert walk(served.transport, "one/incoming") == []
    assert served.site.find("one").repository.verify().problems == ()


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
    tidy_all(served.site)
    assert sorted(tidied) == ["one", "team/deep/three", "team/two"]
    assert [record.message for record in caplog.records] == ["tidying one: no space left to write 'lock'"]
