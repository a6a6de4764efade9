"""transports.decorators.passing: every method is handed on, none falls back to the interface's own."""

from __future__ import annotations

import inspect

from transports.base import Transport
from transports.decorators.passing import PassingTransport
from transports.local import LocalTransport
from transports.memory import MemoryTransport

BUILT_ON_OTHERS = {"exists", "local_folder", "perform", "put", "whole"}
"""Methods that are made of others, so that a decorator of those others sees their calls; and `whole` and
`local_folder`: a decorated tree is all there is to its owner, and another process would go around the decorator."""


def test_every_method_is_handed_on() -> None:
    promised = {name for name, _ in inspect.getmembers(Transport, inspect.isfunction) if not name.startswith("_")}
    own = {name for name, _ in inspect.getmembers(PassingTransport, inspect.isfunction)} & vars(PassingTransport).keys()
    assert promised - own == BUILT_ON_OTHERS


def test_capabilities_are_those_inside() -> None:
    for inner in (LocalTransport("/"), MemoryTransport()):
        assert PassingTransport(inner).capabilities == inner.capabilities
        assert PassingTransport(inner).child("a").capabilities == inner.capabilities


def test_children_keep_the_decorator_and_their_prefix() -> None:
    class Mine(PassingTransport):
        pass

    child = Mine(MemoryTransport()).child("a").child("b")
    assert type(child) is Mine
    assert child.full("c") == "a/b/c"


def test_real_path_is_that_inside() -> None:
    assert PassingTransport(LocalTransport("/")).child("usr").real_path("..x") == "/usr/..x"
