"""Every error that may cross the wire. There is one class for each case that a caller can handle, and one code per
class.

CodedError (transports.errors)
├── TransportError ...
└── SmartServerError
    ├── RequestError
    │   ├── Unsupported            the peer is too old or too new for the request
    │   ├── LimitExceeded          a number in the request is over a limit
    │   ├── InvalidPath            the path of a repository is not valid
    │   ├── InvalidName            a ref, id or key is not valid
    │   ├── AccessDenied           the user lacks a permission
    │   ├── RefusedByHook          a command of the server's administrator refuses the change
    │   ├── Banned                 a rule of the client or of the server bans this call
    │   ├── OutcomeUnknown         the change may or may not have been made
    │   ├── Cancelled              the client cancelled before the change was made
    │   ├── RequestRefused         nothing changed: see the outcome of each call
    │   ├── NotDone                not done because another call of the request was refused
    │   ├── ServerBusy             the server has as many connections as it accepts
    │   ├── InternalError          a bug of the server
    │   └── UnknownRemoteError     an error that this release does not know
    └── RepositoryError
        ├── NoSuchRepository, RepositoryExists, IncompleteRepository, NestedRepository, WrongVcs
        ├── NoSuchBranch, BranchExists, DivergedBranches, NewHeads, StaleLease, HeadBranch, WrongTip
        ├── StaleEntry, WrongMapKind
        ├── MissingRevision, MissingParents, MissingBase, KnownRevisions, NoSuchPart
        ├── CorruptRecord, WrongParents, MissingReference, ConflictingRecord
        ├── CorruptFile
        └── RepositoryChanged      a file that was being read is gone: retry
"""

from __future__ import annotations

import dataclasses

import msgspec

from transports.errors import CodedError


class SmartServerError(CodedError):
    """The base class of the errors of this module."""


class RequestError(SmartServerError):
    """The base class of errors in the request itself, or in the server that received it."""


class RepositoryError(SmartServerError):
    """The base class of errors that prevent a request from being carried out on its repository."""


def _name(value: bytes) -> str:
    return repr(value.decode("utf-8", "backslashreplace"))


def place(path: str) -> str:
    """Return a repository's path for a message: quoted, or words for the server's root if the path is empty."""
    return repr(path) if path.strip("/") else "the server's root"


def known_as(above: str, path: str) -> str:
    """Return a path below the served folder in the form that the user types. `above`: the user's URL or path of that
    folder, with a slash at its end (sftp://host/srv/?QUERY, /srv/ or me@host:/srv/). The result has no query, and no
    machine before a colon. `above` is empty if the user's URLs begin at the folder, too."""
    if "://" in above:
        from urllib.parse import quote  # It takes 8 ms to load, which only a mistake costs.

        folder = above.partition("?")[0]
        path = quote(path, errors="surrogateescape")
    else:
        host, _, _ = above.partition("/")[0].rpartition(":")
        folder = above[len(host) + 1 :] if host else above
    return f"{folder}{path}".rstrip("/") or folder


def name_from(above: str, error: CodedError) -> None:
    """Change the paths in an error to the ones that `known_as` returns. An error without a path, or with a path in a
    repository's own folder, is not changed."""
    if not above or isinstance(error, CorruptFile):
        return
    for name in ("path", "inside"):
        path = getattr(error, name, None)
        if isinstance(path, str) and (path or isinstance(error, RepositoryError)):
            setattr(error, name, known_as(above, path))


def shown(key: bytes) -> str:
    """Return an id or key for a message: as text if it is printable, else in hex. Breezy's ids and keys are text; NUL
    joins the parts of its keys."""
    try:
        text = " ".join(part.decode() for part in key.split(b"\0"))
    except UnicodeDecodeError:
        return key.hex()
    return text if text.isprintable() else key.hex()


def _few(ids: list[bytes]) -> str:
    """Return the first three ids, and the number of the others, for a message."""
    return ", ".join(map(shown, ids[:3])) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


@dataclasses.dataclass(eq=False)
class Unsupported(RequestError, code="unsupported"):
    """The peer does not know a verb, field, feature or format that was requested. `speaks`: the ones that it knows."""

    what: str
    speaks: str

    def __str__(self) -> str:
        return f"not supported: {self.what}; supported: {self.speaks}"


@dataclasses.dataclass(eq=False)
class LimitExceeded(RequestError, code="limit-exceeded"):
    """A number is over a limit."""

    what: str
    value: int
    limit: int

    def __str__(self) -> str:
        return f"too many {self.what}: {self.value}, at most {self.limit} are allowed"


