"""The knowledge of a remote that a user of brz keeps may be missing, old, wrong or garbage: commands still do their
work, in one more round trip at most."""

from __future__ import annotations

import random

import pytest
from brz_sides import Begin, Users
from git_sides import Done

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LARGE = 400_000
"""A size of content that no client would send twice; a push of this much announces its graph first."""


def fine(done: Done, trips: int = 1) -> Done:
    """Check that a command succeeded in so many round trips at most, and one to connect; return its results."""
    assert done.status == 0, done.said
    assert done.counts.rounds <= trips + 1, (done.counts, done.said)
    return done


def with_much(users: Users) -> None:
    """Much content, which user a has pushed and user b has pulled."""
    users.commit("a", "large", random.Random(1).randbytes(LARGE))
    assert users.run("a", "push").status == 0
    assert users.run("b", "pull").status == 0


@pytest.fixture
def large(changed: Begin) -> Users:
    return changed(with_much)


def test_nothing_is_remembered(large: Users) -> None:
    large.forget("a")
    large.commit("a", "more")
    assert "Pushed up to revision 5." in large.ask("push, first contact, large", "a", "push")
    large.forget("a")
    pushed = large.run_within("push, first contact, large", "a", "push", large.url("topic"))
    assert pushed.counts.bytes_up < LARGE / 2
    large.forget("b")
    assert "No new revisions or tags" in fine(large.run("b", "push", large.url()), 2).err
    large.forget("b")
    pulled = fine(large.run("b", "pull"))
    assert pulled.counts.bytes_down < LARGE / 2
    assert large.tip("b") == large.served_tip()


def test_what_is_remembered_is_old(large: Users) -> None:
    (file,) = large.knowledge_files("a")
    old = file.read_bytes()
    for name in ("four", "five"):
        large.commit("a", name)
        large.tag("a", name)
        fine(large.run("a", "push"))
        file.write_bytes(old)
    fine(large.run("b", "pull"))
    large.commit("b", "six")
    fine(large.run("b", "push", large.url()))
    # The tip is one user a does not have, and not the one remembered.
    assert "No new revisions or tags" in fine(large.run("a", "push")).err
    fine(large.run("a", "pull", large.url()))
    assert large.tip("a") == large.tip("b") == large.served_tip()
    # A tag that is remembered, and was removed meanwhile.
    assert large.run("", "tag", "-d", large.url(), "--delete", "four").status == 0
    assert "1 tag updated." in fine(large.run("a", "push"), 2).err
    assert "four" in large.served_entries("tags")
