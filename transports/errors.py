"""`CodedError`, the root of every error that may cross the wire, and the errors that a transport raises.

CodedError
└── TransportError
    ├── NoSuchFile
    ├── FileExists
    ├── PermissionDenied
    ├── NotADirectory
    ├── DirectoryNotEmpty
    ├── NoSpace
    ├── TransportFailed
    └── NotSupported
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar


class CodedError(Exception):
    """An error with a wire code; a subclass is a dataclass whose fields are its wire arguments.

    Subclasses use `@dataclass(eq=False)`, never `frozen=True`: `with` sets `__traceback__` on a raised error.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    """True if the same request may succeed a moment later."""
    by_code: ClassVar[dict[str, type[CodedError]]] = {}

    def __init_subclass__(cls, *, code: str | None = None, retryable: bool = False) -> None:
        """Register `cls` under its code. Raise `TypeError` if another class has the code."""
        super().__init_subclass__()
        if code is None:
            return
        owner = CodedError.by_code.get(code)
        if owner is not None:
            raise TypeError(f"error code {code!r} is already {owner.__name__}")
        cls.code, cls.retryable = code, retryable
        CodedError.by_code[code] = cls

    def wire_arguments(self) -> dict[str, object]:
        """Return the fields to send, by name. A field that has its default value is left out."""
        if not dataclasses.is_dataclass(self):
            return {"message": str(self)}
        values = [(field, getattr(self, field.name)) for field in dataclasses.fields(self)]
        return {field.name: value for field, value in values if value != field.default}


class TransportError(CodedError):
    """An operation of a file store failed."""


def _of(path: str) -> str:
    """Return the end of a message: `: 'PATH'`; empty for the root of the store, whose path is empty."""
    return f": {path!r}" if path else ""


@dataclasses.dataclass(eq=False)
class NoSuchFile(TransportError, code="no-such-file"):
    """Nothing is stored under that path."""

    path: str

    def __str__(self) -> str:
        return f"no such file{_of(self.path)}"


@dataclasses.dataclass(eq=False)
class FileExists(TransportError, code="file-exists"):
    """Something is stored under that path already."""

    path: str

    def __str__(self) -> str:
        return f"file exists{_of(self.path)}"


@dataclasses.dataclass(eq=False)
class PermissionDenied(TransportError, code="permission-denied"):
    """The store does not permit this user the operation. `reason`: the cause if it is not a missing permission, for
    example a read-only file system; else empty."""

    path: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.reason or 'permission denied'}{_of(self.path)}"


@dataclasses.dataclass(eq=False)
class NotADirectory(TransportError, code="not-a-directory"):
    """A part of the path is a file."""

    path: str

    def __str__(self) -> str:
        return f"not a directory{_of(self.path)}"


@dataclasses.dataclass(eq=False)
class DirectoryNotEmpty(TransportError, code="directory-not-empty"):
    """A folder that is not empty cannot be removed or replaced."""

    path: str

    def __str__(self) -> str:
        return f"directory not empty{_of(self.path)}"


@dataclasses.dataclass(eq=False)
class NoSpace(TransportError, code="no-space"):
    """The store is full, or the user's quota is used up."""

    path: str

    def __str__(self) -> str:
        return f"no space left to write {self.path!r}" if self.path else "no space left"


@dataclasses.dataclass(eq=False)
class TransportFailed(TransportError, code="transport-failed"):
    """The store failed. `reason` is the store's message; `path` is empty if the connection failed."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path!r}: {self.reason}" if self.path else self.reason


@dataclasses.dataclass(eq=False)
class NotSupported(TransportError, code="transport-not-supported"):
    """This kind of store lacks the requested capability."""

    capability: str

    def __str__(self) -> str:
        return f"this transport has no {self.capability}"
