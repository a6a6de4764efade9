"""`Remote`: the branch a URL leads to, and what is read of it: what a command wants, by one request if it can be.

A command that reads two branches of one repository is told of both by one answer (`learn_beside`).
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Mapping, Sequence

from breezy import trace, urlutils
from breezy.branch import Branch
from breezy.errors import CommandError
from breezy.repository import Repository

from smartserver.client.knowledge import Knowledge
from smartserver.errors import Unsupported, WrongVcs, shown
from smartserver.plugins.breezy.branch_history import BranchHistory
from smartserver.plugins.breezy.checkouts import Checkout, checkout_of, open_checkout
from smartserver.plugins.breezy.commands import Gone, Second, copies_there, running, up_to, wanted, wants_history
from smartserver.plugins.breezy.content import Content
from smartserver.plugins.breezy.given import TIP, arguments, current, given, is_ours, what_to_look_at
from smartserver.plugins.breezy.place import VCS, Place, State
from smartserver.plugins.breezy.selection import Selection, compared_branches, pulled_into
from smartserver.plugins.breezy.server import Server
from smartserver.plugins.breezy.shadow import Shadow, shadows
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.plugins.breezy_shim import RunningCommand
from smartserver.records.model import RevisionId, Tip
from smartserver.vcs.bzr.kinds import INVENTORY
from smartserver.vcs.bzr.selector import Named, TreesField

GONE = (
    "the revision {} that this tree rests on is not in the repository of {} any more, which was made anew or put back "
    "to what it was: check out what is there to another place"
)


class CommandCache:
    """What one command has read of a server, for whoever asks again in it."""

    def __init__(self, by: RunningCommand | None) -> None:
        self.by = by
        self.contents: dict[str, Content] = {}
        """By path, where the command reads less than whole revisions."""
        self.remotes: dict[str, Remote] = {}
        """By path, the branches of which it opens some more than once, all in one repository."""


_read: weakref.WeakKeyDictionary[Server, CommandCache] = weakref.WeakKeyDictionary()


def read_of(server: Server) -> CommandCache:
    """What the command that runs has read there; the next one asks anew."""
    command, found = current(), _read.get(server)
    if found is None or command is None or found.by is not command:
        found = _read[server] = CommandCache(command)
    return found


def remote_of(branch: Branch) -> Remote | None:
    """What a branch on a server was read from; None for a local one."""
    found = getattr(branch, "remote", None)
    return found if isinstance(found, Remote) else None


class Remote(Place):
    """One branch on a server, and what was read of it."""

    def __init__(self, transport: HpssTransport, name: str = "", *, inside: bool = False) -> None:
        """`name`: of a branch below what the transport's URL leads to; empty: what it leads to itself. `inside`:
        or into which it leads.
        """
        super().__init__(transport, name, inside=inside)
        self._opened = transport, name
        self.content: Content | None = None
        """What was read where the command reads less than whole revisions."""
        self.branch_history = BranchHistory(self)
        self.shadow = Shadow(self.branch_history, None if running().fetches else shadows())
        """Whole revisions as a repository; a command that fetches keeps them elsewhere."""

    def for_one(self) -> Remote:
        """The same branch, as one that was not asked yet: for one revision, be it in the branch or not."""
        other = Remote(*self._opened, inside=self._may_be_inside)
        other.shadow = Shadow(other.branch_history, None)  # What is kept has what the branch reaches.
        return other

    def assume(self) -> None:
        """Take the branch for what is remembered, if nobody has asked, and if all that it takes is here."""
        if self.seen is not None or not self.is_remembered:
            return
        self.learned()
        state = self.seen
        assert state is not None, "remembered"
        if running().removes_revisions:
            target = self.branch_history.target
            if target is None or state.tip is None or not target.has_revision(state.tip):
                self.seen = None
                return
            self.branch_history.all_is_here()
        self.assumed, self.is_assumed = state, True

    def is_beside(self, other: Remote) -> bool:
        """Whether both are on one server."""
        return self.server is other.server

    def is_in_repository_of(self, other: Remote) -> bool:
        """Whether both are branches of one repository, as far as is known of the other."""
        return self.is_beside(other) and other.is_known and self.state().at == other.look().at

    def was(self, tip: Tip, tags: Mapping[str, RevisionId]) -> None:
        """Take in what another branch's answer said of this one."""
        self.seen = State(self.state().at, "", tip.id, tip.attributes, tags)
        self.is_assumed = False

    def look(self) -> State:
        """What it is; there may be no branch."""
        if self.seen is None and copies_there():
            self.assume()
        if self.seen is None:
            learn_beside(self)
        if self.seen is None:
            asked = wanted()
            if asked is not None and not self._better_whole(asked):
                self._ask_content(asked)
            elif asked is not None or wants_history():
                first = what_to_look_at(up_to()) if asked is None else None
                if first is not None and self.branch_history.is_alone():
                    self._ask_content(Selection(first))
                else:
                    is_there = self.branch_history.begin(*self.shadow.haves())
                    if not is_there and self.branch_history.is_alone():
                        self.look_at_graph()
                if asked is not None and self.shadow.keeps and not set(asked.ids) <= self.shadow.parents().keys():
                    self._ask_content(asked)  # The tree of a checkout rests on what the branch does not reach.
            else:
                self.look_again()
        assert self.seen is not None, "asked"
        return self.seen

    def _better_whole(self, asked: Selection) -> bool:
        """Whether whole revisions are what a command reads in the end, or fewer bytes than that."""
        if makes_elsewhere(self):
            return True
        # Only an answer tells where in the path the branch ends; at its own path every tree is read, too.
        may_be_inside = self.knowledge.leads_inside or (asked.is_deep and not self.knowledge.met)
        if asked.inside is not None and asked.inside.history and may_be_inside:
            return True
        # Where earlier commands have left the history, only what is new of it comes.
        return asked.is_deep and self.shadow.is_there()

    def learn_from(self, known: Knowledge, content: Content | None = None) -> None:
        """Take in what another branch's answer said of this one, and what was read; else all that it takes is here."""
        self.knowledge = self.repository.knowledge = known
        self.learned()
        self.content = content
        if content is None:
            self.branch_history.all_is_here()

    def state(self) -> State:
        """What it is.

        Raises:
            NotBranchError: there is no branch.
        """
        self.look()
        return self.there()

    def _ask_content(self, asked: Selection) -> None:
        """Read what a command wants; a second branch object of the same URL has what the first one read."""
        self.content = read_of(self.server).contents.get(self.path)
        if self.content is None:
            self.content = Content(self.repository, asked)
            with self.asking():
                try:
                    self.content.begin()
                except Unsupported:  # Which the server says of parts before anybody compares systems.
                    if self.knowledge.vcs in ("", VCS):
                        raise
                    raise WrongVcs(self.knowledge.at or "", self.knowledge.vcs, VCS) from None
            if self.content.gone is not None:
                gone = GONE.format(shown(self.content.gone), self.url)
                if running().if_gone is Gone.ENDS:
                    raise CommandError(gone)
                if running().if_gone is Gone.WARNS:
                    trace.warning("hpss: %s", gone)
            if self.content.needs_history:
                self.content = None
                self.branch_history.ask(*self.shadow.haves())
                return
            read_of(self.server).contents[self.path] = self.content
        else:
            self.knowledge = self.content.remote.knowledge
        with self.words():
            self.learned()

    def look_at_graph(self) -> None:
        """Have whatever is asked of ancestry read off the ids and parents alone, once it is asked."""
        self.content = Content(self.repository, Selection())

    def read_first(self, asked: Selection) -> None:
        """Read this, if nobody has asked anything yet."""
        if self.seen is None:
            self._ask_content(asked)

    def read_for(self, asked: Selection) -> Content:
        """What was read, if that has the first inventory this wants; else it is read."""
        had = asked.trees.had[:1] if asked.trees is not None else ()
        content = self.content
        if content is None or any((INVENTORY, revision) not in content.records for revision in had):
            content = Content(self.repository, asked)
            with self.asking():
                content.begin()
                self.learned()
            self.content = content
        return content

    @property
    def numbers(self) -> Mapping[RevisionId, int]:
        """The numbers of revisions in the line of the tip's first parents, as far as they are known without that."""
        state = self.look()
        if self.content is None:
            return self.branch_history.numbers
        # What was read of a branch beside this one may number another line.
        is_own = state.tip is None or self.content.numbers.get(state.tip) == state.revno
        return self.content.numbers if is_own else {}

    def is_now(self, target: Repository) -> None:
        """Take what the answer to a push from `target` says for what it is."""
        self.branch_history.all_is_here(target)
        self.learned()


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
    beside = next((other for other in read_of(remote.server).remotes.values() if other is not remote), None)
    if beside is not None and second is Second.GRAPH:
        _share_graph(remote, beside)
        return
    if beside is None or remote.branch_history.target is None or second is Second.MERGED:
        return
    if not beside.is_known:
        beside.branch_history.ask_anew()
    said = _said_of(remote, beside)
    if said is not None and remote.branch_history.target.has_revision(said[1]):
        remote.learn_from(said[0])


