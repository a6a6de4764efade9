"""`Place`: a branch on a server in its last known state. Each change of the branch is one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from smartserver.client.body import EmptyBody
from smartserver.client.knowledge import Knowledge
from smartserver.client.places import served_by
from smartserver.client.push import Changes, PushRequest, PushSource
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome, RefUpdate
from smartserver.errors import NoSuchBranch, WrongVcs
from smartserver.plugins.breezy.server import cache_folder
from smartserver.plugins.breezy.terminal import moving
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.plugins.breezy.words import in_breezys_words
from smartserver.records.model import HERE, RevisionId
from smartserver.vcs.bzr.kinds import CONFIG, TAGS
from smartserver.vcs.bzr.left_hand import number_in
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.vcs.bzr.system import BzrSystem
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.map_update import MapUpdateRequest
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.repository_verify import VerifyResult
from transports.errors import CodedError

VCS = BrzRepository.vcs
KINDS = BzrSystem.kinds


@dataclass(frozen=True, slots=True)
class BranchState:
    """The state of a branch; `tip` is None if the branch is missing."""

    at: str
    """The path of the branch's repository."""
    inner: str
    """The part of the path below the branch."""
    tip: RevisionId | None = None
    attributes: bytes = b""
    """The attributes of the tip."""
    tags: Mapping[str, RevisionId] = field(default_factory=dict)
    config: bytes = b""

    @property
    def revno(self) -> int:
        """The number of the tip, from its attributes."""
        return number_in(self.attributes)


class Place:
    """One branch on a server, and the connection to it. Creating this object makes no request."""

    def __init__(self, transport: HpssTransport, name: str = "", *, inside: bool = False) -> None:
        """`name`: the name of a branch below the place of the URL; empty for the place itself. `inside`: True if the
        URL may also lead into a branch."""
        self._may_be_inside = inside
        self.url: str = transport.base
        self.location = transport.location
        self.path = "/".join([part for part in (self.location.path, name) if part])
        self.knowledge = Knowledge(cache_folder(), served_by(self.location) + self.path, self.path)
        self.server = transport.server
        self.repository = RemoteRepository(self.server.client, self.path, self.knowledge, below=True)
        self.named = b""
        """The branch's name in a refusal. It is used until another answer has the name."""
        self.seen: BranchState | None = None
        """The state, once it was received or assumed."""
        self.is_assumed = False
        """True if the state was assumed without a request."""
        self.verified: VerifyResult | None = None
        """The result of a verification of the repository; None before."""

    def words(self) -> AbstractContextManager[None]:
        """Return a context for requests, which converts errors to Breezy's."""
        return in_breezys_words(self.url, self.location)

    @property
    def is_remembered(self) -> bool:
        """True if the last answer contained a branch at exactly this path."""
        known = self.knowledge
        return known.vcs == VCS and bool(known.named) and known.ref(known.named or b"") is not None

    def there(self) -> BranchState:
        """Return the known state.

        Raises:
            NotBranchError: the branch does not exist.
        """
        seen = self.seen
        assert seen is not None, "asked"
        if seen.tip is None or (seen.inner and not self._may_be_inside):
            with self.words():
                raise NoSuchBranch(seen.inner.encode() or self.knowledge.branch or HERE)
        return seen

    def learn_refusal(self) -> None:
        """Use the state in a refusal. If the refusal does not have the branch's state, request it."""
        self.learned()
        if self.seen is None or self.seen.tip is None:
            self.look_again()

    def look_again(self) -> None:
        """Ask the server for the current state."""
        with self.words():
            self.repository.learn_refs()
            self.learned()

    def remembered(self) -> BranchState:
        """Return the state as of the last answer."""
        known, name = self.knowledge, self.name()
        value, tags, options = known.ref(name), tags_of(known, name), known.map(CONFIG, name).get(b"", b"")
        if value is None:
            return BranchState(known.at or "", known.inner, tags=tags, config=options)
        return BranchState(known.at or "", known.inner, value[0].id, value[0].attributes, tags, options)

    def name(self) -> bytes:
        """Return the name of the branch in its repository, as far as it is known."""
        return self.knowledge.branch or self.knowledge.named or self.named or HERE

    def learned(self) -> None:
        """Set `seen` to the state of this branch in the last answer."""
        self.is_assumed = False
        if self.knowledge.vcs != VCS:
            raise WrongVcs(self.knowledge.at or "", self.knowledge.vcs, VCS)
        self.seen = self.remembered()

    def ask(self, verb: AnyVerb, arguments: Arguments) -> Any:
        """Make one call on the repository, use the state in its answer, and return the result."""
        with self.words():
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
    ) -> PushOutcome:
        """Push a change atomically; call this in `words`. The other arguments are those of `PushRequest`."""
        with moving("Sending revisions") as self.repository.sent:
            body = source or EmptyBody()
            request = PushRequest(updates, body, new, maps, atomic=True, bulk=True, is_likely=is_likely, replan=replan)
            return self.repository.push(request)

    def change(
        self, updates: Sequence[RefUpdate], maps: Sequence[MapUpdateRequest] = (), source: PushSource | None = None
    ) -> PushOutcome:
        """Send a change atomically, and use the state in the answer; call this in `words`.

        Raises:
            CodedError: the change was refused.
        """
        pushed = self.push(updates, maps, source)
        error = pushed.error()
        if error is not None:
            raise error
        self.learned()
        return pushed

    def make(self) -> bool:
        """Create a repository at the path itself, without a branch. Return False if there was one already."""
        kinds = [KindField(kind.name, kind.check, kind.base) for kind in KINDS]
        with self.words():
            made = self.server.client.call(repository_create, CreateRequest(VCS, kinds), self.path).created
        if made:
            self.knowledge.forget()  # The remembered state is that of another repository.
        self.seen = BranchState(self.path, "")
        return made


def tags_of(knowledge: Knowledge, branch: bytes) -> dict[str, RevisionId]:
    """Return the last known tags of a branch."""
    return {name.decode("utf-8", "replace"): tag for name, tag in knowledge.map(TAGS, branch).items()}
