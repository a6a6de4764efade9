"""Steps: what `Transport.perform` is asked to do in one go, so that a store behind a link takes one trip for many.

A step says what is wanted and, once performed, holds what came of it. It is performed once.
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
    """A step whose `result` is there when it was done."""

    _results: list[Result] = field(default_factory=list, init=False, repr=False)

    @property
    def result(self) -> Result:
        """The result.

        Raises:
            LookupError: it was not performed.
        """
        if not self._results:
            raise LookupError(f"{self} was not performed")
        return self._results[0]

    @property
    def was_performed(self) -> bool:
        """True if there is a result."""
        return bool(self._results)

    def settle(self, result: Result) -> None:
        """Say what came of it: for who performs it.

        Raises:
            LookupError: it was performed already.
        """
        if self._results:
            raise LookupError(f"{self} is performed twice")
        self._results.append(result)


@dataclass(eq=False, slots=True)
class OptionalQuery(Query[Result | None]):
    """A query whose result is None where nothing is there, which stops nothing."""

    @abc.abstractmethod
    def ask(self, transport: Transport) -> Result:
        """Ask by the call of one file.

        Raises:
            TransportError: as that call.
        """

    def do(self, transport: Transport) -> None:
        try:
            found: Result | None = self.ask(transport)
        except (NoSuchFile, NotADirectory):
            found = None
        self.settle(found)


@dataclass(eq=False, slots=True)
class Get(OptionalQuery[bytes]):
    """The whole content of a file."""

    size: int | None = None
    """Bytes it is expected to have, where that is known: it saves a store from asking. It may have others."""

    @property
    def content(self) -> bytes:
        """The content.

        Raises:
            NoSuchFile: there is no such file.
        """
        content = self.result
        if content is None:
            raise NoSuchFile(self.path)
        return content

    def ask(self, transport: Transport) -> bytes:
        return transport.get(self.path)


@dataclass(eq=False, slots=True)
class GetPublished(OptionalQuery[bytes]):
    """The whole content of a published file."""

    def ask(self, transport: Transport) -> bytes:
        return transport.get_published(self.path)


@dataclass(eq=False, slots=True)
class GetStat(OptionalQuery[Stat]):
    """The stat of a path."""

    def ask(self, transport: Transport) -> Stat:
        return transport.stat(self.path)


@dataclass(eq=False, slots=True)
class ListDirectory(OptionalQuery[list[str]]):
    """The names in a folder, sorted."""

    def ask(self, transport: Transport) -> list[str]:
        return transport.list_directory(self.path)


@dataclass(eq=False, slots=True)
class ReadRanges(Query[list[bytes]]):
    """Ranges of one file, (offset, size) each, in the order asked; shorter only at the end of the file."""

    ranges: Sequence[tuple[int, int]] = ()

    def do(self, transport: Transport) -> None:
        with contextlib.closing(transport.open_read(self.path)) as file:
            self.settle(file.read_ranges(self.ranges))


@dataclass(eq=False, slots=True)
class Put(Step):
    """A new file with that content, which is durable; its name is after `SyncDirectory`."""

    content: bytes = b""

    def do(self, transport: Transport) -> None:
        transport.put(self.path, (self.content,) if self.content else ())


@dataclass(eq=False, slots=True)
class MakeDirectory(Step):
    """One folder."""

    def do(self, transport: Transport) -> None:
        transport.make_directory(self.path)


@dataclass(eq=False, slots=True)
class _ToTarget(Step):
    """A step with a target."""

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
    """Withdraw a file by way of `target` as `Transport.withdraw` does."""

    def do(self, transport: Transport) -> None:
        transport.withdraw(self.path, self.target)


@dataclass(eq=False, slots=True)
class Delete(Step):
    """Remove a file."""

    def do(self, transport: Transport) -> None:
        transport.delete(self.path)


@dataclass(eq=False, slots=True)
class SyncDirectory(Step):
    """Make every name made, renamed or removed in the folder durable."""

    def do(self, transport: Transport) -> None:
        transport.sync_directory(self.path)
