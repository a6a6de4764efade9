"""Histories at random, sound and hostile, pushed to a server that proves them natively and to one that does it in
Python: both end in the same pack with the same index, or in the same error.
"""

from __future__ import annotations

import os

import pytest
from bzr_world import BzrWorld
from git_world import GitWorld
from hg_world import HgWorld
from hypothesis import given, settings
from hypothesis import strategies as st
from intake_worlds import World
from needs import needs
from twin_pushes import push_both_ways

pytestmark = [needs("native parts"), pytest.mark.parametrize("world", [GitWorld, BzrWorld, HgWorld])]
EXAMPLES = settings(max_examples=int(os.environ.get("EXAMPLES", "150")), deadline=None)
SEEDS = st.integers(0, 1 << 32)


@EXAMPLES
@given(SEEDS, st.sampled_from([0, 0, 1, 2]), st.lists(st.integers(1, 3000), max_size=3))
def test_histories(world: type[World], seed: int, oddness: int, pieces: list[int]) -> None:
    """The body is cut into pieces."""
    made = world(seed, world.odd[oddness])
    segments = made.history()
    stored = made.chance.choice([0, 0, len(segments) // 2])
    push_both_ways(made.system, segments, pieces, stored, is_plain=not oddness)


@EXAMPLES
@given(SEEDS, st.integers(1, 4))
def test_changed_bytes(world: type[World], seed: int, flips: int) -> None:
    made = world(seed, 0.0)
    segments = made.history()
    at = made.chance.randrange(len(segments))
    changed = bytearray(segments[at])
    for _ in range(flips):
        place = made.chance.randrange(1, len(changed))
        changed[place] = made.chance.choice([changed[place] ^ 1 << made.chance.randrange(8), 0, 1, 127, 128, 255])
    segments[at] = bytes(changed)
    push_both_ways(made.system, segments, [], 0)
