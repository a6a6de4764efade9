"""`Remote`: a repository on a server as one command of Mercurial's sees it.

A pull sends one request, whose answer serves all of Mercurial's questions. A push sends no request before its own: it
is planned on cached state, and the server decides.
"""

# Theory of operation
# ===================
#
# Mercurial asks a peer many small questions: heads, branches, bookmarks, which of these nodes it knows, what is
# public. Each would be a round trip. `Remote` answers all of them from one request.
#
# The amount that a command needs is a `RequestLevel`. `ask` requests a level once; later questions at the same level
# or below are answered from that answer:
#
#      REFS      heads of branches, bookmarks, phases        `hg identify`, the check before an empty push
#      GRAPH     and ids and parents of what is missing      `outgoing`, phases of a repository that does not publish
#      HISTORY   and the changesets themselves               `pull`, `clone`, `incoming`
#
# The first question decides the level: `peer` knows which command asks. A pull asks for HISTORY at once, and the
# received changesets wait in a file (`Received`) until Mercurial's own code takes them as a bundle.
#
# Rules:
#
# 1) A push asks nothing before its own request. `push` plans on the cached state; a change that Mercurial's own checks
#    refuse on that state is sent all the same, and only a refusal on the server's answer is shown.
# 2) A failed request is remembered (`_error`) and raised again for each further question, so that a command that asks
#    three things shows one error and makes one request.
# 3) Names travel in UTF-8 and are shown in the user's encoding (`in_utf8`, `shown_here`). Nothing else converts.
# 4) In a clone, Mercurial takes the changesets while they are received. `came` receives all of them first.
#
# The hard case is a command that names revisions (`-r`, `-B`, `#branch`). The server resolves the names in the same
# request that brings their history (`vcs.hg.selector`). But finding what else is public or missing may then need the
# graph of the rest, so `ask_beside_history` sends one more request.
#
# Obsolescence markers are the other hard case. They travel with the history, never with the refs, because a
# repository may have many. `markers` remembers up to which version of the server this repository took them. If the
# new ones do not fit into one answer, `_ask_history_and_pages` takes all of them in parts.
#
# What is ugly: `level` is both a record of what was asked and a switch that others read ("was the server asked in
# this command?"), and `push` depends on that.

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from mercurial import encoding, error
from mercurial.i18n import _
from mercurial.node import hex as hexadecimal

from smartserver.client.exchange import ReadAnswer
from smartserver.client.knowledge import Knowledge, cache_folder
from smartserver.client.repository import RemoteRepository
from smartserver.errors import LimitExceeded, NoSuchRepository, WrongVcs
from smartserver.plugins.mercurial.markers import MarkerMemory, are_exchanged
from smartserver.plugins.mercurial.phase import DRAFT, PhaseHeads, draft_roots, phase_heads
from smartserver.plugins.mercurial.received import Received
from smartserver.plugins.mercurial.server import environment_of, server_of
from smartserver.plugins.mercurial.words import in_mercurials_words
from smartserver.spans import Part, spent
from smartserver.vcs.hg.kinds import BOOKMARKS, EVOLUTION, NODE_BYTES, NULL, OBSOLETE, PUBLIC, YES
from smartserver.vcs.hg.markers import KnownVersion, encode_selector
from smartserver.vcs.hg.repository import HgRepository
from smartserver.vcs.hg.selector import GRAPH, RevisionNames, decode_found, encode
from smartserver.vcs.hg.system import HG, is_publishing
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.repository_pull import MAX_HAVES
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.client.places import Place

_ID = re.compile(rb"[0-9a-f]{40}")


def in_utf8(name: bytes) -> bytes:
    """Return a name in UTF-8, in which it is sent. hg has names in the encoding of its user."""
    return bytes(encoding.fromlocal(name))


def shown_here(name: bytes) -> bytes:
    """Return a received name in the encoding of the user. It has Mercurial's type for such names, which keeps the
    original bytes."""
    found: bytes = encoding.tolocal(name)
    return found