@dataclasses.dataclass(eq=False)
class InvalidPath(RequestError, code="invalid-path"):
    """The path of a repository is not valid."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"invalid repository path{f' {self.path!r}' if self.path else ''}: {self.why}"


@dataclasses.dataclass(eq=False)
class InvalidName(RequestError, code="invalid-name"):
    """A ref name, revision id or map key is not valid."""

    name: bytes
    why: str

    def __str__(self) -> str:
        return f"invalid name {_name(self.name)}: {self.why}"


TOKEN_WANTED = "wanted"
TOKEN_REFUSED = "refused"
"""Values of `AccessDenied.token`. WANTED: no token was sent, although the server identifies users by tokens. REFUSED:
the token that was sent is not valid."""


@dataclasses.dataclass(eq=False)
class AccessDenied(RequestError, code="access-denied"):
    """The user lacks a permission. `path`: the path of a repository that cannot be created, or empty. `token`: `wanted`
    if a token would identify the user, `refused` if the token that was sent is not valid, else empty."""

    what: str
    why: str
    path: str = ""
    token: str = ""

    def __str__(self) -> str:
        return f"not allowed to {self.what}{f' {self.path!r}' if self.path else ''}: {self.why}"


@dataclasses.dataclass(eq=False)
class RefusedByHook(RequestError, code="hook-refused"):
    """A command that the server runs before a change refuses it; nothing changed. `why`: the output of the command."""

    hook: str
    why: str

    def __str__(self) -> str:
        return f"refused by the server's hook {self.hook}: {self.why}"


@dataclasses.dataclass(eq=False)
class Banned(RequestError, code="banned"):
    """A rule of the client or of the server bans this call. `where`: the lines of code that made the call, the
    innermost first."""

    verb: str
    rule: str
    why: str = ""
    where: str = ""

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        where = f"; called from {self.where}" if self.where else ""
        return f"{self.verb} is banned by the rule {self.rule}{why}{where}"


@dataclasses.dataclass(eq=False)
class OutcomeUnknown(RequestError, code="outcome-unknown"):
    """It is unknown whether the request was carried out. Only file-level (VFS) calls may have been carried out in
    part."""

    why: str

    def __str__(self) -> str:
        unknown = "it is unknown whether the change was made"
        message = f"{unknown}: {self.why}; look at the repository before you repeat the command"
        return self.why if unknown in self.why else message  # A step may have said so.


@dataclasses.dataclass(eq=False)
class Cancelled(RequestError, code="cancelled"):
    """The client cancelled before the change was made. Nothing was changed."""

    def __str__(self) -> str:
        return "cancelled by the client; nothing changed"


@dataclasses.dataclass(eq=False)
class RequestRefused(RequestError, code="refused"):
    """Nothing was changed. The outcome of each call gives the reason."""

    def __str__(self) -> str:
        return "the server refused the request, and gave no reason; nothing changed"


@dataclasses.dataclass(eq=False)
class NotDone(RequestError, code="not-done"):
    """The call was not carried out because another call of the same request was refused."""

    def __str__(self) -> str:
        return "not done, because the server refused another change of the same command"


@dataclasses.dataclass(eq=False)
class ServerBusy(RequestError, code="server-busy"):
    """The server has as many connections as it accepts. No part of the request was read. A client does not retry by
    itself, because a retry would be one more connection."""

    what: str
    limit: int

    def __str__(self) -> str:
        return f"the server is busy: it takes no more than {self.limit} {self.what} at a time; try again later"


@dataclasses.dataclass(eq=False)
class InternalError(RequestError, code="internal"):
    """The server has a bug. `reference`: an id that is also in the log of the server, next to the error."""

    reference: str

    def __str__(self) -> str:
        return f"internal error in the server: tell its administrator, whose log has the reason under {self.reference}"


@dataclasses.dataclass(eq=False)
class UnknownRemoteError(RequestError, code="unknown-remote-error"):
    """The peer reported an error that this release does not know. `detail`: the beginning of its arguments, as text."""

    remote_code: str
    detail: str

    def __str__(self) -> str:
        return f"the server reported an error that only a newer release knows: {self.remote_code}: {self.detail}"


A_GIT_REPOSITORY = "a git repository"
A_BAZAAR_REPOSITORY = "a Bazaar repository"
"""Values of `NoSuchRepository.found` for which the user is told how to have the repository served."""


@dataclasses.dataclass(eq=False)
class NoSuchRepository(RepositoryError, code="no-such-repository"):
    """No repository exists at the path. `found`: a description of the thing at the path, or empty."""

    path: str
    found: str = ""

    def __str__(self) -> str:
        kind = "smartserver repository" if self.found else "repository"
        return f"there is no {kind} at {place(self.path)}" + (f", but {self.found}" if self.found else "")


@dataclasses.dataclass(eq=False)
class RepositoryExists(RepositoryError, code="repository-exists"):
    """The path already has a repository, and the caller required a new one."""

    path: str

    def __str__(self) -> str:
        return f"a repository already exists at {place(self.path)}"


@dataclasses.dataclass(eq=False)
class NestedRepository(RepositoryError, code="nested-repository"):
    """The path lies inside the folder of another repository."""

    path: str
    inside: str

    def __str__(self) -> str:
        where = repr(self.inside) if self.inside else f"at {place(self.inside)}"
        return f"{self.path!r} is inside the repository {where}: use that repository, or a path outside it"


@dataclasses.dataclass(eq=False)
class WrongVcs(RepositoryError, code="wrong-vcs"):
    """The repository belongs to another version-control system or object format."""

    path: str
    vcs: str
    asked: str

    def __str__(self) -> str:
        return f"the repository at {place(self.path)} is {self.vcs}, not {self.asked}"


@dataclasses.dataclass(eq=False)
class NoSuchBranch(RepositoryError, code="no-such-branch"):
    """The repository has no ref with this name."""

    ref: bytes

    def __str__(self) -> str:
        return f"there is no branch or tag {_name(self.ref)}: check the name, or pull again"


@dataclasses.dataclass(eq=False)
class BranchExists(RepositoryError, code="branch-exists"):
    """The ref exists with another tip, and the request does not permit moving it."""

    ref: bytes
    tip: bytes

    def __str__(self) -> str:
        return f"{_name(self.ref)} already exists, at {shown(self.tip)}: choose another name, or pull and merge first"


@dataclasses.dataclass(eq=False)
class DivergedBranches(RepositoryError, code="diverged"):
    """The new tip does not descend from `tip`, the present one. `behind`: True if it is an ancestor of `tip`."""

    ref: bytes
    tip: bytes
    behind: bool = False

    def __str__(self) -> str:
        if self.behind:
            return f"{_name(self.ref)} is at {shown(self.tip)}, ahead of the pushed revision: pull, or force the push"
        return f"{_name(self.ref)} has diverged: it is at {shown(self.tip)}; pull and merge first, or force the push"


@dataclasses.dataclass(eq=False)
class NewHeads(RepositoryError, code="new-heads"):
    """The ref would have more heads than before. `heads`: some of the new heads."""

    ref: bytes
    heads: list[bytes]

    def __str__(self) -> str:
        return f"{_name(self.ref)} would get a new head {_few(self.heads)}: pull and merge first, or force the push"


@dataclasses.dataclass(eq=False)
class IncompleteRepository(RepositoryError, code="incomplete-repository"):
    """A copy into the repository takes several requests, and the last one has not arrived yet."""

    path: str

    def __str__(self) -> str:
        return f"{place(self.path)} is incomplete: a copy into it was interrupted; run the copy again, or delete it"


@dataclasses.dataclass(eq=False)
class StaleLease(RepositoryError, code="stale-lease"):
    """The ref does not have the value that the caller expected."""

    ref: bytes
    expected: bytes
    actual: bytes

    def __str__(self) -> str:
        found = f"is at {shown(self.actual)}" if self.actual else "does not exist"
        expected = f"at {shown(self.expected)}" if self.expected else "not to exist"
        return f"{_name(self.ref)} {found}, but was expected {expected}: pull first, then try again"


@dataclasses.dataclass(eq=False)
class HeadBranch(RepositoryError, code="head-branch"):
    """The repository's HEAD names this ref, so it cannot be deleted."""

    ref: bytes

    def __str__(self) -> str:
        advice = "first run `smartserver config PATH head ANOTHER-BRANCH`"
        return f"{_name(self.ref)} cannot be deleted, because HEAD names it: {advice}"


