from __future__ import annotations

from smartserver.plugins.mercurial.phase import draft_roots, is_publishing

A, B, C, D, E = (bytes([n]) * 20 for n in (1, 2, 3, 4, 5))


def test_whether_it_publishes() -> None:
    assert is_publishing({})
    assert is_publishing({"publishing": b"yes"})
    assert not is_publishing({"publishing": b"no"})


def test_of_what_came_alone() -> None:
    """A line of three and a side of two that leaves it at the first."""
    came: dict[bytes, tuple[bytes, ...]] = {A: (), B: (A,), C: (B,), D: (A,), E: (D,)}
    assert draft_roots(None, came, (), ()) == [A]
    assert draft_roots(None, came, (), (A,)) == [B, D]
    assert draft_roots(None, came, (), (B, E)) == [C]
    assert draft_roots(None, came, (), (C, E)) == []


def test_what_is_public_and_did_not_come() -> None:
    assert draft_roots(None, {A: (), B: (A,)}, (), (C,)) == [A]
