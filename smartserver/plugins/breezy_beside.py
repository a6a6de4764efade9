"""What a command that reads two branches of one repository is told of both by one answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from breezy import urlutils
from breezy.plugins import hpss

from smartserver.client.knowledge import Knowledge
from smartserver.plugins.breezy_checkouts import Checkout, open_checkout
from smartserver.plugins.breezy_guess import is_running
from smartserver.plugins.breezy_server import cache_folder, root_of

if TYPE_CHECKING:
    from smartserver.plugins.breezy_remote import Remote


def learn_beside(remote: Remote) -> None:
    """Learn from what is said of the branch that a command reads besides, if what this one has is here."""
    checkout = open_checkout(str(hpss.arguments.get("directory") or ".")) if is_running("switch") else None
    if checkout is not None:
        _learn_from_new(remote, checkout)
        return
    beside = next((other for other in remote.server.remotes.values() if other is not remote), None)
    if beside is None or remote.target is None:
        return
    if not beside.is_known:
        beside.ask_anew()
    known = _known(remote)
    value = known.ref(known.named or b"")
    if known.at == beside.look().at and value is not None and remote.target.has_revision(value[0].id):
        remote.learn_from(known)


def _learn_from_new(remote: Remote, checkout: Checkout) -> None:
    """Learn from what is said of the branch that a lightweight checkout of this one is switched to."""
    other = _switched_to(remote, checkout)
    if other is None or other is remote:
        return
    at = other.look().at
    known = _known(remote)
    if other.content is not None and known.at == at and known.ref(known.named or b"") is not None:
        remote.learn_from(known, other.content)


def _switched_to(remote: Remote, checkout: Checkout) -> Remote | None:
    """The branch on the same server that a lightweight checkout is switched to."""
    from smartserver.plugins.breezy_transport import HpssTransport

    given = str(hpss.arguments.get("to_location") or "")
    if not given or hpss.arguments.get("create_branch"):
        return None
    if not given.startswith(hpss.SCHEMES):
        if ":" in given or os.path.exists(given):
            return None
        given = urlutils.join(checkout.branch, "..", urlutils.escape(given))
    transport = HpssTransport(given)
    if transport.server is not remote.server:
        return None
    other = type(remote)(transport, transport.get_segment_parameters().get("branch", ""))
    found: Remote = remote.server.remotes.setdefault(other.path, other)
    return found


def _known(remote: Remote) -> Knowledge:
    """What is known of a branch now, by whatever was answered to whom."""
    return Knowledge(cache_folder(), root_of(remote.location) + remote.path, remote.path)
