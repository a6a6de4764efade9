"""`Remote`: the branch a URL leads to, asked once: what one pull says of it, and each change as one request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from breezy import trace
from breezy.errors import CommandError
from breezy.repository import Repository

from smartserver.client.body import Nothing
from smartserver.client.knowledge import Knowledge
from smartserver.client.places import served_by
from smartserver.client.push import Changes, PushRequest, PushSource
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Pushed, RefUpdate
from smartserver.errors import NoSuchBranch, Unsupported, WrongVcs, shown
from smartserver.plugins.breezy.beside import learn_beside, makes_elsewhere
from smartserver.plugins.breezy.changes import CONFIG, tags_of
from smartserver.plugins.breezy.commands import Gone, copies_there, running, up_to, wanted, wants_history
from smartserver.plugins.breezy.content import Content
from smartserver.plugins.breezy.fetched import KINDS, Fetched
from smartserver.plugins.breezy.given import what_to_look_at
from smartserver.plugins.breezy.server import cache_folder
from smartserver.plugins.breezy.terminal import listen, moving
from smartserver.plugins.breezy.wanted import Wanted
from smartserver.plugins.breezy.words import in_breezys_words
from smartserver.records.model import RevisionId, Tip
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.vcs.bzr.system import INVENTORY
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.fields import HERE
from smartserver.verbs.map_update import MapUpdateRequest
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.repository_verify import VerifyResult
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.plugins.breezy.transport import HpssTransport

VCS = BrzRepository.vcs

GONE = (
    "the revision {} that this tree rests on is not in the repository of {} any more, which was made anew or put back "
    "to what it was: check out what is there to another place"
)


@dataclass(frozen=True, slots=True)
class State:
    """What a branch is; `tip` None where there is none of that name."""

    at: str
    """The path of its repository."""
    inner: str
    """What of the path that was asked for leads into the branch."""
    tip: RevisionId | None = None
    revno: int = 0
    tags: Mapping[str, RevisionId] = field(default_factory=dict)
    config: bytes = b""


class Remote:
    """One branch on a server."""

    def __init__(self, transport: HpssTransport, name: str = "", *, inside: bool = False) -> None:
        """`name`: of a branch below what the transport's URL leads to; empty: what it leads to itself. `inside`:
        or into which it leads.
        """
        self._may_be_inside = inside
        self._opened = transport, name
        self.url: str = transport.base
        self.location = transport.location
        self.path = "/".join([part for part in (self.location.path, name) if part])
        self.knowledge = Knowledge(cache_folder(), served_by(self.location) + self.path, self.path)
        self.server = transport.server
        self.repository = RemoteRepository(self.server.client, self.path, self.knowledge, below=True)
        listen(self.repository, self.location)
        self.named = b""
        """What a refusal calls the branch: it is all that says so where the server was not met before."""
        self._state: State | None = None
        self.fetched = Fetched(self)
        self.assumed: State | None = None
        """What the branch was taken for, because it was remembered; if not `is_assumed`, it was asked since."""
        self.is_assumed = False
        self.verified: VerifyResult | None = None
        """What the server found when it checked the repository."""
        self.content: Content | None = None
        """What was read where the command reads less than whole revisions."""

    def again(self) -> Remote:
        """The same branch, as one that was not asked yet."""
        return Remote(*self._opened, inside=self._may_be_inside)

    def words(self) -> AbstractContextManager[None]:
        """Around whatever asks the server."""
        return in_breezys_words(self.url, self.location)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around what reads more, when nothing else is unread."""
        with self.words():
            self.server.settle()
            yield

    # -- what it is

    @property
    def is_known(self) -> bool:
        """Whether it was asked already."""
        return self._state is not None

    @property
    def is_remembered(self) -> bool:
        """Whether there was a branch of just that name when the repository was last seen."""
        known = self.knowledge
        return known.vcs == VCS and bool(known.named) and known.ref(known.named or b"") is not None

    def assume(self) -> None:
        """Take the branch for what is remembered, if nobody has asked, and if all that it takes is here."""
        if self._state is not None or not self.is_remembered:
            return
        self.learned()
        state = self._state
        assert state is not None, "remembered"
        if running().removes_revisions:
            target = self.fetched.target
            if target is None or state.tip is None or not target.has_revision(state.tip):
                self._state = None
                return
            self.fetched.all_is_here()
        self.assumed, self.is_assumed = state, True

    def confirm(self) -> None:
        """Ask the server, if what the branch is was only remembered."""
        if self.is_assumed:
            self.look_again()

    def attributes(self) -> bytes:
        """The attributes of the tip."""
        value = self.knowledge.ref(self.name())
        return value[0].attributes if value is not None else b""

    def is_inside(self) -> bool:
        """Whether the path was seen to lead into the branch."""
        return self._state is not None and bool(self._state.inner)

    def is_beside(self, other: Remote) -> bool:
        """Whether both are on one server."""
        return self.server is other.server

    def is_in_repository_of(self, other: Remote) -> bool:
        """Whether both are branches of one repository, as far as is known of the other."""
        return self.is_beside(other) and other.is_known and self.state().at == other.look().at

    def was(self, tip: Tip, tags: Mapping[str, RevisionId]) -> None:
        """Take in what another branch's answer said of this one."""
        self._state = State(self.state().at, "", tip.id, _revno(tip.attributes), tags)
        self.is_assumed = False

    def learn_refusal(self) -> None:
        """Take in what a refusal said of what is there; where that is not all, ask."""
        self.learned()
        if self._state is None or self._state.tip is None:
            self.look_again()

    def look(self) -> State:
        """What it is; there may be no branch."""
        if self._state is None and copies_there():
            self.assume()
        if self._state is None:
            learn_beside(self)
        if self._state is None:
            asked = wanted()
            if asked is not None and not self._better_whole(asked):
                self._ask_content(asked)
            elif asked is not None or wants_history():
                first = what_to_look_at(up_to()) if asked is None else None
                if first is not None and self.fetched.is_alone():
                    self._ask_content(Wanted(first))
                else:
                    self.fetched.begin()
                shadow = self.fetched.shadow
                if asked is not None and shadow is not None and not set(asked.ids) <= shadow.parents().keys():
                    self._ask_content(asked)  # The tree of a checkout rests on what the branch does not reach.
            else:
                self.look_again()
        assert self._state is not None, "asked"
        return self._state

    def _better_whole(self, asked: Wanted) -> bool:
        """Whether whole revisions are what a command reads in the end, or fewer bytes than that."""
        if makes_elsewhere(self):
            return True
        # Only an answer tells where in the path the branch ends; at its own path every tree is read, too.
        may_be_inside = self.knowledge.leads_inside or (asked.is_deep and not self.knowledge.met)
        if asked.inside is not None and asked.inside.history and may_be_inside:
            return True
        # Where earlier commands have left the history, only what is new of it comes.
        return asked.is_deep and self.fetched.shadow is not None and self.fetched.shadow.is_there()

    def learn_from(self, known: Knowledge, content: Content | None = None) -> None:
        """Take in what another branch's answer said of this one, and what was read; else all that it takes is here."""
        self.knowledge = self.repository.knowledge = known
        self.learned()
        self.content = content
        if content is None:
            self.fetched.all_is_here()

    def state(self) -> State:
        """What it is.

        Raises:
            NotBranchError: there is no branch.
        """
        state = self.look()
        if state.tip is None or (state.inner and not self._may_be_inside):
            with self.words():
                raise NoSuchBranch(state.inner.encode() or self.knowledge.branch or HERE)
        return state

    def look_again(self) -> None:
        """Ask what it is now."""
        with self.words():
            self.server.settle()
            self.repository.learn_refs()
            self.learned()

    def _ask_content(self, asked: Wanted) -> None:
        """Read what a command wants; a second branch object of the same URL has what the first one read."""
        self.content = self.server.read.contents.get(self.path)
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
                self.fetched.ask(on_shadow=True)
                return
            self.server.read.contents[self.path] = self.content
        else:
            self.knowledge = self.content.remote.knowledge
        with self.words():
            self.learned()

    def look_at_graph(self) -> None:
        """Have whatever is asked of ancestry read off the ids and parents alone, once it is asked."""
        self.content = Content(self.repository, Wanted())

    def read_first(self, asked: Wanted) -> None:
        """Read this, if nobody has asked anything yet."""
        if self._state is None:
            self._ask_content(asked)

    def read_for(self, asked: Wanted) -> Content:
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
            return self.fetched.numbers
        # What was read of a branch beside this one may number another line.
        is_own = state.tip is None or self.content.numbers.get(state.tip) == state.revno
        return self.content.numbers if is_own else {}

    def remembered_tags(self) -> dict[str, RevisionId]:
        """Its tags as last seen."""
        return tags_of(self.knowledge, self.name())

    def remembered_tip(self) -> RevisionId | None:
        """Its tip as last seen."""
        value = self.knowledge.ref(self.name())
        return None if value is None else value[0].id

    def remembered_config(self) -> bytes:
        """Its options as last seen."""
        return self.knowledge.map(CONFIG, self.name()).get(b"", b"")

    def name(self) -> bytes:
        """What the branch is called in its repository, as far as that is known."""
        return self.knowledge.branch or self.knowledge.named or self.named or HERE

    def learned(self) -> None:
        """Keep what an answer said of this branch."""
        self.is_assumed = False
        known = self.knowledge
        if known.vcs != VCS:
            raise WrongVcs(known.at or "", known.vcs, VCS)
        branch = self.name()
        value = known.ref(branch)
        if value is None:
            self._state = State(known.at or "", known.inner)
            return
        tip = value[0]
        tags = self.remembered_tags()
        options = self.remembered_config()
        self._state = State(known.at or "", known.inner, tip.id, _revno(tip.attributes), tags, options)

    def ask(self, verb: AnyVerb, arguments: Arguments) -> Any:
        """Make one call on the repository, and learn what the answer says of it."""
        with self.words():
            self.server.settle()
            (result,) = self.repository.ask((verb, arguments)).results
            if isinstance(result, CodedError):
                raise result
            self.learned()
            return result

    # -- changes

    def push(
        self,
        updates: Sequence[RefUpdate],
        maps: Sequence[MapUpdateRequest],
        source: PushSource | None = None,
        new: NewRepository | None = None,
        replan: Callable[[], Changes] | None = None,
        *,
        is_likely: bool = False,
    ) -> Pushed:
        """Send a change, all of it or nothing; to be called in `words`. The rest is as in `PushRequest`."""
        self.server.settle()
        with moving("Sending revisions") as self.repository.sent:
            return self.repository.push(
                PushRequest(
                    updates,
                    source or Nothing(),
                    new,
                    maps,
                    atomic=True,
                    bulk=True,
                    is_likely=is_likely,
                    replan=replan,
                )
            )

    def change(
        self, updates: Sequence[RefUpdate], maps: Sequence[MapUpdateRequest] = (), source: PushSource | None = None
    ) -> Pushed:
        """Send a change, all of it or nothing, and take in what the answer says; to be called in `words`.

        Raises:
            CodedError: it was refused.
        """
        pushed = self.push(updates, maps, source)
        error = pushed.error()
        if error is not None:
            raise error
        self.learned()
        return pushed

    def is_now(self, target: Repository) -> None:
        """Take what the answer to a push from `target` says for what it is."""
        self.fetched.all_is_here(target)
        self.learned()

    def make(self) -> bool:
        """Make a repository at the path itself, without a branch; whether there was none."""
        kinds = [KindField(kind.name, kind.check, kind.base) for kind in KINDS]
        with self.words():
            self.server.settle()
            made = self.server.client.call(repository_create, CreateRequest(VCS, kinds), self.path).created
        if made:
            self.knowledge.forget()  # What is remembered was another's.
        self._state = State(self.path, "")
        return made


def _revno(attributes: bytes) -> int:
    return int(attributes) if attributes.isdigit() else 0
