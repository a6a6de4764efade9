"""The file-level verbs (VFS): what a `Transport` does with files, one verb each.

They are the baseline that the others are measured against, and a way to a repository whose server does no more for it.
A server refuses them unless it was told to allow them (`serve --allow-vfs`). Two rules for verbs do not hold here:

* They do I/O: `context.files` is the served folder, jailed, from the request's path on. So a request has VFS calls
  alone, and they are not planned but done, in order until the first that fails; the rest is not done. Nothing remembers
  a request, so one that changes something is carried out at its first sending or never.
* What a file holds need not lie in arguments and results. A call that brings content says how much of it is in the body
  of the request, and a result that says no content has it in the body of the answer: there the contents lie one after
  the other, in the order of the calls.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec

from smartserver.errors import InvalidPath, LimitExceeded
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb
from transports.base import ReadFile, WriteFile
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NoSpace,
    NoSuchFile,
    NotADirectory,
    NotSupported,
    PermissionDenied,
    TransportError,
    TransportFailed,
)

MAX_FILE_PATH = 4096
"""Characters of a path: Linux takes no longer one (PATH_MAX)."""

MAX_CONTENT = 64 * 1024
"""Bytes of content in the arguments of a call, and in all results of a request: most records of a log are smaller. What
is longer is in a body. Of that a server holds no more than a piece; a client that wants a file whole has it whole."""

MAX_RANGES = 4096
"""Ranges of a `readv`: the records of a large tree are some thousand, and more calls may be in the request."""

LARGEST = 2**63 - 1
"""The largest offset and size that file systems take."""

FilePath = Annotated[str, msgspec.Meta(max_length=MAX_FILE_PATH, examples=["packs/0a1b.pack"])]
"""Names with a slash between them, from the request's path on; empty: that place itself."""

Content = Annotated[bytes, msgspec.Meta(max_length=MAX_CONTENT, examples=[b"content"])]
"""Bytes of a file."""

Size = Annotated[int, msgspec.Meta(ge=0, le=LARGEST, examples=[300])]
"""A size or an offset."""


class PathRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A path."""

    path: FilePath


class LookRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A path to look at; `lacking`: that it is not there is an answer, nil, and no failure."""

    path: FilePath
    lacking: bool = False


