"""What Breezy's own classes do otherwise while the plugin is loaded. Nothing else of them is changed anywhere.

Each change is here because no hook, registry or subclass of Breezy's comes to where it is needed. It is made once,
leaves to Breezy whatever is not of an hpss:// server, and is left out where a release has no such method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from breezy import trace, urlutils
from breezy.controldir import ControlDir
from breezy.directory_service import AliasDirectory

from smartserver.plugins.breezy.checkouts import opened
from smartserver.plugins.breezy.commands import reads_options
from smartserver.plugins.breezy.given import is_ours
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.vcs.brz_compat import BzrDir, BzrDirMetaFormat1, dirstate_tree, git_directory

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


def _open_containing(stock: Any, cls: Any, a_transport: Any, probers: object = None) -> Any:
    """Find the branch that a path leads into by one request.

    Breezy opens one place after the other, further up each time; of ours the first can be opened, whether anything is
    there or not, and a place that is opened is not told whether it is where the path ends.
    """
    if not isinstance(a_transport, HpssTransport):
        return stock(cls, a_transport, probers)
    from smartserver.plugins.breezy.controldir import open_containing

    return open_containing(a_transport)


def _find_branches(stock: Any, cls: Any, transport: Any) -> Any:
    """Find the branches at and below a place by one request (`brz branches -R`).

    Breezy lists folders and opens each; of a place on a server there are none to be listed.
    """
    if not isinstance(transport, HpssTransport):
        return stock(cls, transport)
    from smartserver.plugins.breezy.controldir import branches_below

    return branches_below(transport)


def _initialize(stock: Any, format: Any, transport: Any, *arguments: Any, **options: Any) -> Any:  # noqa: A002
    """Make a repository on a server (`brz init-shared-repository`).

    The format is one of Breezy's own, and it asks nobody but Bazaar's smart protocol before it writes files.
    """
    if not isinstance(transport, HpssTransport):
        return stock(format, transport, *arguments, **options)
    from smartserver.plugins.breezy.controldir import make_repository

    return make_repository(transport, format)


def _sprout(stock: Any, source: Any, url: str, *arguments: Any, **options: Any) -> Any:
    """Make a branch on a server from one that is anywhere (`brz branch`, `brz switch -b`).

    What is asked is the directory it is made from, which is one of Breezy's own. It makes an empty repository, fills
    that, makes a branch, and reads the new tree.
    """
    if not is_ours(url):
        try:
            return stock(source, url, *arguments, **options)
        except OSError as wrong:
            if wrong.filename is None and isinstance(source.root_transport, HpssTransport):
                wrong.filename = urlutils.unescape_for_display(url, "utf-8")  # Nobody says which disk is full.
            raise
    from smartserver.plugins.breezy.controldir import sprout

    return sprout(source, url, inspect.signature(stock).bind(source, url, *arguments, **options).arguments)


def _clone(stock: Any, source: Any, transport: Any, *arguments: Any, **options: Any) -> Any:
    """Make a copy of a branch on a server (`Branch.create_clone_on_transport`), as `_sprout` does."""
    if not isinstance(transport, HpssTransport):
        return stock(source, transport, *arguments, **options)
    from smartserver.plugins.breezy.controldir import sprout

    asked = inspect.signature(stock).bind(source, transport, *arguments, **options).arguments
    return sprout(source, transport.base, asked, clones=True)


def _open_tree(stock: Any, tree: Any, basedir: str, branch: Any, *arguments: Any, **options: Any) -> None:
    """Learn of a checkout of a branch on a server when its tree is opened: there is a hook for branches alone."""
    stock(tree, basedir, branch, *arguments, **options)
    if isinstance(getattr(branch, "user_transport", None), HpssTransport):
        opened(tree)


def _look_up(stock: Any, directory: Any, *arguments: Any, **options: Any) -> Any:
    """Look up the alias of a location (`:parent`): in a lightweight checkout a server has the options that say it."""
    with reads_options():
        return stock(directory, *arguments, **options)


def apply() -> None:
    """Make those changes that every use of a server may need."""
    put_around(ControlDir, "open_containing_from_transport", _open_containing)
    put_around(ControlDir, "find_branches", _find_branches)
    put_around(BzrDirMetaFormat1, "initialize_on_transport_ex", _initialize)
    put_around(BzrDir, "sprout", _sprout)
    put_around(BzrDir, "clone_on_transport", _clone)
    if (kind := git_directory()) is not None:  # The source is opened before the target's URL is met.
        put_around(kind, "sprout", _sprout)
    put_around(AliasDirectory, "look_up", _look_up)


def watch_trees() -> None:
    """Learn of each working tree that is opened on a branch of a server, which was opened before.

    That is when their class has been loaded, if it ever will be: it takes some 10 ms.
    """
    kind = dirstate_tree()
    if kind is not None:
        put_around(kind, "__init__", _open_tree)
