"""Two branches that went apart, 100 revisions on each side: what `brz pull` and `merge` of the other move over the
link, beside the content of exactly the revisions that are missing (`pytest -s` prints them).
"""

from __future__ import annotations

import random

import pytest
from brz_sides import Begin, Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

COUNT = 100
"""Revisions both have, and that each has alone."""
SIZE = 20_000
"""Bytes of incompressible content of each."""
MOST = 1.1
"""Bytes that may come, in those that are missing."""


def go_apart(users: Users) -> None:
    """User b has pulled the base and gone on; so has the server's branch."""
    noise = random.Random(1)
    for where, name in (("a", "base"), ("a", "theirs"), ("b", "mine")):
        for _ in range(COUNT):
            users.commit(where, name, noise.randbytes(SIZE))
        if where == "a":
            users.fine("a", "push")
        if name == "base":
            users.fine("b", "pull")


@pytest.fixture
def apart(changed: Begin) -> Users:
    return changed(go_apart)


def check(users: Users, words: list[str], status: int, said: str) -> None:
    """Run one command in one round trip, and compare the bytes that came with those that were missing."""
    done = users.run("b", *words)
    assert done.status == status, done.said
    assert said in done.said
    assert done.counts.rounds == 2, "one, and one to connect"
    ratio = done.counts.bytes_down / (COUNT * SIZE)
    print(f"{words[0]}: {done.counts.bytes_down:,} bytes came: {ratio:.3f}; {done.counts.bytes_up:,} went")
    assert ratio <= MOST, done.counts


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["pull"], 3, "These branches have diverged."),
        (["merge"], 0, "All changes applied successfully"),
        (["missing", "--theirs-only", "--line"], 1, f"You are missing {COUNT} revisions"),
    ],
)
def test_what_is_remembered_tells_what_is_common(apart: Users, words: list[str], status: int, said: str) -> None:
    check(apart, words, status, said)


def test_nothing_is_remembered(apart: Users) -> None:
    apart.forget("b")
    check(apart, ["pull", "--overwrite"], 0, "Now on revision")
