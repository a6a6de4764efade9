"""Finds the heads on a server that the markers of a push make obsolete, and reports the effect of the markers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from mercurial import obsolete
from mercurial.i18n import _

from smartserver.client.updates import PushOutcome
from smartserver.plugins.mercurial.remote import Remote
from smartserver.vcs.hg.kinds import OBSOLETE
from smartserver.vcs.hg.markers import parse
from smartserver.vcs.hg.repository import HgRepository
from smartserver.verbs.map_update import Verdict


def report_markers(operation: Any, outcome: PushOutcome, heads: Collection[bytes]) -> None:
    """Print how many markers are new on the server, and how many of its changesets they make obsolete, as Mercurial's
    own server would.

    `heads`: the heads of the server before the push.
    """
    of_maps = [of_map for of_map in outcome.maps if of_map.update.map == OBSOLETE]
    entries = [pair for of_map in of_maps for pair in zip(of_map.update.entries, of_map.entries, strict=False)]
    new = [change.value for change, entry in entries if entry.verdict is Verdict.DONE and change.value]
    if new:
        operation.ui.status(_(b"remote: %i new obsolescence markers\n") % len(new))
    local = HgRepository(operation.repo)
    known = [head for head in heads if local.has(head)]
    predecessors = {parse(marker).predecessor for marker in new}
    count = sum(local.has(node) and local.is_below(node, known) for node in predecessors)
    if count:
        operation.ui.status(_(b"remote: obsoleted %i changesets\n") % count)


def branch_of(local: HgRepository, changeset: bytes) -> bytes:
    """Return the branch of a local changeset, from Mercurial's own cache of branches if it has the changeset."""
    branch: bytes = local.mercurial.revbranchcache().branchinfo(local.changesets.rev(changeset))[0]
    return branch


class DroppedHead(NamedTuple):
    """A head that the server drops."""

    branch: bytes
    replacements: list[bytes]
    """The heads that replace this head: its nearest ancestors on the branch that are not obsolete on the server, which
    knows only the branches of heads. If there are none, the list contains the head itself, and the server removes the
    branch."""


def dropped_heads(operation: Any, local: HgRepository) -> dict[bytes, DroppedHead]:
    """Return the heads that the server drops because markers make them obsolete: the server's own heads, and heads that
    are pushed by force."""
    remote: Remote = operation.remote.remote
    if not operation.outobsmarkers or remote.publishes:
        return {}
    log = local.changesets
    obsolete_here = obsolete.getrevs(operation.repo.unfiltered(), b"obsolete")
    predecessors = {marker[0] for marker in operation.outobsmarkers}
    shown = {**remote.bookmarks(), **{name: new for name, _old, new in operation.outbookmarks}}.values()
    public = [node for node in remote.public() if local.has(node)]
    heads = {tip: branch for branch, tips in remote.branches().items() for tip in tips if local.has(tip)}
    heads.update((tip, branch_of(local, tip)) for tip in local.heads_of(operation.outgoing.missing))
    return {
        tip: DroppedHead(branch, _visible_ancestors(log, branch, tip, obsolete_here, predecessors) or [tip])
        for tip, branch in heads.items()
        if tip in predecessors
        and log.rev(tip) in obsolete_here
        and tip not in shown
        and not local.is_below(tip, public)
    }


def uncounted_heads(operation: Any, branch: bytes, dropped: Collection[bytes]) -> set[bytes]:
    """Return the heads of a branch that stay on the server, but that Mercurial's check ignores because they are
    obsolete here."""
    discarded = (operation.pushbranchmap or {}).get(branch, (None, (), (), ()))[3]
    return set(discarded).difference(dropped)


def _visible_ancestors(
    log: Any, branch: bytes, tip: bytes, obsolete_here: Collection[int], predecessors: Collection[bytes]
) -> list[bytes]:
    """Return the nearest ancestors on a branch that are not obsolete on the server.

    An ancestor that is obsolete here, and whose marker is not sent, may be obsolete there, so farther ancestors are
    returned, too.
    """
    todo, found = [log.rev(tip)], list[bytes]()
    seen = set(todo)
    while todo:
        for parent in log.parentrevs(todo.pop()):
            if parent < 0 or parent in seen:
                continue
            seen.add(parent)
            node = log.node(parent)
            is_here = log.branchinfo(parent)[0] == branch
            if is_here and (parent not in obsolete_here or node not in predecessors):
                found.append(node)
            if not is_here or parent in obsolete_here:
                todo.append(parent)
    return found
