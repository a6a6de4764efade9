"""The file-level verbs (VFS): one verb for each operation of a `Transport`.

They are the baseline for measurements of the other verbs, and give access to the files of a store through a server. A
server refuses them unless it runs with `serve --allow-vfs`. Two rules for verbs do not apply here:

* They do I/O: `context.files` is the jailed served folder, below the request's path. So a request has only VFS calls
  or none. The calls are not planned: they are carried out in order until one fails, and the rest is not. The server
  does not recognize a repeated request, so it refuses repeated changes.
* The content of files need not be in arguments and results. A call with content gives the number of its bytes in the
  request's body. If a result has no content, the answer's body has it. In a body, the contents follow each other in
  the order of the calls.
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
"""The most characters of a path: PATH_MAX of Linux."""

MAX_CONTENT = 64 * 1024
"""The most bytes of content in the arguments of a call, and in all results of a request: most records of a log are
smaller. Longer content is sent in a body."""

MAX_RANGES = 4096
"""The most ranges of a `readv`: the records of a large tree are some thousand, and a request may have several calls."""

LARGEST = 2**63 - 1
"""The largest offset and size that file systems accept."""

FilePath = Annotated[str, msgspec.Meta(max_length=MAX_FILE_PATH, examples=["packs/0a1b.pack"])]
"""A path below the request's path, with slashes between the names. The empty path is the request's path itself."""

Content = Annotated[bytes, msgspec.Meta(max_length=MAX_CONTENT, examples=[b"content"])]
"""The content of a file, or a part of it."""

Size = Annotated[int, msgspec.Meta(ge=0, le=LARGEST, examples=[300])]
"""A size or an offset."""


class PathRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A path."""

    path: FilePath


class LookRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A path to read. `lacking`: true if a missing file or folder is answered with nil, not with an error."""

    path: FilePath
    lacking: bool = False


class RangeField(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A range of a file."""

    offset: Size
    size: Size


class ReadvRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file, and the ranges to read."""

    path: FilePath
    ranges: Annotated[list[RangeField], msgspec.Meta(max_length=MAX_RANGES)] = []


class BringRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file and the bytes to write: `content`, then the next `rest` bytes of the request's body."""

    path: FilePath
    content: Content = b""
    rest: Size = 0


class RenameRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The old name and the new one."""

    path: FilePath
    target: FilePath


class WithdrawRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A published file. `aside`: an unused name, to which a folder is renamed before it is removed."""

    path: FilePath
    aside: FilePath


class NoResult(Result, frozen=True, array_like=True):
    """An empty result."""


class HasResult(Result, frozen=True, array_like=True):
    """True if a file or folder exists at the path."""

    found: bool


class GetResult(Result, frozen=True, array_like=True):
    """`size`: the size of the file; nil if the file is missing. `content`: its bytes; nil if they are in the body."""

    size: int | None
    content: bytes | None = None


class ReadvResult(Result, frozen=True, array_like=True):
    """`sizes`: the bytes of each range, fewer than requested only at the end of the file. `size`: the size of the file.
    `content`: the joined ranges; nil if they are in the body."""

    sizes: list[int]
    size: int
    content: bytes | None = None


class NamesResult(Result, frozen=True, array_like=True):
    """The sorted names in the folder; nil if the folder does not exist."""

    names: list[str] | None


class StatResult(Result, frozen=True, array_like=True):
    """`kind`: `file`, `directory` or `other`; nil if the path does not exist. `size`: its bytes. `modified`: the time
    of the last change, in seconds by the store's clock."""

    kind: str | None
    size: int = 0
    modified: float = 0.0


READS = (InvalidPath, NoSuchFile, NotADirectory, PermissionDenied, TransportFailed)
CHANGES = (*READS, FileExists, DirectoryNotEmpty, NoSpace)


@contextlib.contextmanager
def _may_lack(request: LookRequest) -> Iterator[None]:
    """Suppress the error about a missing file or folder, if the request says `lacking`."""
    try:
        yield
    except (NoSuchFile, NotADirectory):
        if not request.lacking:
            raise


def _whole(context: Context, request: LookRequest, open_file: Callable[[str], ReadFile]) -> GetResult:
    """Return the whole content of a file."""
    with _may_lack(request):
        file = open_file(request.path)
        size = file.size()
        return GetResult(size, context.files.give(request.path, file, [(0, size)]))
    return GetResult(None)


@verb("has", effect=Effect.READ, is_vfs=True, errors=READS)
def has(context: Context, request: PathRequest) -> HasResult:
    """Test whether a file or folder exists."""
    return HasResult(context.files.tree.exists(request.path))


@verb("get", effect=Effect.READ, is_vfs=True, errors=(LimitExceeded, *READS))
def get(context: Context, request: LookRequest) -> GetResult:
    """Return the whole content of a file."""
    return _whole(context, request, context.files.tree.open_read)


@verb("readv", effect=Effect.READ, is_vfs=True, errors=(LimitExceeded, *READS))
def readv(context: Context, request: ReadvRequest) -> ReadvResult:
    """Return ranges of a file, in the order of the request. Without ranges, return its size."""
    file = context.files.tree.open_read(request.path)
    size = file.size()
    ranges = [(each.offset, max(0, min(each.size, size - each.offset))) for each in request.ranges]
    return ReadvResult([length for _, length in ranges], size, context.files.give(request.path, file, ranges))


@verb("put", is_vfs=True, errors=CHANGES)
def put(context: Context, request: BringRequest) -> NoResult:
    """Create a file whose content is durable. Its name is durable after `sync_dir` of its folder.

    If the call fails, the file does not exist.
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
    """Append to an existing file, durably. If the call fails, a part may be written."""
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
    """Create one folder."""
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
    """Rename a file or folder atomically. A file with the new name is replaced.

    A folder can replace only an empty folder.
    """
    context.files.tree.rename(request.path, request.target)
    return NoResult()


@verb("publish", is_vfs=True, errors=CHANGES)
def publish(context: Context, request: RenameRequest) -> NoResult:
    """Rename a file to an unused name. Of concurrent clients, through any server of the store, only one succeeds."""
    context.files.tree.publish(request.path, request.target)
    return NoResult()


@verb("get_published", effect=Effect.READ, is_vfs=True, errors=(LimitExceeded, *READS))
def get_published(context: Context, request: LookRequest) -> GetResult:
    """Return the whole content of a published file, in any form of publication."""
    return _whole(context, request, context.files.tree.open_published)


@verb("withdraw", is_vfs=True, errors=CHANGES)
def withdraw(context: Context, request: WithdrawRequest) -> NoResult:
    """Remove a published file, in any form of publication."""
    context.files.tree.withdraw(request.path, request.aside)
    return NoResult()


@verb("list_dir", effect=Effect.READ, is_vfs=True, errors=READS)
def list_dir(context: Context, request: LookRequest) -> NamesResult:
    """Return the names in a folder."""
    with _may_lack(request):
        return NamesResult(context.files.tree.list_directory(request.path))
    return NamesResult(None)


@verb("stat", effect=Effect.READ, is_vfs=True, errors=READS)
def stat(context: Context, request: LookRequest) -> StatResult:
    """Return the kind, size and time of change of a file or folder."""
    with _may_lack(request):
        found = context.files.tree.stat(request.path)
        return StatResult(found.kind.value, found.size, found.modified)
    return StatResult(None)


@verb("sync_dir", is_vfs=True, errors=CHANGES)
def sync_dir(context: Context, request: PathRequest) -> NoResult:
    """Make all created, renamed and removed names in a folder durable."""
    context.files.tree.sync_directory(request.path)
    return NoResult()
