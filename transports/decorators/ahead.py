"""`AheadTransport`: answers once, from memory, what was read ahead of it in one trip."""

from __future__ import annotations

from collections.abc import Sequence

from transports.base import Stat, Step, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import CodedError, NotADirectory, TransportFailed
from transports.steps import Get, GetPublished, GetStat, ListDirectory

Read = Get | GetPublished | GetStat | ListDirectory


class AheadTransport(PassingTransport):
    """The tree of `inner`, for a reader that knows what it will ask next."""

    def __init__(
        self, inner: Transport, known: dict[tuple[type[Step], str], object] | None = None, *, prefix: str = ""
    ) -> None:
        """`known`: shared with the transport that this one is a child of."""
        super().__init__(inner, prefix=prefix)
        self._known = {} if known is None else known
        """Results of reads that were performed and not asked for yet, by step and path."""

    def wrap(self, inner: Transport, prefix: str) -> AheadTransport:
        return AheadTransport(inner, self._known, prefix=prefix)

    def read_ahead(self, reads: Sequence[Read]) -> None:
        """Perform reads, in one trip where none fails; those that fail will fail when they are asked for. What comes
        behind one that failed, and is in the same folder, is not read ahead.

        Raises:
            TransportFailed: the store itself failed, and no file of it: the connection is lost.
        """
        left = list(reads)
        while left:
            try:
                self.inner.perform(left)
            except CodedError as error:
                if isinstance(error, TransportFailed) and not error.path:
                    raise  # To repeat the others would only take longer.
            for at, read in enumerate(left):
                try:
                    self._known[type(read), self.full(read.path)] = read.result
                except LookupError:  # It failed, and ended those after it.
                    folder = read.path if isinstance(read, ListDirectory) else read.path.rpartition("/")[0]
                    left = [each for each in left[at + 1 :] if not _is_in(each.path, folder)]
                    break
            else:
                return

    def list_directory(self, path: str) -> list[str]:
        """The names in a folder. What was read ahead below the root was named in one: what is no folder is a file."""
        full = self.full(path)
        names = self._known.pop((ListDirectory, full), self)
        if isinstance(names, list):
            return names
        if names is None and full:
            raise NotADirectory(full)
        return self.inner.list_directory(path)

    def perform(self, steps: Sequence[Step]) -> None:
        if not all(self._is_known(step) for step in steps):
            self.inner.perform(steps)
            return
        for step in steps:
            found = self._known.pop((type(step), self.full(step.path)), None)
            if isinstance(step, Get | GetPublished):
                step.settle(found if isinstance(found, bytes) else None)
            elif isinstance(step, GetStat):
                step.settle(found if isinstance(found, Stat) else None)
            elif isinstance(step, ListDirectory):
                step.settle(found if isinstance(found, list) else None)

    def _is_known(self, step: Step) -> bool:
        """True if it was read ahead, or nothing was found there, which is not forgotten by a look."""
        path = self.full(step.path)
        if (type(step), path) in self._known:
            return True
        return isinstance(step, GetStat) and any(
            self._known.get((read, path), step) is None for read in (Get, GetPublished)
        )


def _is_in(path: str, folder: str) -> bool:
    return bool(folder) and path.startswith(f"{folder}/")