def _said_of(remote: Remote, other: Remote) -> tuple[Knowledge, RevisionId] | None:
    """What the answer about another branch said of this one, and its tip; None where it is of another repository."""
    at, known = other.look().at, other.knowledge.beside(remote.path)
    value = known.ref(known.named or b"")
    return None if known.at != at or value is None else (known, value[0].id)


def _compare(remote: Remote, places: Sequence[str]) -> None:
    """Read what differs between the trees of two branches of one repository; of others the tree of this one's tip."""
    branches = [_on_server_of(remote, place) for place in places]
    if any(each is None or (each.is_known and each is not remote) for each in branches):
        return  # The other one was asked, and is in another repository.
    remote.look_again()
    if remote.remembered().tip is None:
        return
    tips: list[Named] = []
    for each in branches:
        said = None if each is None else _said_of(each, remote)
        if each is None or said is None:
            remote.read_for(Selection(trees=TreesField([TIP])))
            return
        if each is not remote:
            each.knowledge = each.repository.knowledge = said[0]
        tips.append(said[1])
    trees = TreesField(tips, changed=True) if len(set(tips)) > 1 else TreesField(tips[:1], texts=False)
    content = remote.read_for(Selection(trees=trees))
    for each in branches:
        if each is not None and each is not remote:
            each.learn_from(each.knowledge, content)