class RequestLevel(enum.IntEnum):
    """The amount of data that was requested."""

    NOTHING = 0
    REFS = 1
    GRAPH = 2
    """The refs, and the ids and parents of the changesets that are missing locally."""
    HISTORY = 3
    """The graph, and the content of the missing changesets."""


class Remote:
    """One repository on a server. Making this object sends no request."""

    def __init__(self, ui: Any, location: Place, url: bytes) -> None:
        self.ui = ui
        self.location = location
        self.url = url
        self.knowledge = Knowledge(cache_folder(environment_of(ui)), location.key)
        self.repository = RemoteRepository(server_of(ui, location).client, location.path, self.knowledge)
        self.local: HgRepository | None = None
        """The repository that is pulled into or pushed from, once it is known."""
        self.wanted: RevisionNames | None = None
        """The names in the command; None for all changesets."""
        self.received: Received | None = None
        self.pushed: set[bytes] = set()
        """Changesets that a push sent, or that the server had before the push."""
        self.level = RequestLevel.NOTHING
        self.is_new = False
        """True if a push creates the repository."""
        self.is_only_shown = False
        """True if the command only shows changesets, and adds none to the local repository."""
        self.markers = b""
        """The received markers, encoded."""
        self._markers_version: KnownVersion | None = None
        """The version of the server in the answer that contained `markers`."""
        self._graph: dict[bytes, tuple[bytes, ...]] = {}
        self._found: dict[bytes, bytes] = {}
        self._error: Exception | None = None

    def words(self) -> AbstractContextManager[None]:
        """Return a context for requests, which converts errors to Mercurial's."""
        return in_mercurials_words(self.location, self.url)

    def progress(self, topic: bytes, total: int | None = None) -> Any:
        """Return one of Mercurial's progress bars, which counts changesets."""
        return self.ui.makeprogress(topic, unit=_(b"changesets"), total=total)

    def bind(self, repository: Any) -> None:
        """Set the local repository, once."""
        if self.local is None:
            self.local = HgRepository(repository)

    def marker_memory(self, local: HgRepository) -> MarkerMemory:
        """Return the memory of the obsolescence markers that a local repository has exchanged with this one."""
        return MarkerMemory(local.mercurial, self.location.key.encode())

    @property
    def version(self) -> KnownVersion | None:
        """The newest known version of the server's repository; None if no version is known."""
        known = self.knowledge.known
        return None if known is None else (known.incarnation, known.version, known.mark)

    @property
    def publishes(self) -> bool:
        """True if every pushed changeset becomes public, as far as known."""
        return is_publishing(self.knowledge.settings)

    @property
    def evolves(self) -> bool:
        """True if the repository exchanges obsolescence markers, as far as known."""
        return self.knowledge.settings.get(EVOLUTION) == YES

    @property
    def takes_markers(self) -> bool:
        """True if a request for history also requests obsolescence markers. A clone of a part sends the request before
        there is a local repository, whose configuration decides whether markers are added to it."""
        local = self.local
        return not self.is_only_shown and (local is None or are_exchanged(local.mercurial))

    def begin(self) -> None:
        """Assume that the repository is missing, so that the next push creates it."""
        self.knowledge.forget()
        self.level = RequestLevel.REFS
        self.is_new = True

    # ---- asking

    def ask(self, level: RequestLevel) -> None:
        """Request data up to a level, unless it was requested before. If the command names changesets, only their
        history is requested."""
        if self._error is not None:
            raise self._error
        if self.level >= level:
            return
        is_all_here = self.level and self.wanted is None and not self._exchanges_markers() and self._is_all_here()
        self.level = level
        if is_all_here:
            return  # So it is in the pull at the end of a clone into a pool, which asked for a name before.
        try:
            self._ask(level)
        except (error.Abort, error.RepoError) as cause:
            self._error = cause  # A command asks for several things before it looks at an answer.
            raise

    def _exchanges_markers(self) -> bool:
        return self.takes_markers and self.evolves

    def _is_all_here(self) -> bool:
        """Tell whether the local repository has all heads of the server that this command has received."""
        local = self.local
        return local is not None and all(local.has(head) for heads in self.branches().values() for head in heads)

    @spent(Part.LOCAL, "plan the request")
    def _ask(self, level: RequestLevel) -> None:
        with self.words():
            if level is RequestLevel.REFS:
                self.repository.learn_refs()
                self._check_vcs()
                return
            if self.local is not None:
                self.local.check_format()
            if level is RequestLevel.GRAPH:
                self._ask_graph()
            else:
                self._ask_history(self._haves(), with_markers=self.takes_markers)

    def _haves(self) -> list[bytes]:
        return [] if self.local is None else self.local.complete_haves(self.knowledge.tips(), MAX_HAVES)

    def _ask_graph(self) -> None:
        self._learn_graph(self._read(GRAPH, None, haves=self._haves()))

    def _read(
        self, selector: bytes, refs: list[bytes] | None, *, ids: Sequence[bytes] = (), haves: Sequence[bytes] = ()
    ) -> ReadAnswer:
        """Send `Repository.read`. A server also refuses the call for a repository of another system, which has other
        selectors; this is raised as `WrongVcs`."""
        try:
            content = self.repository.read(selector, refs, ids=ids, haves=haves)
        except CodedError:
            self._check_vcs()
            raise
        self._check_vcs()
        return content

    def _ask_history(self, haves: list[bytes], *, with_markers: bool) -> None:
        names = None if self.wanted is None else encode(self.wanted)
        if names is None and not with_markers:
            pulled = self.repository.pull(haves, bulk=True, expanded=True)
            self._check_vcs()
            self._receive(pulled.body, pulled.result.segments)
            return
        selector = names or b""
        if with_markers:
            version = None if self.local is None else self.marker_memory(self.local).version
            selector = encode_selector(version, selector)
        try:
            content = self._read(selector, None if names is None else [], haves=haves)
        except LimitExceeded:
            if not with_markers:
                raise
            self._ask_history_and_pages(haves)
            return
        said = content.result.said
        if self.wanted is not None:
            self._found.update(decode_found(self.wanted, said))
            said = said[NODE_BYTES * len(self.wanted.names) :]
        self.markers = said if self.evolves else b""
        if with_markers:
            self._markers_version = self.version
        self._receive(content.segments, content.result.segments)

    def _ask_history_and_pages(self, haves: list[bytes]) -> None:
        """Request the history, and after it all markers, in parts, because the new markers do not fit into one
        answer."""
        from smartserver.client.copy import untold_entries

        self._ask_history(haves, with_markers=False)
        if self.received is not None:
            self.received.receive()  # No request can be made while an answer is received.
        self._markers_version = self.version
        self.markers = b"".join(untold_entries(self.repository, OBSOLETE).values()) if self.evolves else b""

    def took_markers(self) -> None:
        """Remember that a pull added the received markers."""
        if self._exchanges_markers() and self.local is not None and self._markers_version is not None:
            memory = self.marker_memory(self.local)
            memory.took(self.markers, self._markers_version, is_all=self.wanted is None)

    def _learn_graph(self, content: ReadAnswer) -> None:
        for revision, parents in content.graph:
            self._graph[revision] = tuple([parent.id for parent in parents])

    def ask_beside_history(self) -> None:
        """Request the graph of all changesets that are missing locally, if the request for history was limited to a
        part of them."""
        if self.level is RequestLevel.HISTORY and self.wanted is not None:
            with self.words():
                self._ask_graph()

    def ask_whether_there(self, level: RequestLevel = RequestLevel.REFS) -> None:
        """Request data up to a level. A missing repository counts as an empty one."""
        try:
            self.ask(level)
        except error.RepoError as cause:
            if not isinstance(cause.__cause__, NoSuchRepository):
                raise
            self._error = None
            self.knowledge.forget()

    def _check_vcs(self) -> None:
        vcs = self.knowledge.vcs
        if vcs and vcs != HG:
            raise WrongVcs(self.location.path, vcs, HG)

    def _receive(self, body: Iterable[bytes], count: int) -> None:
        received = Received(self.local, body, count, self.progress(b"receiving", count), self.words)
        self.received = received
        self.ui.atexit(received.close)
        is_clone = self.wanted is None and self.local is not None and not len(self.local.changesets)
        if self.is_only_shown or not (is_clone and count):
            received.receive()

    def incoming(self, heads: Collection[bytes] | None) -> tuple[int, Iterator[bytes]]:
        """Return the number of received changesets that `heads` reach and that are still missing locally, and their
        changegroup. In a clone, they are received while the changegroup is read."""
        received = self.received
        if received is None:
            return 0, iter(())
        if received.is_unread and (heads is None or set(heads).issuperset(self.heads())):
            return received.count, received.changegroup(None)
        nodes = self.wanted_of(heads)
        return len(nodes), received.changegroup(nodes)

    # ---- the known state

    @property
    def came(self) -> dict[bytes, tuple[bytes, ...]]:
        """The received changesets and their parents, in the order of arrival."""
        return self._graph if self.received is None else self.received.parents

    @property
    def graph(self) -> dict[bytes, tuple[bytes, ...]]:
        """The changesets in the server's answers, each with its parents, including those that were not sent."""
        return {**self._graph, **self.came}

    def branches(self) -> dict[bytes, list[bytes]]:
        """Return the heads of each branch."""
        if self.knowledge.vcs not in ("", HG):
            return {}
        return {shown_here(name): [tip.id for tip in value] for name, value in self.knowledge.refs().items()}

    def in_order(self, nodes: Sequence[bytes]) -> list[bytes]:
        """Return some nodes, the received nodes last and in the order of arrival. If the answer is still unread, keep
        their order."""
        if len(nodes) < 2 or self.received is None or self.received.is_unread:
            return list(nodes)
        places = {node: place for place, node in enumerate(self.came)}
        return sorted(nodes, key=lambda node: places.get(node, -1))

    def heads(self) -> list[bytes]:
        """Return the heads of all branches, except heads that are known to be ancestors of other heads."""
        heads = dict.fromkeys(head for heads in self.branches().values() for head in heads)
        if self.received is not None and self.received.is_unread:
            return list(heads)
        inner = {parent for parents in self.came.values() for parent in parents}
        known = [head for head in heads if head not in inner]
        if self.local is None:
            return known
        mine = [head for head in known if self.local.has(head)]
        tops = set(self.local.heads_of(mine))
        return [head for head in known if head in tops or head not in mine]

    def has_unknown_heads(self) -> bool:
        """Tell whether the server has a head that the local repository lacks."""
        return any(self.local is None or not self.local.has(head) for head in self.heads())

    def bookmarks(self) -> dict[bytes, bytes]:
        """Return the bookmarks, with their changesets."""
        return {shown_here(name): value for name, value in self.knowledge.map(BOOKMARKS).items()}

    def phases(self) -> dict[bytes, bytes]:
        """Return the table of phases in the form of Mercurial's own servers: the roots of the draft changesets."""
        if self.publishes:
            return {b"publishing": b"True"}
        if self.level:
            self._learn_phases()
        roots = draft_roots(self.local, self.graph, self.common(), self.public())
        return {hexadecimal(root): DRAFT for root in roots}

    def phase_heads(self, heads: Collection[bytes]) -> PhaseHeads:
        """Return the phases of some heads and their ancestors."""
        if self.publishes:
            return PhaseHeads(list(heads), [])
        self._learn_phases()
        return phase_heads(self.local, self.graph, self.public(), heads)

    def public(self) -> list[bytes]:
        """Return the heads of the public changesets of a repository that does not publish."""
        return [bytes.fromhex(name.decode()) for name in self.knowledge.map(PUBLIC)]

    def _learn_phases(self) -> None:
        """Request the graph of public changesets that are missing locally, because their ancestors are public, too."""
        local = self.local
        if local is None:
            return
        lacking = [node for node in self.public() if not local.has(node) and node not in self.graph]
        if lacking:
            with self.words():
                self._learn_graph(self._read(GRAPH, [], ids=lacking[:MAX_IDS], haves=self._haves()))

    def has(self, node: bytes) -> bool:
        """Tell whether the server has a changeset, as far as is known."""
        if node in self.came:
            return True
        return self.local is not None and self.local.has(node) and self.local.is_below(node, self.common())

    def common(self) -> list[bytes]:
        """Return the heads of the changesets that both repositories are known to have."""
        local = self.local
        if local is None or not len(local.changesets):
            return []
        came = self.came
        known = {tip for tip in self._known_tips() if tip not in came} if self.knowledge.vcs in ("", HG) else set()
        graph = self.graph
        known.update(parent for parents in graph.values() for parent in parents if parent not in graph)
        known.update(self._found.values())
        known.update(self.pushed)
        known.update(node for node in came if local.has(node))
        return local.heads_of([node for node in known if local.has(node)])

    def visible_common(self, view: Any) -> list[bytes]:
        """Return the heads of the common changesets that a user's view of the repository shows."""
        hidden, nodes = view.changelog.filteredrevs, self.common()
        if self.local is None or not hidden:
            return nodes
        log = self.local.changesets
        found: list[bytes] = []
        todo = [log.rev(node) for node in nodes]
        seen = set(todo)
        while todo:
            rev = todo.pop()
            if rev not in hidden:
                found.append(log.node(rev))
                continue
            above = [parent for parent in log.parentrevs(rev) if parent >= 0 and parent not in seen]
            seen.update(above)
            todo += above
        return self.local.heads_of(found)

    def _known_tips(self) -> list[bytes]:
        """Return the tips seen on the server. If markers are exchanged, an earlier tip may be hidden there now."""
        if self.evolves and self.level >= RequestLevel.GRAPH and self.wanted is None:
            return [tip.id for value in self.knowledge.refs().values() for tip in value]
        return self.knowledge.tips()

    def find(self, name: bytes) -> bytes:
        """Return the changeset that a name means on the server.

        Raises:
            RepoLookupError: the name is unknown.
        """
        if len(name) == len(NULL) and (b"\0" in name or self.has(name)):
            name = hexadecimal(name)  # It is a binary node. A name may have the same length.
        name = in_utf8(name)
        if name not in self._found and self.wanted is not None and name in self.wanted.names:
            self.ask(RequestLevel.HISTORY)
        if _ID.fullmatch(name) and self.level and self.has(bytes.fromhex(name.decode())):
            return bytes.fromhex(name.decode())
        if name not in self._found:
            with self.words():
                content = self._read(encode(RevisionNames([name], is_all=False)), [])
                self._found.update(decode_found(RevisionNames([name]), content.result.said))
            self.level = max(self.level, RequestLevel.REFS)
        return self._found.get(name, NULL)

    def wanted_of(self, heads: Collection[bytes] | None) -> list[bytes]:
        """Return the received changesets that `heads` reach and that are still missing locally, parents first. None
        for `heads` means all of them."""
        came = self.came
        if heads is None:
            reached = set(came)
        else:
            reached, todo = set(), list(heads)
            while todo:
                node = todo.pop()
                if node in came and node not in reached:
                    reached.add(node)
                    todo += came[node]
        local = self.local
        return [node for node in came if node in reached and not (local is not None and local.has(node))]
