"""plugins.mercurial.push: a long history that the server has, pushed by a user who knows nothing of the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_sides import Served, check_rounds, fine
from hg_sides import BUDGETS, HgSide

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LONG = """
hg init a
for n in 1 2 3; do head -c 60000 /dev/urandom > a/noise; a hg commit -q -A -m "noise $n"; done
a hg push -q "$URL"
a commit one; forget a
"""


def test_what_is_there_is_asked_before_it_is_sent(served: Served, tmp_path: Path) -> None:
    side = HgSide(tmp_path / "ours", served.url("hg-first-contact"), served)
    side.prepare(LONG)
    done = fine(side.run('a hg push "$URL"'), 1 + BUDGETS["hg push by one who knows nothing, long"])
    assert done.out.endswith("added 1 changesets\n")
    assert done.counts.bytes_up < 2000
    # Where all is public, it may be another server: it is sent at once.
    side.prepare("a hg init ../other; a hg push -q ../other")
    elsewhere = served.url("hg-first-contact-2")
    fine(side.run(f'a hg push "{elsewhere}"'), 2)
    # But not where it was cloned from.
    side.prepare(f'as b hg clone -q "{elsewhere}" b; forget b')
    done = side.run("b hg push")
    check_rounds(done.counts, 1 + BUDGETS["hg push of nothing by one who knows nothing, long"])
    assert (done.status, done.out.splitlines()[-1]) == (1, "no changes found")
    assert done.counts.bytes_up < 2000
