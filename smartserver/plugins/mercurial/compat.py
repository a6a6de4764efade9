"""Names inside Mercurial that moved or changed between its releases 6.3 and 7.2. No other module looks for them.

These are the same in all of them: `localrepo.localcommandexecutor`, `setdiscovery.findcommonheads`,
`bundlerepo.getremotechanges`, `discovery.outgoing`, `discovery.checkheads`, `exchange.push` and `pull` with their
private steps, `changegroup.getunbundler`, `bundle2.bundle20` and `encodecaps`, `obsstore.relevantmarkers(nodes)`, and
the module `error`. `extensions.wrapfunction` takes the name as a str.
"""

from __future__ import annotations

from typing import Any

from mercurial import bundle2, hg

try:
    from mercurial.repo import factory as _factory  # Since 7.2.
except ImportError:
    _factory = hg

try:
    from mercurial.exchanges.peer import Peer as _Peer  # Since 7.2, with abstract methods.
except ImportError:
    from mercurial.interfaces.repository import peer as _Peer

try:
    from mercurial.wireprotov1peer import RemoteBranchMap as _RemoteBranchMap  # Since 7.2.
except ImportError:
    _RemoteBranchMap = dict

try:
    from mercurial.exchanges.bundle_caps import get_repo_caps as _bundle_capabilities  # Since 7.2.
except ImportError:
    _bundle_capabilities = bundle2.getrepocaps

FACTORY: Any = _factory
"""The module whose `peer` makes each peer: `hg.peer` calls it."""

RemoteBranchMap: Any = _RemoteBranchMap
"""The heads of each branch, as discovery expects them of a peer."""

bundle_capabilities: Any = _bundle_capabilities
"""What a repository understands in a bundle, as `bundle2.encodecaps` takes it: `role` is b"client" or b"server"."""


def peer_schemes() -> Any:
    """Mercurial's table from the scheme of a URL to an object with `make_peer`, or `instance` before 6.4."""
    return hg.peer_schemes if hasattr(hg, "peer_schemes") else hg.schemes


def location(path: Any) -> bytes:
    """The URL of what `make_peer` is given: a path object since 6.4, the URL itself before. Its branch is not in it."""
    if isinstance(path, bytes):
        return path
    url: bytes = path.loc or path.rawloc
    return url


def revlog_of(storage: Any) -> Any:
    """The revlog inside the storage of a file or of the manifests; a revlog is its own."""
    if hasattr(storage, "get_revlog"):  # Since 6.9.
        return storage.get_revlog()
    return getattr(storage, "_revlog", storage)


class Peer(_Peer):  # type: ignore[misc]
    """A peer in all releases. One that lacks a method some release wants can be made, and fails when that is called."""

    __abstractmethods__: frozenset[str]

    def __new__(cls, *_args: object, **_named: object) -> Any:
        """An object, whatever methods are abstract in this release."""
        cls.__abstractmethods__ = frozenset()
        return super().__new__(cls)

    def __init__(self, ui: Any, path: Any) -> None:
        self.ui = ui
        self.path = path

    def peer(self, *_args: object, **_named: object) -> Any:
        """Itself; asked before 6.4."""
        return self

    def is_capable(self, name: bytes) -> bool:
        """Whether it has a capability; asked since 7.2."""
        return self.capable(name) is not False

    def cap_value(self, name: bytes) -> bytes:
        """The value of a capability, empty without one; asked since 7.2."""
        value = self.capable(name)
        return b"" if isinstance(value, bool) else bytes(value)
