"""records.charge: what an entry of a tree is charged for."""

from __future__ import annotations

from smartserver.records.charge import free, steps_of


def test_long_paths_are_charged_for_their_bytes() -> None:
    assert [steps_of(b""), steps_of(bytes(63)), steps_of(bytes(64)), steps_of(bytes(6400))] == [1, 1, 2, 101]


def test_nobody_is_charged() -> None:
    free(1 << 60)