def _share_graph(remote: Remote, beside: Remote) -> None:
    """Have one graph for two branches of one repository."""
    said = _said_of(remote, beside)
    if beside.content is not None and said is not None:
        with beside.asking():
            beside.content.look_beside(said[1])
        remote.learn_from(said[0], beside.content)


def _learn_from_new(remote: Remote, checkout: Checkout) -> None:
    """Learn from what is said of the branch that a lightweight checkout of this one is to be like."""
    is_pulled = running().second is Second.PULLED
    other = _pulled(remote) if is_pulled else _switched_to(remote, checkout)
    if other is None or other is remote:
        return
    if is_pulled:
        other.read_first(pulled_into(checkout, arguments()))
    said = _said_of(remote, other)
    if other.content is not None and said is not None:
        remote.learn_from(said[0], other.content)


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
    found = re.search(rb"^parent_location\s*=\s*(.+)$", remote.remembered().config, re.MULTILINE)
    return None if found is None else str(urlutils.join(remote.url, found[1].decode("utf-8", "replace").strip()))


def _on_server_of(remote: Remote, place: str) -> Remote | None:
    transport = HpssTransport(place)
    if transport.server is not remote.server:
        return None
    other = type(remote)(transport, transport.get_segment_parameters().get("branch", ""))
    return read_of(remote.server).remotes.setdefault(other.path, other)
