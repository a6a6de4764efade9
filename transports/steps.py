"""Steps: operations that `Transport.perform` receives as one list, so that many of them need one round trip to a remote
store.

A step describes one operation and, once performed, holds its result. A step is performed only once.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from transports import paths
from transports.base import Stat, Step, Transport
from transports.errors import NoSuchFile, NotADirectory

Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class Query(Step, Generic[Result]):
    """A step that reads. Its `result` is set when it is performed."""

    _results: list[Result] = field(default_factory=list, init=False, repr=False)

    @property
    def result(self) -> Result:
        """The result of the step.

        Raises:
            LookupError: the step was not performed.
        """
        if not self._results:
            raise LookupError(f"{self} was not performed")
        return self._results[0]

    @property
    def was_performed(self) -> bool:
        """True if the step was performed and has a result."""
        return bool(self._results)

    def settle(self, result: Result) -> None:
        """Set the result; called by the transport that performs the step.

        Raises:
            LookupError: the step was performed already.
        """
        if self._results:
            raise LookupError(f"{self} is performed twice")
        self._results.append(result)


@dataclass(eq=False, slots=True)
class OptionalQuery(Query[Result | None]):
    """A query whose result is None if the path does not exist. Later steps are still performed."""

    @abc.abstractmethod
    def ask(self, transport: Transport) -> Result:
        """Return the result of the matching method of `transport`.

        Raises:
            TransportError: as that method.
        """

    def do(self, transport: Transport) -> None:
        try:
            found: Result | None = self.ask(transport)
        except (NoSuchFile, NotADirectory):
            found = None
        self.settle(found)


@dataclass(eq=False, slots=True)
class Get(OptionalQuery[bytes]):
    """Read the whole content of a file."""

    size: int | None = None
    """The expected size of the file; None if unknown. It is a hint that saves some stores a round trip, and may be
    wrong."""

    @property
    def content(self) -> bytes:
        """The content of the file.

        Raises:
            NoSuchFile: the file is missing.
        """
        content = self.result
        if content is None:
            raise NoSuchFile(self.path)
        return content

    def ask(self, transport: Transport) -> bytes:
        return transport.get(self.path)


@dataclass(eq=False, slots=True)
class GetPublished(OptionalQuery[bytes]):
    """Read the whole content of a published file."""

    def ask(self, transport: Transport) -> bytes:
        return transport.get_published(self.path)


@dataclass(eq=False, slots=True)
class GetStat(OptionalQuery[Stat]):
    """Read the stat of a path."""

    def ask(self, transport: Transport) -> Stat:
        return transport.stat(self.path)


@dataclass(eq=False, slots=True)
class ListDirectory(OptionalQuery[list[str]]):
    """Read the names in a folder, sorted."""

    def ask(self, transport: Transport) -> list[str]:
        return transport.list_directory(self.path)


@dataclass(eq=False, slots=True)
class ReadRanges(Query[list[bytes]]):
    """Read ranges of one file, each (offset, size). The results are in that order; one is shorter only at the end of
    the file."""

    ranges: Sequence[tuple[int, int]] = ()

    def do(self, transport: Transport) -> None:
        with contextlib.closing(transport.open_read(self.path)) as file:
            self.settle(file.read_ranges(self.ranges))


@dataclass(eq=False, slots=True)
class Put(Step):
    """Create a file with durable `content`. Its name is durable after `SyncDirectory`."""

    content: bytes = b""

    def do(self, transport: Transport) -> None:
        transport.put(self.path, (self.content,) if self.content else ())


@dataclass(eq=False, slots=True)
class MakeDirectory(Step):
    """Create one folder."""

    def do(self, transport: Transport) -> None:
        transport.make_directory(self.path)


@dataclass(eq=False, slots=True)
class _ToTarget(Step):
    """A step that also names a second path, `target`."""

    target: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        return self.path, self.target

    def below(self, folder: str) -> Self:
        made = Step.below(self, folder)
        made.target = paths.join(folder, self.target)
        return made


@dataclass(eq=False, slots=True)
class Rename(_ToTarget):
    """Rename a file to `target` as `Transport.rename` does."""

    def do(self, transport: Transport) -> None:
        transport.rename(self.path, self.target)


@dataclass(eq=False, slots=True)
class Publish(_ToTarget):
    """Publish a file as `target` as `Transport.publish` does."""

    def do(self, transport: Transport) -> None:
        transport.publish(self.path, self.target)


@dataclass(eq=False, slots=True)
class Withdraw(_ToTarget):
    """Withdraw a published file as `Transport.withdraw` does, with `target` as `aside`."""

    def do(self, transport: Transport) -> None:
        transport.withdraw(self.path, self.target)


@dataclass(eq=False, slots=True)
class Delete(Step):
    """Remove a file."""

    def do(self, transport: Transport) -> None:
        transport.delete(self.path)


@dataclass(eq=False, slots=True)
class SyncDirectory(Step):
    """Make durable every name that was created, renamed or removed in the folder."""

    def do(self, transport: Transport) -> None:
        transport.sync_directory(self.path)