class RangeField(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Bytes of a file."""

    offset: Size
    size: Size


class ReadvRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file, and which bytes of it."""

    path: FilePath
    ranges: Annotated[list[RangeField], msgspec.Meta(max_length=MAX_RANGES)] = []


class BringRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file and what to write: `content`, then the next `rest` bytes of the request's body."""

    path: FilePath
    content: Content = b""
    rest: Size = 0


class RenameRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The old name and the new one."""

    path: FilePath
    target: FilePath


class WithdrawRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A published file, and the name that a folder gets before it is removed, which nothing has."""

    path: FilePath
    aside: FilePath


class NoResult(Result, frozen=True, array_like=True):
    """Nothing: it is done."""


class HasResult(Result, frozen=True, array_like=True):
    """True if anything has that name."""

    found: bool


class GetResult(Result, frozen=True, array_like=True):
    """The size of the file, nil where there is none, and its bytes; nil: they are in the body."""

    size: int | None
    content: bytes | None = None


class ReadvResult(Result, frozen=True, array_like=True):
    """The bytes that each range has, fewer than asked for only at the end, and those that the file has; and the
    content, joined; nil: they are in the body."""

    sizes: list[int]
    size: int
    content: bytes | None = None


class NamesResult(Result, frozen=True, array_like=True):
    """The names in the folder, sorted; nil where it is not there."""

    names: list[str] | None


class StatResult(Result, frozen=True, array_like=True):
    """`file`, `directory` or `other`, nil where nothing is there; bytes; and when it was changed last, in seconds by
    the store's clock."""

    kind: str | None
    size: int = 0
    modified: float = 0.0


READS = (InvalidPath, NoSuchFile, NotADirectory, PermissionDenied, TransportFailed)
CHANGES = (*READS, FileExists, DirectoryNotEmpty, NoSpace)


@contextlib.contextmanager
def _may_lack(request: LookRequest) -> Iterator[None]:
    """Go on where there is nothing, if that is an answer."""
    try:
        yield
    except (NoSuchFile, NotADirectory):
        if not request.lacking:
            raise


def _whole(context: Context, request: LookRequest, open_file: Callable[[str], ReadFile]) -> GetResult:
    """All that a file holds."""
    with _may_lack(request):
        file = open_file(request.path)
        size = file.size()
        return GetResult(size, context.files.give(request.path, file, [(0, size)]))
    return GetResult(None)


@verb("has", effect=Effect.READ, is_vfs=True, errors=READS)
def has(context: Context, request: PathRequest) -> HasResult:
    """Say whether anything has that name."""
    return HasResult(context.files.tree.exists(request.path))


@verb("get", effect=Effect.READ, is_vfs=True, errors=(LimitExceeded, *READS))
def get(context: Context, request: LookRequest) -> GetResult:
    """Give all that a file holds."""
    return _whole(context, request, context.files.tree.open_read)


@verb("readv", effect=Effect.READ, is_vfs=True, errors=(LimitExceeded, *READS))
def readv(context: Context, request: ReadvRequest) -> ReadvResult:
    """Give some ranges of a file, in the order asked. With none it says that there is such a file, and its size."""
    file = context.files.tree.open_read(request.path)
    size = file.size()
    ranges = [(each.offset, max(0, min(each.size, size - each.offset))) for each in request.ranges]
    return ReadvResult([length for _, length in ranges], size, context.files.give(request.path, file, ranges))


@verb("put", is_vfs=True, errors=CHANGES)
def put(context: Context, request: BringRequest) -> NoResult:
    """Make a new file whose content is durable; its name is after `sync_dir` of its folder.

    Where that fails there is no such file.
    """
    file = context.files.tree.create(request.path)
    try:
        _write(context, file, request)
    except TransportError:
        with contextlib.suppress(TransportError):
            context.files.tree.delete(request.path)
        raise
    return NoResult()


@verb("append", is_vfs=True, errors=(*CHANGES, NotSupported))
def append(context: Context, request: BringRequest) -> NoResult:
    """Write on from the end of a file that is there, durably. Where that fails a part may be written."""
    _write(context, context.files.tree.append(request.path), request)
    return NoResult()


def _write(context: Context, file: WriteFile, request: BringRequest) -> None:
    try:
        for piece in itertools.chain((request.content,), context.files.brought(request.rest)):
            file.write(piece)
        file.sync()
    finally:
        file.close()


@verb("mkdir", is_vfs=True, errors=CHANGES)
def mkdir(context: Context, request: PathRequest) -> NoResult:
    """Make one folder."""
    context.files.tree.make_directory(request.path)
    return NoResult()


@verb("rmdir", is_vfs=True, errors=CHANGES)
def rmdir(context: Context, request: PathRequest) -> NoResult:
    """Remove one empty folder."""
    context.files.tree.remove_directory(request.path)
    return NoResult()


@verb("delete", is_vfs=True, errors=CHANGES)
def delete(context: Context, request: PathRequest) -> NoResult:
    """Remove a file."""
    context.files.tree.delete(request.path)
    return NoResult()


@verb("rename", is_vfs=True, errors=CHANGES)
def rename(context: Context, request: RenameRequest) -> NoResult:
    """Give a file or folder another name, replacing a file that has it: at once, for whoever looks.

    A folder replaces an empty one at most.
    """
    context.files.tree.rename(request.path, request.target)
    return NoResult()


@verb("publish", is_vfs=True, errors=CHANGES)
def publish(context: Context, request: RenameRequest) -> NoResult:
    """Give a file a name that nothing has: of any number of clients, on any ways to the store, one succeeds."""
    context.files.tree.publish(request.path, request.target)
    return NoResult()


@verb("get_published", effect=Effect.READ, is_vfs=True, errors=(LimitExceeded, *READS))
def get_published(context: Context, request: LookRequest) -> GetResult:
    """Give all that a published file holds, in whichever form it was published."""
    return _whole(context, request, context.files.tree.open_published)


@verb("withdraw", is_vfs=True, errors=CHANGES)
def withdraw(context: Context, request: WithdrawRequest) -> NoResult:
    """Remove a published file, in whichever form it was published."""
    context.files.tree.withdraw(request.path, request.aside)
    return NoResult()


@verb("list_dir", effect=Effect.READ, is_vfs=True, errors=READS)
def list_dir(context: Context, request: LookRequest) -> NamesResult:
    """Give the names in a folder."""
    with _may_lack(request):
        return NamesResult(context.files.tree.list_directory(request.path))
    return NamesResult(None)


@verb("stat", effect=Effect.READ, is_vfs=True, errors=READS)
def stat(context: Context, request: LookRequest) -> StatResult:
    """Say what is there."""
    with _may_lack(request):
        found = context.files.tree.stat(request.path)
        return StatResult(found.kind.value, found.size, found.modified)
    return StatResult(None)


@verb("sync_dir", is_vfs=True, errors=CHANGES)
def sync_dir(context: Context, request: PathRequest) -> NoResult:
    """Make every name made, renamed or removed in a folder durable."""
    context.files.tree.sync_directory(request.path)
    return NoResult()
