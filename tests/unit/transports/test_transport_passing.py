"""transports.decorators.passing: every method is handed on, none falls back to the interface's own."""

from __future__ import annotations

import inspect

from transports.base import Transport
from transports.decorators.passing import PassingTransport

BUILT_ON_OTHERS = {
    "exists",
    "get_published",
    "local_folder",
    "open_published",
    "perform",
    "publish",
    "publish_as_folder",
    "put",
    "whole",
    "withdraw",
}
"""Methods that are made of others, so that a decorator of those others sees their calls; and `whole` and
`local_folder`: a decorated tree is all there is to its owner, and another process would go around the decorator."""


def test_every_method_is_handed_on() -> None:
    promised = {name for name, _ in inspect.getmembers(Transport, inspect.isfunction) if not name.startswith("_")}
    own = {name for name, _ in inspect.getmembers(PassingTransport, inspect.isfunction)} & vars(PassingTransport).keys()
    assert promised - own == BUILT_ON_OTHERS