@dataclasses.dataclass(eq=False)
class StaleEntry(RepositoryError, code="stale-entry"):
    """An entry of a map does not have the value that the caller expected. For a setting, `map` is `settings`."""

    map: str
    key: bytes

    def __str__(self) -> str:
        return f"somebody changed {_name(self.key)} in {self.map!r} meanwhile: pull first, then try again"


@dataclasses.dataclass(eq=False)
class WrongMapKind(RepositoryError, code="wrong-map-kind"):
    """The map has another kind than the request expects. `ids` is a map of revision ids; `opaque` is a map with any
    bytes."""

    map: str
    kind: str
    asked: str

    def __str__(self) -> str:
        return f"the map {self.map!r} has the kind {self.kind}, not {self.asked}"


@dataclasses.dataclass(eq=False)
class MissingRevision(RepositoryError, code="missing-revision"):
    """A revision that the request names is neither stored nor in the request."""

    revision: bytes

    def __str__(self) -> str:
        return f"the repository does not have revision {shown(self.revision)}: check the id, or pull again"


@dataclasses.dataclass(eq=False)
class WrongTip(RepositoryError, code="wrong-tip"):
    """The ref cannot point at a revision of this type. For example, a branch of git must point at a commit."""

    ref: bytes
    tip: bytes
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{_name(self.ref)} must point at {self.expected}; {shown(self.tip)} is {self.found}"


