"""`@verb`: the one declaration of an RPC method; stub, dispatch, permission, reference and tests come from it."""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from smartserver.store.model import ContentPlan, ListingEntry, PackReport, PullPlan, VerifyReport
from transports.errors import CodedError

if TYPE_CHECKING:  # Every client starts by loading this module, and few have to do with files, none with a store.
    from smartserver.store.transaction import Transaction
    from transports.base import ReadFile, Transport

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
ResultT = TypeVar("ResultT", bound=msgspec.Struct)


class Arguments(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of what a verb is given: a msgpack array whose fields are only ever appended; unknown ones are refused."""


class Result(msgspec.Struct, frozen=True, array_like=True):
    """Base of what a verb answers: a msgpack array whose fields are only ever appended; unknown ones are skipped."""


class Effect(enum.Enum):
    """The effect of a verb; it decides the permission, and if the request needs a commit."""

    READ = "read"
    MUTATE = "mutate"


class Body(enum.Enum):
    """The stream of segments that goes with a call, if one does."""

    NONE = "none"
    UP = "up"
    DOWN = "down"


class Permission(enum.Enum):
    """A right of a user to a repository; write, create and force may be given per ref."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    FORCE = "force"
    DELETE = "delete"
    VFS = "vfs"
    """To use the file-level verbs, besides what a call of any verb needs: they know no refs."""
    ADMIN = "administer"
    """To change the settings of a repository, such as HEAD."""


class ServerFacts(msgspec.Struct, frozen=True):
    """The facts that a server says of itself."""

    version: str
    capabilities: tuple[str, ...]


class Files(Protocol):
    """The store as file-level verbs get it, where the server allows them: the only I/O that verbs do."""

    @property
    def tree(self) -> Transport:
        """All below the request's path, and nothing else; errors name paths from there."""

    def brought(self, size: int) -> Iterator[bytes]:
        """The next bytes of the request's body, in pieces."""

    def give(self, path: str, file: ReadFile, ranges: Sequence[tuple[int, int]]) -> bytes | None:
        """Take over an open file: its ranges, joined, for the result, or None where they are sent in the body.

        Raises:
            LimitExceeded: too many files are open for answers.
        """


class Context(Protocol):
    """The argument of a verb. It decides on the transaction and asks the context for everything else."""

    @property
    def transaction(self) -> Transaction:
        """The request's view of its repository."""

    @property
    def server(self) -> ServerFacts:
        """The facts about this server."""

    @property
    def early(self) -> bool:
        """True if the body is still on its way: only refusals are final."""

    @property
    def path(self) -> str:
        """The path the client named."""

    @property
    def at(self) -> str:
        """The longest prefix of the request's path that is a repository, or empty."""

    @property
    def branch(self) -> bytes:
        """The ref that `.` stands for; empty where the request does not ask what lies below a repository."""

    @property
    def inner(self) -> str:
        """The part of the path below the branch; empty in a request that changes something."""

    @property
    def files(self) -> Files:
        """The served files; there in requests of VFS calls alone."""

    def require(self, permission: Permission, ref: bytes = b"") -> None:
        """Check that the user may do that.

        Raises:
            AccessDenied: it may not.
        """

    def gather(self, size: int) -> None:
        """Count bytes of a result while it is made, before they are kept.

        Raises:
            LimitExceeded: the results of the request are too long.
        """

    def stream(self, plan: PullPlan | ContentPlan) -> None:
        """Send what a plan says as the body of the reply."""

    def verify(self) -> VerifyReport:
        """Read and check the whole repository, reporting progress.

        Raises:
            NoSuchRepository: there is none.
        """

    def mend(self) -> tuple[list[str], bool]:
        """Mend what an earlier release stored because a client claimed it; what that is, and whether more is left.

        Raises:
            NoSuchRepository: there is none.
        """

    def pack(self) -> PackReport:
        """Join the repository's packs, reporting progress.

        Raises:
            NoSuchRepository: there is none.
        """

    def listing(self, after: str, most: int) -> Sequence[ListingEntry]:
        """The repositories at or below the request's path, by path, those after `after` and at most `most`.

        Raises:
            LimitExceeded: there are too many folders to look into.
        """


class Declaration(msgspec.Struct, frozen=True):
    """The declaration of an RPC method by `@verb`; the effect left out is the strictest one."""

    name: str
    effect: Effect = Effect.MUTATE
    body: Body = Body.NONE
    is_vfs: bool = False
    errors: tuple[type[CodedError], ...] = ()
    own_verdict: bool = False
    """In a request that is not atomic, refused by itself; when every such call is refused nothing changes."""
    site_wide: bool = False
    """Concerns the server, not a repository."""
    finds_above: bool = False
    """Takes a path below a repository too."""
    long: bool = False
    """May take minutes: runs apart from the calls that answer at once."""
    alone: bool = False
    """No other call may be in its request."""
    of_incomplete: bool = False
    """Maintenance: works on a repository into which a copy is not complete, too."""
    copies: Callable[[Any], bool] = lambda arguments: False
    """True if a call with these arguments says that its request goes on with such a copy."""

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
        """The right that every call of it needs; the verb asks for more where it matters."""
        return Permission.READ if self.effect is Effect.READ else Permission.WRITE


AnyVerb = Verb[Any, Any]

Calls = Sequence[tuple[AnyVerb, Arguments]]
"""The calls of one request."""

VERBS: dict[str, AnyVerb] = {}
"""Every verb declared so far, by name."""
