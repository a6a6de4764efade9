"""What a command that reads two branches of one repository is told of both by one answer."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from breezy import urlutils

from smartserver.plugins.breezy.checkouts import Checkout, checkout_of, open_checkout
from smartserver.plugins.breezy.commands import Second, running
from smartserver.plugins.breezy.given import TIP, arguments, given, is_ours
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.plugins.breezy.wanted import Wanted, compared_branches, pulled_into
from smartserver.vcs.bzr.selector import Named, TreesField

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smartserver.plugins.breezy.remote import Remote


def learn_beside(remote: Remote) -> None:
    """Learn from what is said of the branch that a command reads besides, if what this one has is here."""
    second, checkout = running().second, None
    if running().moves_checkout:
        find = open_checkout if second is Second.SWITCHED_TO else checkout_of
        checkout = find(str(given("directory") or "."))
    if checkout is not None:
        _learn_from_new(remote, checkout)
        return
    if second is Second.TREE and len(places := compared_branches(arguments())) == 2 and not given("revision"):
        _compare(remote, places)
        return
    beside = next((other for other in remote.server.read.remotes.values() if other is not remote), None)
    if beside is not None and second is Second.GRAPH:
        _share_graph(remote, beside)
        return
    if beside is None or remote.fetched.target is None or second is Second.MERGED:
        return
    if not beside.is_known:
        beside.fetched.ask_anew()
    at, known = beside.look().at, beside.knowledge.beside(remote.path)
    value = known.ref(known.named or b"")
    if known.at == at and value is not None and remote.fetched.target.has_revision(value[0].id):
        remote.learn_from(known)


def _compare(remote: Remote, places: Sequence[str]) -> None:
    """Read what differs between the trees of two branches of one repository; of others the tree of this one's tip."""
    branches = [_on_server_of(remote, place) for place in places]
    if any(each is None or (each.is_known and each is not remote) for each in branches):
        return  # The other one was asked, and is in another repository.
    remote.look_again()
    if remote.remembered_tip() is None:
        return
    tips: list[Named] = []
    for each in branches:
        known = None if each is None else remote.knowledge.beside(each.path)
        value = None if known is None or known.at != remote.knowledge.at else known.ref(known.named or b"")
        if each is None or known is None or value is None:
            remote.read_for(Wanted(trees=TreesField([TIP])))
            return
        if each is not remote:
            each.knowledge = each.repository.knowledge = known
        tips.append(value[0].id)
    trees = TreesField(tips, changed=True) if len(set(tips)) > 1 else TreesField(tips[:1], texts=False)
    content = remote.read_for(Wanted(trees=trees))
    for each in branches:
        if each is not None and each is not remote:
            each.learn_from(each.knowledge, content)


def _share_graph(remote: Remote, beside: Remote) -> None:
    """Have one graph for two branches of one repository."""
    at, known = beside.look().at, beside.knowledge.beside(remote.path)
    value = known.ref(known.named or b"")
    if beside.content is not None and known.at == at and value is not None:
        with beside.asking():
            beside.content.look_beside(value[0].id)
        remote.learn_from(known, beside.content)


def _learn_from_new(remote: Remote, checkout: Checkout) -> None:
    """Learn from what is said of the branch that a lightweight checkout of this one is to be like."""
    is_pulled = running().second is Second.PULLED
    other = _pulled(remote) if is_pulled else _switched_to(remote, checkout)
    if other is None or other is remote:
        return
    if is_pulled:
        other.read_first(pulled_into(checkout, arguments()))
    at, known = other.look().at, other.knowledge.beside(remote.path)
    if other.content is not None and known.at == at and known.ref(known.named or b"") is not None:
        remote.learn_from(known, other.content)


def _switched_to(remote: Remote, checkout: Checkout) -> Remote | None:
    """The branch on the same server that a lightweight checkout is switched to."""
    place = str(given("to_location") or "")
    if not place or given("create_branch"):
        return None
    if not is_ours(place):
        if ":" in place or os.path.exists(place):
            return None
        place = urlutils.join(checkout.branch, "..", urlutils.escape(place))
    return _on_server_of(remote, place)


def makes_elsewhere(remote: Remote) -> bool:
    """Whether a checkout of this branch is switched to a new one outside of its repository, as far as that is known."""
    at = remote.knowledge.at
    if at is None or not (running().second is Second.SWITCHED_TO and given("create_branch")):
        return False
    place = str(given("to_location") or "")
    made = _on_server_of(remote, place if is_ours(place) else urlutils.join(remote.url, "..", urlutils.escape(place)))
    return made is None or (at != "" and not f"{made.path}/".startswith(f"{at}/"))


def _pulled(remote: Remote) -> Remote | None:
    """The branch that is pulled, if it is likely to lie in the same repository."""
    place = str(given("location") or _parent(remote) or "")
    other = _on_server_of(remote, place) if is_ours(place) else None
    if other is None:
        return None
    at = remote.knowledge.at
    above = remote.path.rpartition("/")[0] if at is None else at
    return other if not above or other.path.startswith(f"{above}/") else None


def _parent(remote: Remote) -> str | None:
    """The URL that the branch's options say it is pulled from, as they were seen last."""
    found = re.search(rb"^parent_location\s*=\s*(.+)$", remote.remembered_config(), re.MULTILINE)
    return None if found is None else str(urlutils.join(remote.url, found[1].decode("utf-8", "replace").strip()))


def _on_server_of(remote: Remote, place: str) -> Remote | None:
    transport = HpssTransport(place)
    if transport.server is not remote.server:
        return None
    other = type(remote)(transport, transport.get_segment_parameters().get("branch", ""))
    found: Remote = remote.server.read.remotes.setdefault(other.path, other)
    return found
