"""store.quarantine, and of store.publish.base, store.publish.file and store.publish.folder what fills and sweeps it."""

from __future__ import annotations

import pytest
from builders import Repeatable, Stepwise
from drafts import written
from faulty_transport import FaultyTransport
from smartserver.store.publish.file import LOCK, FilePublisher, LockedQuarantine
from smartserver.store.publish.folder import DatedQuarantine, FolderPublisher

from smartserver.store.format import INCOMING
from transports.errors import NoSuchFile, PermissionDenied, TransportFailed
from transports.memory import MemoryTransport


def never(_modified: float) -> bool:
    return False


def always(_modified: float) -> bool:
    return True


def test_without_a_repository(folder: MemoryTransport) -> None:
    with pytest.raises(NoSuchFile):
        LockedQuarantine(folder, "elsewhere", b"request", Repeatable()).enter()


def test_equal_requests_have_quarantines_of_their_own(folder: MemoryTransport) -> None:
    randomness = Repeatable()
    first, second = (LockedQuarantine(folder, "", b"request", randomness) for _ in range(2))
    first.enter()
    second.enter()
    assert first.path != second.path
    assert first.path.startswith(f"{INCOMING}/{b'request'.hex()}-")


def test_a_sweep_leaves_the_living_alone(folder: MemoryTransport) -> None:
    randomness = Repeatable()
    live, dead = (LockedQuarantine(folder, "", b"request", randomness) for _ in range(2))
    written(folder, live)
    written(folder, dead).close()
    dead._claimed.close()  # What the system does for a process that ends.
    assert FilePublisher(folder, "", Repeatable()).sweep(folder.list_directory(INCOMING), (), always) == 1
    assert folder.list_directory(INCOMING) == [live.path.partition("/")[2]]
    assert folder.exists(live.pack_path)
    live.discard()
    assert FilePublisher(folder, "", Repeatable()).sweep(folder.list_directory(INCOMING), (), always) == 0


def test_a_sweep_takes_a_folder_that_was_never_locked(folder: MemoryTransport) -> None:
    folder.make_directory(f"{INCOMING}/half-made")
    assert FilePublisher(folder, "", Repeatable()).sweep(folder.list_directory(INCOMING), (), never) == 1
    assert folder.list_directory(INCOMING) == []


def test_a_sweep_survives_what_it_does_not_know(folder: MemoryTransport) -> None:
    folder.put(f"{INCOMING}/a-file", [b"x"])
    assert FilePublisher(folder, "", Repeatable()).sweep(folder.list_directory(INCOMING), (), always) == 0


class SweepingTransport(FaultyTransport):
    """Another process sweeps right after each of the first `sweeps` folders is made."""

    sweeps = 0

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        if self.sweeps:
            self.sweeps -= 1
            FilePublisher(self.inner, "", Repeatable()).sweep(self.inner.list_directory(INCOMING), (), never)


@pytest.mark.parametrize(("sweeps", "wins"), [(1, True), (7, True), (8, False)])
def test_a_sweep_between_making_and_locking(folder: MemoryTransport, sweeps: int, wins: bool) -> None:
    racing = SweepingTransport(folder)
    racing.sweeps = sweeps
    if not wins:
        with pytest.raises(TransportFailed, match="swept away"):
            LockedQuarantine(racing, "", b"request", Repeatable()).enter()
        return
    place = LockedQuarantine(racing, "", b"request", Repeatable())
    place.enter()
    assert folder.list_directory(place.path) == [LOCK]
    assert FilePublisher(folder, "", Repeatable()).sweep(folder.list_directory(INCOMING), (), always) == 0
    place.leave()
    assert folder.list_directory(INCOMING) == []


def test_in_a_folder_repository_age_tells(folder: MemoryTransport) -> None:
    """Its writer may be on a store that locks no file, and who sweeps on one that does."""
    place = DatedQuarantine(folder, "", b"request", Repeatable())
    written(folder, place).close()
    assert folder.list_directory(place.path) == [f"{place.name.hex()}.pack"]
    assert FolderPublisher(folder, "", Repeatable()).sweep(folder.list_directory(INCOMING), (), never) == 0
    assert folder.exists(place.path)
    assert FolderPublisher(folder, "", Repeatable()).sweep(folder.list_directory(INCOMING), (), always) == 1
    assert not folder.exists(place.path)
    DatedQuarantine(folder, "", b"request", Repeatable()).leave()
    assert folder.list_directory(INCOMING) == []


@pytest.mark.parametrize(("call", "place"), [("stat", ""), ("list_directory", ""), ("stat", "/file")])
def test_a_sweep_by_age_leaves_what_it_may_not_look_at(folder: MemoryTransport, call: str, place: str) -> None:
    """A folder of another account, which stops nobody from removing the others."""
    for name in ("a", "closed", "z"):
        folder.make_directory(f"{INCOMING}/{name}")
        folder.put(f"{INCOMING}/{name}/file", [b"x"])

    class Closed(Stepwise):
        def before(self, named: str, path: str) -> None:
            if (named, path) == (call, f"{INCOMING}/closed{place}"):
                raise PermissionDenied(path)

    assert FolderPublisher(Closed(folder), "", Repeatable()).sweep(folder.list_directory(INCOMING), (), always) == 2
    assert folder.list_directory(INCOMING) == ["closed"]
