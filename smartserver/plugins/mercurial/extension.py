"""Wraps the functions of Mercurial that must behave differently for an hpss:// peer. `hgext3rd/hpss.py` imports it."""

from __future__ import annotations

import atexit
import functools
import gc
from collections.abc import Callable
from typing import Any

from mercurial import bundlerepo, error, exchange, extensions, setdiscovery, subrepoutil
from mercurial.i18n import _

from smartserver.client.places import SCHEMES
from smartserver.plugins.mercurial.compat import FACTORY, allow_changegroup_3, branch_resolver, peer_schemes, remote_ui
from smartserver.plugins.mercurial.peer import HpssPeer, Scheme
from smartserver.plugins.mercurial.push import push_bundle
from smartserver.plugins.mercurial.remote import RequestLevel
from smartserver.plugins.mercurial.words import refusal
from smartserver.vcs.hg.kinds import NULL

Original = Callable[..., Any]


def uisetup(ui: Any) -> None:
    """Register the schemes and wrap the functions."""
    del ui
    # As Python ends, it collects garbage among all objects, which takes a sixth of a short command's time.
    atexit.register(gc.freeze)
    for scheme in SCHEMES:
        peer_schemes()[scheme.encode()] = Scheme
    extensions.wrapfunction(FACTORY, "peer", _peer)
    extensions.wrapfunction(*remote_ui(), _remote_ui)
    extensions.wrapfunction(*branch_resolver(), _add_branches)
    extensions.wrapfunction(setdiscovery, "findcommonheads", _find_common_heads)
    extensions.wrapfunction(exchange, "pull", _pull)
    extensions.wrapfunction(exchange, "_pullobsolete", _pull_obsolete)
    extensions.wrapfunction(exchange, "push", _push)
    extensions.wrapfunction(exchange, "_pushbundle2", _push_bundle)
    mapping = exchange.pushdiscoverymapping
    mapping[b"bookmarks"] = functools.partial(_discover_bookmarks, mapping[b"bookmarks"])
    extensions.wrapfunction(bundlerepo, "getremotechanges", _get_remote_changes)


def extsetup(ui: Any) -> None:
    """Do nothing, because `uisetup` has registered everything."""
    del ui


def _peer(original: Original, source: Any, options: Any, *arguments: Any, **named: Any) -> Any:
    """Give a peer the local repository, and the names in the command's options."""
    peer = original(source, options, *arguments, **named)
    if isinstance(peer, HpssPeer):
        if hasattr(source, "changelog"):
            peer.remote.bind(source)
        peer.names(options, source)
    return peer


def _remote_ui(original: Original, source: Any, *arguments: Any) -> Any:
    """Copy the section `hpss` of the repository's configuration to that of a peer, as Mercurial does with its own
    sections."""
    found = original(source, *arguments)
    for name, value in getattr(source, "ui", source).configitems(b"hpss"):
        found.setconfig(b"hpss", name, value, b"copied")
    return found


def _add_branches(original: Original, source: Any, peer: Any, branches: Any, *arguments: Any, **named: Any) -> Any:
    """Give a peer the name in the fragment of its URL, which is the first of `branches`."""
    if isinstance(peer, HpssPeer) and branches[0]:
        peer.name_fragment(branches[0], source)
    return original(source, peer, branches, *arguments, **named)


