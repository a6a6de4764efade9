"""Finds the names inside Mercurial that moved or changed between its releases 6.3 and 7.2, for all other modules.

These are the same in all releases: `localrepo.localcommandexecutor`, `setdiscovery.findcommonheads`,
`bundlerepo.getremotechanges`, `discovery.outgoing`, `discovery.checkheads`, `exchange.push` and `pull` with their
private steps, `changegroup.getunbundler`, `bundle2.bundle20` and `encodecaps`, `obsstore.relevantmarkers(nodes)`, and
the module `error`. `extensions.wrapfunction` takes the name as a str.

Every command of hg loads this module. Nothing at its top level may therefore use an attribute of a Mercurial module:
Mercurial loads a module when an attribute of it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mercurial import changegroup, hg
from mercurial.utils import urlutil

try:
    from mercurial.repo import factory as _factory  # Since 7.2.
except ImportError:
    _factory = hg

FACTORY: Any = _factory
"""The module whose function `peer` creates each peer. `hg.peer` calls that function."""


def peer_schemes() -> Any:
    """Return Mercurial's table from the scheme of a URL to an object with `make_peer`, or `instance` before 6.4."""
    return hg.peer_schemes if hasattr(hg, "peer_schemes") else hg.schemes


def location(path: Any) -> bytes:
    """Return the URL of the path given to `make_peer`, without the branch. The path is a path object since 6.4, and the
    URL itself before."""
    if isinstance(path, bytes):
        return path
    url: bytes = path.loc or path.rawloc
    return url


def branch_resolver() -> tuple[Any, str]:
    """Return the module and the name of the function that finds the branches named by a command, given a peer."""
    return (urlutil, "add_branch_revs") if hasattr(urlutil, "add_branch_revs") else (hg, "addbranchrevs")  # Since 7.2.


def remote_ui() -> tuple[Any, str]:
    """Return the module and the name of the function that makes the configuration of a peer."""
    return (FACTORY, "_remoteui") if hasattr(FACTORY, "_remoteui") else (hg, "remoteui")  # Since 7.2.


def allow_changegroup_3(repository: Any) -> None:
    """Let a repository accept changegroups of version 03 for `hg incoming`: before 6.9 it does so only in pulls."""
    if b"03" not in changegroup.supportedincomingversions(repository):
        for ui in (repository.ui, repository.baseui):
            ui.setconfig(b"experimental", b"changegroup3", b"yes", b"hpss")


class BranchMap(dict[bytes, list[bytes]]):
    """The heads of each branch, as discovery expects them of a peer."""

    def branchheads(self, branch: bytes, closed: bool = False) -> list[bytes]:
        """Return the heads of a branch. Called since 7.2, also for closed heads: a peer does not tell which heads are
        closed."""
        return self.get(branch, [])


class BasePeer:
    """The methods that Mercurial calls on every peer. Mercurial's own base class is not used, because its module and
    abstract methods differ between releases, and nothing requires it. A subclass defines `capabilities`."""

    def __init__(self, ui: Any, path: Any) -> None:
        self.ui = ui
        self.path = path

    def peer(self, *_args: object, **_named: object) -> Any:
        """Return this peer; called before 6.4."""
        return self

    def local(self) -> None:
        """Return None, because the repository is not local."""

    def capabilities(self) -> Iterable[bytes]:
        """Return the capabilities: names, or names with values (`name=value`)."""
        raise NotImplementedError

    def capable(self, name: bytes) -> bool | bytes:
        """Return the value of a capability, or True if it has no value; False without the capability."""
        start = b"%s=" % name
        values = (capability[len(start) :] for capability in self.capabilities() if capability.startswith(start))
        return name in self.capabilities() or next(values, False)

    def cap_value(self, name: bytes) -> bytes:
        """Return the value of a capability; empty if it has no value. `hg clone --stream` calls this since 7.2."""
        value = self.capable(name)
        return b"" if isinstance(value, bool) else value
