from __future__ import annotations

from pathlib import Path

from mercurial import context, hg, initialization, ui

from smartserver.plugins.mercurial.phase import draft_roots, phase_heads
from smartserver.vcs.hg.kinds import NULL
from smartserver.vcs.hg.repository import HgRepository

A, B, C, D, E = (bytes([n]) * 20 for n in (1, 2, 3, 4, 5))


def test_of_what_came_alone() -> None:
    """A line of three and a side of two that leaves it at the first."""
    came: dict[bytes, tuple[bytes, ...]] = {A: (), B: (A,), C: (B,), D: (A,), E: (D,)}
    assert draft_roots(None, came, (), ()) == [A]
    assert draft_roots(None, came, (), (A,)) == [B, D]
    assert draft_roots(None, came, (), (B, E)) == [C]
    assert draft_roots(None, came, (), (C, E)) == []


def test_what_is_public_and_did_not_come() -> None:
    assert draft_roots(None, {A: (), B: (A,)}, (), (C,)) == [A]


def test_heads_of_what_came() -> None:
    came: dict[bytes, tuple[bytes, ...]] = {A: (), B: (A,), C: (B,), D: (A,), E: (D,)}
    assert phase_heads(None, came, (), (C, E)) == ([], [C, E])
    assert phase_heads(None, came, (C,), (B, E)) == ([A, B], [E])
    assert phase_heads(None, came, (B,), (C,)) == ([B], [C])


def test_heads_of_what_is_here(tmp_path: Path) -> None:
    initialization.init()
    repository = hg.repository(ui.ui.load(), bytes(tmp_path / "made"), create=True)
    nodes = [NULL]
    for number in range(4):
        made = context.memctx(repository, (nodes[-1], NULL), b"%d" % number, [], lambda *_: None, user=b"u")
        nodes.append(made.commit())
    _, one, two, three, four = nodes
    local = HgRepository(repository)
    assert phase_heads(local, {}, (), (two,)) == ([], [two])
    assert phase_heads(local, {}, (three,), (two, four)) == ([three], [four])
    assert phase_heads(local, {A: (two,), B: (A,)}, (A,), (B,)) == ([A], [B])
    assert phase_heads(local, {A: (two,), B: (A,)}, (one,), (B, two)) == ([one], [B, two])
    assert draft_roots(local, {A: (four,)}, [three], [one]) == [two, A]