def _find_common_heads(original: Original, ui: Any, local: Any, peer: Any, *arguments: Any, **named: Any) -> Any:
    """Return the common heads, whether there are incoming changesets, and the remote heads. For a push they are
    computed from cached state."""
    if not isinstance(peer, HpssPeer):
        return original(ui, local, peer, *arguments, **named)
    remote = peer.remote
    remote.bind(local)
    if not peer.is_pushed_to:
        if not peer.is_pulled_from:
            remote.wanted = None  # The names given to `outgoing` are those of the local repository.
        remote.ask(RequestLevel.HISTORY if peer.is_pulled_from else RequestLevel.GRAPH)
    of = named.get("ancestorsof")
    matters = of is None or list(of) != [NULL]  # NULL is passed for a bookmark to be removed.

    heads, common = remote.heads(), remote.visible_common(local)

    def is_unrelated() -> bool:
        """Tell whether both repositories have changesets, and none in common, as far as is known."""
        return matters and bool(len(local.changelog) and heads and not common)

    if peer.is_pushed_to and (is_unrelated() or (remote.evolves and remote.has_unknown_heads())):
        # The cache has only heads, one of which may have replaced a head that is here.
        remote.ask_whether_there(RequestLevel.GRAPH)
        heads, common = remote.heads(), remote.visible_common(local)
    if is_unrelated():
        remote.ask_beside_history()  # Changesets that were not named may be common.
        common = remote.visible_common(local)
    audit = named.get("audit")
    if audit is not None:  # `hg debugdiscovery` prints it.
        audit |= {b"total-roundtrips": 1, b"total-queries": 0}
    searching = _(b"searching for changes\n")
    if len(local.changelog) and peer.says_first(searching):
        ui.status(searching)
    if is_unrelated():
        if named.get("abortwhenunrelated", True):
            raise error.Abort(_(b"repository is unrelated"))
        peer.warn_unrelated(ui)
    return common or [NULL], not all(map(local.changelog.hasnode, heads)), heads or [NULL]


def _pull(original: Original, repository: Any, peer: Any, *arguments: Any, **named: Any) -> Any:
    if isinstance(peer, HpssPeer):
        peer.remote.bind(repository)
        peer.is_pulled_from = True
    return original(repository, peer, *arguments, **named)


def _pull_obsolete(original: Original, operation: Any) -> Any:
    """Remember the exchanged markers once the pull's transaction is closed, and before its lock is released."""
    done = original(operation)
    if isinstance(operation.remote, HpssPeer) and operation.remote.remote.level is RequestLevel.HISTORY:
        remote, transaction = operation.remote.remote, operation.trmanager._tr
        if transaction is None:
            remote.took_markers()
        else:
            transaction.addpostclose(b"hpss-markers", lambda _transaction: remote.took_markers())
    return done


def _get_remote_changes(original: Original, ui: Any, repository: Any, peer: Any, *arguments: Any, **named: Any) -> Any:
    if isinstance(peer, HpssPeer):
        allow_changegroup_3(repository)
        peer.remote.bind(repository)
        peer.remote.is_only_shown = True
        peer.is_pulled_from = True
    return original(ui, repository, peer, *arguments, **named)


def _check_place(repository: Any) -> None:
    """Refuse to push a subrepository to a URL below that of its parent. Mercurial pushes a subrepository first, and the
    server would then refuse the parent, because a repository exists below the parent's URL."""
    if hasattr(repository, "_subparent"):
        parent, place = (subrepoutil._abssource(member, True) for member in (repository._subparent, repository))
        if place.startswith(parent.rstrip(b"/") + b"/"):
            reason = "a subrepository below its parent's URL cannot be pushed over hpss://"
            raise refusal(f"{reason}: name a URL elsewhere in .hgsub")


def _push(original: Original, repository: Any, peer: Any, *arguments: Any, **named: Any) -> Any:
    if isinstance(peer, HpssPeer):
        _check_place(repository)
        peer.remote.bind(repository)
        peer.is_pushed_to = True
    return original(repository, peer, *arguments, **named)


def _discover_bookmarks(original: Original, operation: Any) -> Any:
    """Find the bookmarks to push. A message about a bookmark may be based on stale state, so ask the server before
    printing it, once."""
    peer = operation.remote
    if not isinstance(peer, HpssPeer):
        return original(operation)
    said = _messages(original, operation)
    if said and not peer.remote.level:
        peer.remote.ask_whether_there()
        operation.outbookmarks, operation.bkresult = [], None
        said = _messages(original, operation)
    if said and peer.says_first(said):
        operation.ui.warn(said)
    return None


def _messages(step: Original, operation: Any) -> bytes:
    """Run a step of a push and return its messages instead of printing them."""
    operation.ui.pushbuffer(error=True)
    try:
        step(operation)
    finally:
        said: bytes = operation.ui.popbuffer()
    return said


def _push_bundle(original: Original, operation: Any) -> Any:
    if isinstance(operation.remote, HpssPeer):
        return push_bundle(operation)
    return original(operation)