@dataclasses.dataclass(eq=False)
class MissingParents(RepositoryError, code="missing-parents"):
    """Parents of sent revisions are neither stored nor sent. The state in the answer has the present tips."""

    revisions: list[bytes]

    def __str__(self) -> str:
        return f"the repository lacks parents of the pushed revisions: {_few(self.revisions)}; pull, then push again"


@dataclasses.dataclass(eq=False)
class NoSuchPart(RepositoryError, code="no-such-part"):
    """A selector names a part of the repository that does not exist."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclasses.dataclass(eq=False)
class MissingBase(RepositoryError, code="missing-base"):
    """The server lacks delta bases or may not use them. The client must send their records without a base."""

    keys: list[bytes]

    def __str__(self) -> str:
        return f"the repository lacks delta bases: {_few(self.keys)}"


@dataclasses.dataclass(eq=False)
class KnownRevisions(RepositoryError, code="known"):
    """The server has many of the announced revisions. The client must plan again with `tips` as haves."""

    tips: list[bytes]

    def __str__(self) -> str:
        return f"the repository already has {_few(self.tips)} and their ancestors"


@dataclasses.dataclass(eq=False)
class CorruptRecord(RepositoryError, code="corrupt-record"):
    """The content of a record does not match its key or header."""

    revision: bytes
    key: bytes
    why: str

    def __str__(self) -> str:
        if not self.revision:
            return self.why  # The fault is not in one segment.
        record = f"record {shown(self.key)} of " if self.key else ""
        return f"{record}revision {shown(self.revision)} is not valid: {self.why}"


@dataclasses.dataclass(eq=False)
class WrongParents(RepositoryError, code="wrong-parents"):
    """The parents in a segment differ from those in the record of its revision."""

    revision: bytes

    def __str__(self) -> str:
        return f"revision {shown(self.revision)}: the parents sent with it differ from those in its own record"


@dataclasses.dataclass(eq=False)
class MissingReference(RepositoryError, code="missing-reference"):
    """A record refers to another record that is neither sent nor stored with an ancestor."""

    revision: bytes
    key: bytes
    missing: bytes

    def __str__(self) -> str:
        return f"{shown(self.key)} of revision {shown(self.revision)} refers to {shown(self.missing)}, which is missing"


@dataclasses.dataclass(eq=False)
class ConflictingRecord(RepositoryError, code="conflicting-record"):
    """The repository has a record with the same key and other content."""

    key: bytes

    def __str__(self) -> str:
        return f"the repository has other content for {shown(self.key)}: check both repositories for damage"


@dataclasses.dataclass(eq=False)
class CorruptFile(RepositoryError, code="corrupt-file"):
    """A file of the store is damaged. The error has its path, the offset of the damage, and the reason."""

    path: str
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.offset}: {self.why}"


@dataclasses.dataclass(eq=False)
class RepositoryChanged(RepositoryError, code="repository-changed", retryable=True):
    """The repository was recreated, or lost revisions, while a request read it. `file` is the missing file."""

    file: str

    def __str__(self) -> str:
        return f"{self.file} is gone: the repository was pruned or recreated while it was read; try again"


SHOWN = 1000
"""The most characters of an unknown error's arguments that are kept."""


def error_from_wire(code: str, arguments: dict[str, object]) -> CodedError:
    """Return the error that a peer reported.

    A code that this release does not know, or arguments of another form, give `UnknownRemoteError`.
    """
    cls = CodedError.by_code.get(code)
    if cls is None or not dataclasses.is_dataclass(cls):
        return UnknownRemoteError(code, repr(arguments)[:SHOWN])
    try:
        # Unknown arguments are skipped. A str in place of bytes is not taken for base64.
        reported: CodedError = msgspec.convert(arguments, cls, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        return UnknownRemoteError(code, f"{repr(arguments)[:SHOWN]} ({error})")
    return reported
