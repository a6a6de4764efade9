"""What Breezy's own classes do otherwise while the plugin is loaded. Nothing else of them is changed anywhere.

Each change is here because no hook, registry or subclass of Breezy's comes to where it is needed. It is made once,
leaves to Breezy whatever is not of an hpss:// server, and is left out where a release has no such method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from breezy import trace
from breezy.directory_service import AliasDirectory

from smartserver.plugins.breezy.checkouts import opened
from smartserver.plugins.breezy.commands import reads_options
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.vcs.bzr.compat import dirstate_tree

_CHANGED = "_is_changed_for_hpss"


def put_around(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Have each call of a class's method go to `around`, which is given Breezy's own method before the arguments."""
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
    """Learn of a checkout of a branch on a server when its tree is opened: there is a hook for branches alone."""
    stock(tree, basedir, branch, *arguments, **options)
    if isinstance(getattr(branch, "user_transport", None), HpssTransport):
        opened(tree)


def _look_up(stock: Any, directory: Any, *arguments: Any, **options: Any) -> Any:
    """Look up the alias of a location (`:parent`): in a lightweight checkout a server has the options that say it."""
    with reads_options():
        return stock(directory, *arguments, **options)


def watch_aliases() -> None:
    """Look up aliases of locations so: one request asks for the options, and for nothing else."""
    put_around(AliasDirectory, "look_up", _look_up)


def watch_trees() -> None:
    """Learn of each working tree that is opened on a branch of a server, which was opened before.

    That is when their class has been loaded, if it ever will be: it takes some 10 ms.
    """
    kind = dirstate_tree()
    if kind is not None:
        put_around(kind, "__init__", _open_tree)
