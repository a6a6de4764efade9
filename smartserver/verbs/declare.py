"""`@verb`: the declaration of an RPC method. Its stub, dispatch, permission, reference page and tests follow from
it."""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from smartserver.store.model import ContentPlan, ListingEntry, PackReport, PullPlan, VerifyReport
from transports.errors import CodedError

if TYPE_CHECKING:  # Every client loads this module at its start; few use files, and none a store.
    from smartserver.store.transaction import Transaction
    from transports.base import ReadFile, Transport

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
ResultT = TypeVar("ResultT", bound=msgspec.Struct)


class Arguments(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of a verb's arguments: a msgpack array. Releases only append fields; unknown fields are refused."""


class Result(msgspec.Struct, frozen=True, array_like=True):
    """The base of a verb's result: a msgpack array. Releases only append fields; unknown fields are skipped."""


class Effect(enum.Enum):
    """The effect of a verb. It decides the permission, and whether the request needs a commit."""

    READ = "read"
    MUTATE = "mutate"


class Body(enum.Enum):
    """The direction of the body that belongs to a call, or none. File-level verbs do not declare their bodies."""

    NONE = "none"
    UP = "up"
    DOWN = "down"


class Permission(enum.Enum):
    """A right of a user to a repository. Write, create and force may be granted per ref."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    FORCE = "force"
    DELETE = "delete"
    VFS = "use file-level (VFS) verbs"
    """The right to use file-level verbs, in addition to the right that each call needs. It is not granted per ref."""
    ADMIN = "administer"
    """The right to change the settings of a repository, such as HEAD."""


class ServerFacts(msgspec.Struct, frozen=True):
    """The facts about a server that are sent to clients."""

    version: str
    capabilities: tuple[str, ...]


class Files(Protocol):
    """The files of the store, for file-level verbs. This is the only I/O that verbs do."""

    @property
    def tree(self) -> Transport:
        """The tree below the request's path, and no other files. Errors name paths relative to it."""

    def brought(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes of the request's body, in pieces."""

    def give(self, path: str, file: ReadFile, ranges: Sequence[tuple[int, int]]) -> bytes | None:
        """Take over an open file. Return its joined ranges for the result, or None if they are sent in the reply's
        body.

        Raises:
            LimitExceeded: too many files are open for answers.
        """


class Context(Protocol):
    """The first argument of a verb. A verb decides on the transaction, and gets all other input from the context."""

    @property
    def transaction(self) -> Transaction:
        """The request's view of the repository."""

    @property
    def server(self) -> ServerFacts:
        """The facts about this server."""

    @property
    def early(self) -> bool:
        """True if the body is not complete yet; then only refusals are final."""

    @property
    def path(self) -> str:
        """The path in the request."""

    @property
    def at(self) -> str:
        """The longest prefix of the request's path that is a repository, or empty."""

    @property
    def branch(self) -> bytes:
        """The ref that `.` denotes; empty if the path of the request may not lead below a repository."""

    @property
    def inner(self) -> str:
        """The part of the path below the branch; empty in a request that changes something."""

    @property
    def files(self) -> Files:
        """The served files. Only requests of VFS calls have them."""

    def require(self, permission: Permission, ref: bytes = b"") -> None:
        """Check that the user has a permission.

        Raises:
            AccessDenied: the user lacks the permission.
        """

    def gather(self, size: int) -> None:
        """Count bytes of a result while it is built, so that a result that is too long is never whole in memory.

        Raises:
            LimitExceeded: the results of the request are too long.
        """

    def stream(self, plan: PullPlan | ContentPlan) -> None:
        """Set the plan of the body that follows the reply."""

    def verify(self) -> VerifyReport:
        """Read and check the whole repository, reporting progress.

        Raises:
            NoSuchRepository: there is no repository.
        """

    def mend(self) -> tuple[list[str], bool]:
        """Correct data that an earlier release stored unchecked. Return a line for each correction, and True if another
        call is needed.

        Raises:
            NoSuchRepository: there is no repository.
        """

    def pack(self) -> PackReport:
        """Join the repository's packs, reporting progress.

        Raises:
            NoSuchRepository: there is no repository.
        """

    def listing(self, after: str, most: int) -> Sequence[ListingEntry]:
        """Return at most `most` repositories at or below the request's path, sorted by path and beginning after
        `after`.

        Raises:
            LimitExceeded: too many folders would have to be read.
        """


class Declaration(msgspec.Struct, frozen=True):
    """The declaration of an RPC method by `@verb`. The default effect is the strictest one."""

    name: str
    effect: Effect = Effect.MUTATE
    body: Body = Body.NONE
    is_vfs: bool = False
    errors: tuple[type[CodedError], ...] = ()
    own_verdict: bool = False
    """True if a call can be refused alone in a request that is not atomic. If every such call is refused, nothing
    changes."""
    site_wide: bool = False
    """True if the verb concerns the server, not a repository."""
    finds_above: bool = False
    """True if the path may lead below a repository."""
    long: bool = False
    """True if a call may take minutes. It is executed separately from quick calls."""
    alone: bool = False
    """True if the request must have no other call."""
    of_incomplete: bool = False
    """True for maintenance, which also works on a repository whose copy is incomplete."""
    copies: Callable[[Any], bool] = lambda arguments: False
    """A function that returns True if a call with these arguments is part of a copy of several requests."""

    def __call__(self, function: Callable[[Context, RequestT], ResultT]) -> Verb[RequestT, ResultT]:
        """Declare the method.

        Raises:
            TypeError: the name is taken, or the function has no docstring or lacks an annotation.
        """
        name = self.name
        if name in VERBS:
            raise TypeError(f"verb {name!r} is declared twice")
        if not function.__doc__:
            raise TypeError(f"verb {name!r} has no docstring; the reference page needs one")
        hints = typing.get_type_hints(function)
        request_type, result_type = hints.get("request"), hints.get("return")
        if not (isinstance(request_type, type) and issubclass(request_type, Arguments)):
            raise TypeError(f"verb {name!r}: `request` is not annotated with an Arguments struct")
        if not (isinstance(result_type, type) and issubclass(result_type, Result)):
            raise TypeError(f"verb {name!r}: what it returns is not annotated with a Result struct")
        summary, _, description = function.__doc__.strip().partition("\n")
        declared: Verb[RequestT, ResultT] = Verb(
            **msgspec.structs.asdict(self),
            summary=summary,
            description=description.strip(),
            request_type=typing.cast("type[RequestT]", request_type),
            result_type=typing.cast("type[ResultT]", result_type),
            function=function,
        )
        VERBS[name] = declared
        return declared


verb = Declaration


class Verb(Declaration, Generic[RequestT, ResultT], frozen=True, kw_only=True):
    """One RPC method."""

    summary: str
    description: str
    request_type: type[RequestT]
    result_type: type[ResultT]
    function: Callable[[Context, RequestT], ResultT]

    @property
    def permission(self) -> Permission:
        """The permission that every call needs. The verb itself may require further permissions."""
        return Permission.READ if self.effect is Effect.READ else Permission.WRITE


AnyVerb = Verb[Any, Any]

Calls = Sequence[tuple[AnyVerb, Arguments]]
"""The calls of one request."""

VERBS: dict[str, AnyVerb] = {}
"""Every verb declared so far, by name."""
