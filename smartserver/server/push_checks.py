"""The checks of a push beyond what its calls need: the limits of sizes that the access file gives its repository."""

from __future__ import annotations

from smartserver.errors import LimitExceeded, shown
from smartserver.records.system import system_of
from smartserver.server.site import Site
from smartserver.server.sizes import SizeLimits
from smartserver.store.preview import Preview
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Upload


class PushChecks:
    """The checks of one request that changes a repository."""

    def __init__(self, site: Site, repository: PackRepository, upload: Upload | None) -> None:
        """`upload`: finished."""
        self._limits = site.sizes(repository.path)
        self._repository = repository
        self._upload = upload
        self._checked_files = False

    def judge(self, transaction: Transaction) -> None:
        """Check a planned request; it may be planned again on what another one made.

        Raises:
            LimitExceeded: it brings too much.
        """
        pack = None if self._upload is None else self._upload.entry
        if pack is None:
            return
        check_repository(self._limits, transaction.snapshot, pack.length + pack.index_length, self._repository.path)
        if self._limits.file is not None and not self._checked_files:
            check_files(self._limits.file, Preview(self._repository.folder, transaction, self._upload, bytes(16)))
            self._checked_files = True


def check_repository(limits: SizeLimits, stored: Snapshot | None, new: int, path: str) -> None:
    """Check what a repository would take with `new` bytes more. A push that brings nothing is never refused.

    Raises:
        LimitExceeded: it is too much.
    """
    if limits.repository is None or not new:
        return
    packs = () if stored is None else stored.state.packs
    size = new + sum(entry.length + entry.index_length for entry in packs)
    if size > limits.repository:
        raise LimitExceeded(f"bytes of the repository {path or '.'} (max-repository-size)", size, limits.repository)


def check_files(limit: int, preview: Preview) -> None:
    """Check the files that a push brings.

    Raises:
        LimitExceeded: one is too large.
    """
    system = system_of(preview.state.vcs)
    for revision, entry in preview.records_over(limit):
        if system.is_file(entry.kind, entry.meta):
            name = shown(preview.path_of(revision, (entry.kind, entry.key)) or entry.key)
            raise LimitExceeded(f"bytes of the file {name} (max-file-size)", entry.length, limit)
