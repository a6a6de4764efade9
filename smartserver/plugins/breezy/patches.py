"""Changes Breezy's own classes while the plugin is loaded, by `put_around`.

Each change is made because no hook, registry or subclass of Breezy's covers the case. It is made once, passes
everything that does not concern an hpss:// server on to Breezy, and is skipped in a release without that method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from breezy import trace, uncommit

from smartserver.plugins.breezy.remote import gathering, remote_of
from smartserver.vcs.bzr.compat import dirstate_tree

_CHANGED = "_is_changed_for_hpss"


def put_around(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a method, or a function of a module, by `around`. The first argument of `around` is Breezy's own
    function."""
    stock = getattr(owner, name, None)
    if stock is None:
        trace.mutter("hpss: this Breezy has no %s.%s", owner.__name__, name)
        return
    if hasattr(stock, _CHANGED):
        return
    of_class = inspect.ismethod(stock)
    own = stock.__func__ if of_class else stock

    @functools.wraps(own)
    def instead(*arguments: Any, **options: Any) -> Any:
        return around(own, *arguments, **options)

    setattr(instead, _CHANGED, True)
    setattr(owner, name, classmethod(instead) if of_class else instead)


def _open_tree(stock: Any, tree: Any, basedir: str, branch: Any, *arguments: Any, **options: Any) -> None:
    """Register a lightweight checkout of a branch on a server when its tree is opened, because Breezy has no hook for
    that."""
    stock(tree, basedir, branch, *arguments, **options)
    remote = remote_of(branch)
    if remote is not None:
        remote.opened(tree)


def watch_trees() -> None:
    """Register each working tree that is opened on a branch of a server.

    This is called when such a branch is opened. The class of the trees is loaded by then if the command uses it;
    loading it takes some 10 ms.
    """
    kind = dirstate_tree()
    if kind is not None:
        put_around(kind, "__init__", _open_tree)


def _uncommit(stock: Any, *arguments: Any, **options: Any) -> None:
    """Send the move of the tip and the removal of tags in one request. Breezy moves the tip, then removes each tag."""
    with gathering():
        stock(*arguments, **options)


def watch_uncommit() -> None:
    """Make Breezy send an uncommit as one request."""
    put_around(uncommit, "uncommit", _uncommit)
