"""Reads and changes the file `shallow` of a git repository, which lists the commits whose parents were left out. Git's
own lock file guards each change."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from smartserver.records.model import RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.signals import held


class ShallowFileError(VcsError):
    """The file `shallow` is locked, cannot be parsed, or was changed by another process meanwhile."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"the file {self.path!r} cannot be changed: {self.why}"


def read(path: str) -> set[RevisionId]:
    """Return the commits in the file; none if the file does not exist."""
    try:
        with open(path, "rb") as file:
            return {bytes.fromhex(line.decode("ascii")) for line in file.read().split()}
    except FileNotFoundError:
        return set()
    except ValueError as error:
        raise ShallowFileError(path, f"it holds something else than ids ({error})") from None


class ShallowChange:
    """A change of the file of shallow commits. `commit` makes the change. The object is a context manager, which
    releases the lock."""

    def __init__(self, path: str, before: Collection[RevisionId], after: Collection[RevisionId]) -> None:
        """`before`: the commits that were read. `after`: the commits that the file shall name."""
        self._path = path
        self._after = after
        self.lock = path + ".lock"
        """The path of the lock, a file with the new content until `commit` renames it."""
        self._held = False
        with held():
            try:
                file = os.open(self.lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                why = f"{self.lock!r} exists: another git process runs here, or one was killed (remove it then)"
                raise ShallowFileError(path, why) from None
            self._held = True
        try:
            with open(file, "wb") as new:
                if read(path) != set(before):
                    raise ShallowFileError(path, "another process changed it; try again")
                new.write(b"".join([commit.hex().encode() + b"\n" for commit in sorted(after)]))
                new.flush()
                os.fsync(new.fileno())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ShallowChange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def commit(self) -> None:
        """Replace the file, or remove it if no commit remains."""
        with held():
            if self._after:
                os.rename(self.lock, self._path)
                self._held = False
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path)

    def close(self) -> None:
        """Remove the lock."""
        if self._held:
            self._held = False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.lock)
