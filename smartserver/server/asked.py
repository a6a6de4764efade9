"""What a request asks, and what of the site it sees: its repository, looked up once, and its state as it travels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from msgspec import Raw

from smartserver.errors import LimitExceeded
from smartserver.records.model import Announced
from smartserver.server.access import Access
from smartserver.server.advice import of_client, of_format, of_packs
from smartserver.server.dispatch import CallContext, NoRepository, Prepared
from smartserver.server.site import Found, Site
from smartserver.store.allowance import Allowance
from smartserver.store.document import Root
from smartserver.store.model import Changes, Listed, PackReport, Seen, VerifyReport
from smartserver.store.repository import Committed
from smartserver.store.states import Look
from smartserver.store.transaction import RepositoryTransaction
from smartserver.store.upload import Report
from smartserver.verbs.declare import Permission, ServerFacts
from smartserver.wire.messages import Advice, Outcome, Reply, RequestFlag, State, raw
from transports.errors import CodedError

NIL = Raw(b"\xc0")
"""The value of a ref that is gone, encoded."""


def state_of(changes: Changes) -> State:
    """A repository's root, or what changed of it, as it travels."""
    return State(
        incarnation=changes.incarnation,
        version=changes.version,
        since=changes.since,
        refs={name: NIL if value is None else Raw(value) for name, value in changes.refs.items()},
        maps={name: raw(dict(entries.items())) for name, entries in changes.maps.items()},
        vcs=changes.vcs,
        settings=dict(changes.settings),
        mark=changes.mark,
    )


class Asked:
    """One request and the repository it names. Everything here blocks."""

    def __init__(self, site: Site, access: Access, prepared: Prepared, progress: Report) -> None:
        self.prepared = prepared
        self.access = access
        self.progress = progress
        self.allowance = Allowance()
        """What the request may still cost; cancelled when the client wants no more, or is gone."""
        self.site = site
        self.found: Found | None = None
        """What `find` gave; None as long as nobody looked."""
        self._look: Look | None = None
        """What `find` saw of it, until that was used."""
        self.sees_now = True
        """Whether what `begin` gave last is of this moment, and not merely what the client knows."""
        self._repeated: Committed | None = None
        self._arrived = site.clock() if prepared.message.age else 0.0

    @property
    def id(self) -> bytes:
        """The same for each repetition."""
        return self.prepared.message.id

    @property
    def known(self) -> Seen | None:
        """The newest root the client has seen."""
        known = self.prepared.message.known
        return None if known is None else Seen(known.incarnation, known.version, known.mark)

    def find(self) -> Found:
        """The repository, or the place where it may be made.

        Raises:
            AccessDenied: the user may not read; whoever may not is not told what there is.
            InvalidPath, NestedRepository: as `Site.find`.
        """
        if self.found is None:
            self.access.require(Permission.READ)
            path = self.prepared.message.path
            if self.prepared.flags & RequestFlag.BELOW:
                self.found = self._below(path)
            else:
                above = all(verb.finds_above for verb, _ in self.prepared.calls)
                changes = self.prepared.mutates and not self.prepared.flags & RequestFlag.CHECK_ONLY
                seen = self.known if changes else None
                self.found = self.site.find_above(path) if above else self.site.find(path, seen)
            self._look = self.found.look
        return self.found

    def _below(self, path: str) -> Found:
        """The repository a path leads to or below. A repeat finds one that was deleted, too, if it was carried out
        there: it must not make another at the end of its path.
        """
        found = self.site.find_below(path)
        if not found.exists and self.prepared.mutates and self.prepared.message.age:
            for deleted in self.site.deleted_above(path):
                self._repeated = deleted.earlier(self.id, self.age())
                if self._repeated is not None:
                    return Found(deleted, False)
        return found

    def begin(self, announced: Sequence[Announced] = ()) -> RepositoryTransaction:
        """A view of the repository: as it was found, then as it is now."""
        repository = self.find().repository
        look, self._look = self._look, None
        self.sees_now = look is None or look.now
        return repository.begin(self.id, self.access.user, announced, look, self.allowance)

    def context(self, transaction: RepositoryTransaction, *, early: bool = False) -> CallContext:
        """What the verbs get. `early`: the body is still on its way."""
        return CallContext(transaction, self, early=early)

    def site_wide(self) -> CallContext:
        """What verbs get that concern the server alone."""
        return CallContext(cast("RepositoryTransaction", NoRepository(self.prepared.message.path)), self)

    def age(self) -> int:
        """Milliseconds since the first sending: what the client said when this one began, and the time since."""
        age = self.prepared.message.age
        return age + int((self.site.clock() - self._arrived) * 1000) if age else 0

    def earlier(self) -> Committed | None:
        """What became of this request if it is repeated and was carried out before."""
        if self._repeated is None and self.prepared.message.age:
            self._repeated = self.find().repository.earlier(self.id, self.age())
        return self._repeated

    def reply(
        self,
        outcomes: list[Outcome],
        changes: Changes | None,
        root: Root | None = None,
        advice: Advice | None = None,
    ) -> Reply:
        """The message of an answer; None where there is no repository. `root`: the one it was made from; `advice`: what
        is to be said besides."""
        return Reply(
            outcomes,
            None if changes is None else state_of(changes),
            capabilities=self.capabilities(),
            advice=[*([] if root is None else self._advice(root)), *([] if advice is None else [advice])],
        )

    def _advice(self, root: Root) -> list[Advice]:
        """What this user should know of the repository, and of his client where it said what it is."""
        found: list[Advice | None] = []
        if Permission.WRITE in self.access.permissions:
            found = [of_format(self.find().repository.format()), of_packs(root)]
        agent = self.prepared.message.extras.get("agent")
        return [each for each in (*found, of_client(agent)) if each is not None]

    def capabilities(self) -> list[str]:
        """Sent to whoever seems not to have met this repository yet."""
        return [] if self.known is not None else list(self.site.facts.capabilities)

    def state_after(self, error: CodedError) -> State | None:
        """What a refused client needs to plan again; nothing where it may not read."""
        if self.found is None or not self.found.exists or isinstance(error, LimitExceeded):
            return None
        try:
            self.access.require(Permission.READ)
            self._look = None  # It may be what he knows already.
            transaction = self.begin()
            return state_of(transaction.changes_since(self.known)) if transaction.exists else None
        except CodedError:
            return None

    # -- what verbs ask for, by way of their context

    @property
    def facts(self) -> ServerFacts:
        """What this server is."""
        return self.site.facts

    @property
    def may_create(self) -> bool:
        """Whether the server makes repositories."""
        return self.site.may_create

    @property
    def place(self) -> str:
        """The path of the repository, be it there or to be made."""
        return self.find().repository.path

    def listing(self, after: str, most: int) -> Sequence[Listed]:
        """The repositories at or below the path."""
        return self.site.listing(self.prepared.message.path, after, most, self.allowance)

    def verify(self) -> VerifyReport:
        """Check the whole repository."""
        return self.find().repository.verify(partial(self._tell, "verify"))

    def pack(self) -> PackReport:
        """Join packs, and delete what was dropped a day ago where nobody does that unasked."""
        repository = self.find().repository
        report = repository.repack(partial(self._tell, "pack"))
        if not self.site.tidies:
            repository.collect_garbage_files()
        return report

    def _tell(self, phase: str, done: int, total: int) -> None:
        self.allowance()
        self.progress(phase, done, total)
