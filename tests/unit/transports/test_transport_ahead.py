"""transports.decorators.ahead: what was read ahead answers once, and what was not is asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from memory_transport import MemoryTransport

from transports.base import Step, Transport
from transports.decorators.ahead import AheadTransport
from transports.decorators.passing import PassingTransport
from transports.errors import PermissionDenied, TransportFailed
from transports.steps import Get, GetStat, ListDirectory


class Trips(PassingTransport):
    """Counts them, lets nobody read `secret`, and loses its connection at `lost`."""

    def __init__(self, inner: Transport, trips: list[list[str]], *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self.trips = trips

    def wrap(self, inner: Transport, prefix: str) -> Trips:
        return Trips(inner, self.trips, prefix=prefix)

    def perform(self, steps: Sequence[Step]) -> None:
        self.trips.append([step.path for step in steps])
        for step in steps:
            if step.path == "secret":
                raise PermissionDenied(step.path)
            if step.path == "lost":
                raise TransportFailed("", "the connection is lost")
            if step.path == "odd":
                raise TransportFailed(step.path, "too many links")
            self.inner.perform([step])


@pytest.fixture
def store() -> Trips:
    made = Trips(MemoryTransport(), [])
    made.make_directory("a")
    made.put("a/one", [b"1"])
    return made


def test_what_was_read_ahead_takes_no_trip_and_is_not_kept(store: Trips) -> None:
    ahead = AheadTransport(store)
    ahead.read_ahead([ListDirectory("a"), Get("a/one"), Get("a/two")])
    assert store.trips == [["a", "a/one", "a/two"]]
    child = ahead.child("a")
    assert child.list_directory("") == ["one"]
    here, absent, looked = Get("one"), Get("two"), GetStat("two")
    child.perform([looked])
    child.perform([here, absent])
    assert (here.result, absent.result, looked.result) == (b"1", None, None)
    assert len(store.trips) == 1
    store.inner.put("a/two", [b"2"])
    again, both = Get("two"), GetStat("one")
    child.perform([again, both])
    assert again.result == b"2"
    assert both.result is not None
    assert child.list_directory("") == ["one", "two"]


def test_one_that_fails_ends_nothing_and_fails_when_it_is_asked_for(store: Trips) -> None:
    ahead = AheadTransport(store)
    ahead.read_ahead([Get("secret"), Get("a/one"), Get("secret"), ListDirectory("a")])
    assert len(store.trips) == 3
    assert ahead.list_directory("a") == ["one"]
    with pytest.raises(PermissionDenied):
        ahead.perform([Get("secret")])


def test_what_is_in_a_folder_that_fails_is_not_read_ahead(store: Trips) -> None:
    AheadTransport(store).read_ahead([ListDirectory("secret"), Get("secret/one"), Get("secret/two"), Get("a/one")])
    assert store.trips[1:] == [["a/one"]]


def test_a_lost_connection_ends_all_and_a_file_that_fails_only_itself(store: Trips) -> None:
    ahead = AheadTransport(store)
    with pytest.raises(TransportFailed, match="the connection is lost"):
        ahead.read_ahead([Get("a/one"), Get("lost"), ListDirectory("a")])
    assert len(store.trips) == 1
    ahead.read_ahead([Get("odd"), ListDirectory("a")])
    assert ahead.list_directory("a") == ["one"]
