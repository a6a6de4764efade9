"""plugins.breezy.patches, plugins.breezy.controldir: what Breezy's classes do otherwise, once, for our URLs alone."""

from __future__ import annotations

from typing import Any

import pytest
from breezy import uncommit
from breezy.bzr.bzrdir import BzrDir, BzrDirMetaFormat1
from breezy.bzr.workingtree_4 import DirStateWorkingTree
from breezy.controldir import ControlDir

from smartserver.plugins.breezy.controldir import change_breezy
from smartserver.plugins.breezy.patches import put_around, watch_trees

CHANGED = [
    (ControlDir, "open_containing_from_transport"),
    (ControlDir, "find_branches"),
    (BzrDirMetaFormat1, "initialize_on_transport_ex"),
    (BzrDir, "sprout"),
    (DirStateWorkingTree, "__init__"),
    (uncommit, "uncommit"),
]


class Above:
    """A class of Breezy's, as far as this is concerned."""

    @classmethod
    def of_class(cls, name: str) -> str:
        return f"{cls.__name__}: {name}"

    def own(self, name: str) -> str:
        """The original."""
        return name


class Below(Above):
    """One that has its methods from another."""


def loud(stock: Any, owner: object, name: str) -> str:
    found: str = stock(owner, name)
    return found.upper()


def test_a_method_is_put_around_once() -> None:
    for _ in range(3):
        put_around(Below, "own", loud)
        put_around(Below, "of_class", loud)
    assert Below().own("a") == "A"
    assert Below.own.__doc__ == "The original."
    assert Below.of_class("b") == Below().of_class("b") == "BELOW: B"
    assert (Above().own("a"), Above.of_class("b")) == ("a", "Above: b")


def test_what_a_release_does_not_have_is_left_out() -> None:
    put_around(Above, "another", loud)
    assert not hasattr(Above, "another")


@pytest.mark.parametrize(("owner", "name"), CHANGED, ids=[name for _, name in CHANGED])
def test_each_is_there_and_changed_once(owner: object, name: str) -> None:
    change_breezy()
    watch_trees()
    first = getattr(owner, name)
    change_breezy()
    watch_trees()
    assert getattr(owner, name) == first
    assert first.__wrapped__.__name__ == name
