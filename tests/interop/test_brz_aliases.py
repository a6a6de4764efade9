"""Aliases of locations (`:parent/f`), and locations that are taken for what they are not: the answer is the same as for
the URL: plugins.breezy.controldir."""

from __future__ import annotations

import pytest
from brz_sides import Begin, Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

READS = {
    "annotate": ("annotate", "one"),
    "ls": ("ls", "-d", ""),
    "log, one file": ("log", "one"),
    "tags": ("tags", "-d", ""),
}
"""By budget: a command, and what is read of the branch; the last word goes behind the branch's own location."""


def edit(users: Users) -> None:
    """`trunk` has several versions of `one`, and users a and b know where they push to and pull from."""
    for number in range(3):
        users.commit("a", "one", b"one\n%d\n" % number)
    assert users.run("a", "push", "-q", users.url()).status == 0
    users.forget("b")


@pytest.fixture
def edited(changed: Begin) -> Users:
    return changed(edit)


@pytest.mark.parametrize("budget", READS)
def test_an_alias(edited: Users, budget: str) -> None:
    *words, inside = READS[budget]
    place = [edited.url(), ":parent"]
    named, alias = [f"{each}/{inside}" if inside else each for each in place]
    expected = edited.run("b", *words, named).out
    assert expected
    edited.forget("b")
    # A file of a branch that was never met is looked for at its own path, too, as by its URL.
    assert edited.ask(budget, "b", *words, alias) == expected
    pushed = edited.run("a", *words, alias.replace(":parent", ":push"))
    assert (pushed.status, pushed.out) == (0, expected)


@pytest.mark.unbanned("Breezy looks the alias up before the plugin is loaded, and then the plugin does")
@pytest.mark.parametrize("budget", ["annotate", "ls", "log, one file"])
def test_an_alias_in_a_lightweight_checkout(edited: Users, budget: str) -> None:
    """The server itself says what it stands for."""
    *words, inside = READS[budget]
    assert edited.run("b", "push", "-q", edited.url("other")).status == 0
    assert edited.run("", "checkout", "--lightweight", "-q", edited.url("other"), "light").status == 0
    assert edited.run("light", "config", f"parent_location={edited.url()}").status == 0
    expected = edited.run("a", *words, f"{edited.url()}/{inside}" if inside else edited.url()).out
    done = edited.run("light", *words, f":parent/{inside}" if inside else ":parent")
    assert (done.status, done.out) == (0, expected), done.said


def test_an_alias_that_stands_for_nothing(edited: Users) -> None:
    assert edited.refused("b", "log", ":submit/one") == "brz: ERROR: No submit/one location assigned.\n"


def test_uncommit_by_an_alias(edited: Users) -> None:
    edited.ask("uncommit, not remembered", "b", "uncommit", "--force", ":parent")
    assert edited.served_tip() == (5, edited.revision("a", 5))
