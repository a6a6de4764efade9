"""`AheadTransport`: performs reads ahead in one round trip, and answers each of them once from memory."""

from __future__ import annotations

from collections.abc import Sequence

from transports.base import Stat, Step, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import CodedError, NotADirectory, TransportFailed
from transports.steps import Get, GetPublished, GetStat, ListDirectory

Read = Get | GetPublished | GetStat | ListDirectory


class AheadTransport(PassingTransport):
    """A transport with the files of `inner`, for a caller that knows its next reads."""

    def __init__(
        self, inner: Transport, known: dict[tuple[type[Step], str], object] | None = None, *, prefix: str = ""
    ) -> None:
        """`known`: the results that a child shares with its parent; None for a new root."""
        super().__init__(inner, prefix=prefix)
        self._known = {} if known is None else known
        """Results of reads ahead that are not used yet, by type of step and path from the root."""

    def wrap(self, inner: Transport, prefix: str) -> AheadTransport:
        return AheadTransport(inner, self._known, prefix=prefix)

    def read_ahead(self, reads: Sequence[Read]) -> None:
        """Perform reads ahead, in one round trip if none fails. A read that fails is performed again, and fails, when
        its result is needed. After a failed read, later reads in the same folder are not performed ahead.

        Raises:
            TransportFailed: the connection to the store is lost, so the error names no file.
        """
        left = list(reads)
        while left:
            try:
                self.inner.perform(left)
            except CodedError as error:
                if isinstance(error, TransportFailed) and not error.path:
                    raise  # The other reads would fail too.
            for at, read in enumerate(left):
                try:
                    self._known[type(read), self.full(read.path)] = read.result
                except LookupError:  # This read failed, so the later ones were not performed.
                    folder = read.path if isinstance(read, ListDirectory) else read.path.rpartition("/")[0]
                    left = [each for each in left[at + 1 :] if not _is_in(each.path, folder)]
                    break
            else:
                return

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a folder. If the listing of a path below the root was read ahead and found no folder,
        raise `NotADirectory`: the path came from another listing, so it must be a file."""
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
        """Tell whether a step can be answered from memory. A read that found no file also answers a stat of its path,
        and its result stays in memory."""
        path = self.full(step.path)
        if (type(step), path) in self._known:
            return True
        return isinstance(step, GetStat) and any(
            self._known.get((read, path), step) is None for read in (Get, GetPublished)
        )


def _is_in(path: str, folder: str) -> bool:
    return bool(folder) and path.startswith(f"{folder}/")
