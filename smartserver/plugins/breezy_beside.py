"""What a command that reads two branches of one repository is told of both by one answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from breezy import urlutils

from smartserver.plugins.breezy_checkouts import Checkout, open_checkout
from smartserver.plugins.breezy_guess import given, is_ours, is_running

if TYPE_CHECKING:
    from smartserver.plugins.breezy_remote import Remote


def learn_beside(remote: Remote) -> None:
    """Learn from what is said of the branch that a command reads besides, if what this one has is here."""
    checkout = open_checkout(str(given("directory") or ".")) if is_running("switch") else None
    if checkout is not None:
        _learn_from_new(remote, checkout)
        return
    beside = next((other for other in remote.server.read.remotes.values() if other is not remote), None)
    if beside is None or remote.target is None:
        return
    if not beside.is_known:
        beside.ask_anew()
    at, known = beside.look().at, beside.knowledge.beside(remote.path)
    value = known.ref(known.named or b"")
    if known.at == at and value is not None and remote.target.has_revision(value[0].id):
        remote.learn_from(known)


def _learn_from_new(remote: Remote, checkout: Checkout) -> None:
    """Learn from what is said of the branch that a lightweight checkout of this one is switched to."""
    other = _switched_to(remote, checkout)
    if other is None or other is remote:
        return
    at, known = other.look().at, other.knowledge.beside(remote.path)
    if other.content is not None and known.at == at and known.ref(known.named or b"") is not None:
        remote.learn_from(known, other.content)


def _switched_to(remote: Remote, checkout: Checkout) -> Remote | None:
    """The branch on the same server that a lightweight checkout is switched to."""
    from smartserver.plugins.breezy_transport import HpssTransport

    place = str(given("to_location") or "")
    if not place or given("create_branch"):
        return None
    if not is_ours(place):
        if ":" in place or os.path.exists(place):
            return None
        place = urlutils.join(checkout.branch, "..", urlutils.escape(place))
    transport = HpssTransport(place)
    if transport.server is not remote.server:
        return None
    other = type(remote)(transport, transport.get_segment_parameters().get("branch", ""))
    found: Remote = remote.server.read.remotes.setdefault(other.path, other)
    return found
