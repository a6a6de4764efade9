"""A context for verbs: a real transaction over a repository in memory, and a note of what was asked of the context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from builders import History, create, push
from memory_transport import MemoryTransport

from smartserver.errors import AccessDenied
from smartserver.store.model import ContentPlan, ListingEntry, PackReport, PullPlan, VerifyReport
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.verbs.declare import Files, Permission, ServerFacts


class NotedContext:
    """Implements as much of `verbs.declare.Context` as these tests need; what is in `denied` is refused."""

    server = ServerFacts("1.2.3", ("Server.ping", "x"))
    path = at = "project"
    branch, inner = b"", ""

    def __init__(self, transaction: Transaction, *, early: bool = False, denied: Iterable[Permission] = ()) -> None:
        self.transaction = transaction
        self.early = early
        self.denied = frozenset(denied)
        self.asked: list[tuple[Permission, bytes]] = []
        self.plans: list[PullPlan | ContentPlan] = []

    @property
    def files(self) -> Files:
        raise NotImplementedError

    def require(self, permission: Permission, ref: bytes = b"") -> None:
        self.asked.append((permission, ref))
        if permission in self.denied:
            raise AccessDenied(permission.value, "the test says so")

    def gather(self, size: int) -> None:
        raise NotImplementedError

    def stream(self, plan: PullPlan | ContentPlan) -> None:
        self.plans.append(plan)

    def verify(self) -> VerifyReport:
        raise NotImplementedError

    def mend(self) -> tuple[list[str], bool]:
        raise NotImplementedError

    def pack(self) -> PackReport:
        raise NotImplementedError

    def listing(self, after: str, most: int) -> Sequence[ListingEntry]:
        raise NotImplementedError


class Project:
    """A repository in memory with a history, of which some is pushed."""

    def __init__(self) -> None:
        self.history = History()
        self.repository = PackRepository(MemoryTransport(), "project")

    def push(
        self,
        revisions: Iterable[bytes],
        refs: Mapping[bytes, bytes | None] = {},
        first: Callable[[Transaction], object] = create,
    ) -> None:
        """Bring revisions and set refs."""
        push(self.repository, self.history, revisions, refs, first=first)

    def context(
        self,
        announced: Iterable[bytes] = (),
        *,
        early: bool = False,
        denied: Iterable[Permission] = (),
    ) -> NotedContext:
        """A request on it that announces these revisions."""
        graph = [self.history.announced(each) for each in announced]
        return NotedContext(self.repository.begin(graph), early=early, denied=denied)
