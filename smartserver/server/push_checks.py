"""The checks of a change besides the permissions of its calls: the size limits and hooks of the access file.

They are made once the request was planned. Sizes are checked at once. A hook may take long, so it is run outside the
commit: the commit ends, keeps the upload, and begins again after the hook. It succeeds if the new plan makes the same
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from smartserver.errors import LimitExceeded, shown
from smartserver.records.system import system_of
from smartserver.server.context import RequestContext
from smartserver.server.hook_input import change_fields
from smartserver.server.sizes import SizeLimits
from smartserver.spans import Part, span
from smartserver.store.commit import CommitOutcome, PlanAgain
from smartserver.store.log_view import NOWHERE
from smartserver.store.model import INCOMPLETE
from smartserver.store.preview import Preview
from smartserver.store.record import Change
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import MAP, REFS, SETTINGS
from smartserver.store.transaction import Transaction, entry_of
from smartserver.store.upload import Upload


class PushChecks:
    """The checks of one request that changes a repository."""

    def __init__(self, context: RequestContext, repository: PackRepository, upload: Upload | None) -> None:
        """`upload`: the finished upload of the request, if it has one."""
        self._context = context
        self._repository = repository
        self._upload = upload
        self._limits = context.site.sizes(repository.path)
        self._hooks = context.site.hooks.of(repository.path)
        self._content = b"" if upload is None or upload.entry is None else upload.entry.hash
        """The hash of the uploaded content, because not every system's ids prove their content. Revisions that another
        request stored meanwhile are later cut out of the upload; the hooks have judged those, too."""
        self._checked_files = False
        self._digest = b""
        """The digest of the changes that the hooks accepted; empty before that."""
        self._asked: tuple[Transaction, bytes] | None = None
        """The transaction that the hooks must judge, and the digest of its changes."""

    def carry_out(self, commit: Callable[[], CommitOutcome]) -> CommitOutcome:
        """Make the change. `commit` is called again each time that the hooks have judged the change.

        Raises:
            RefusedByHook: a hook refuses the change; the upload is deleted.
        """
        while True:
            try:
                return commit()
            except PlanAgain:
                try:
                    with span(Part.SERVER, "hooks"):
                        self._ask()
                except BaseException:
                    if self._upload is not None:
                        self._upload.abandon()
                    raise

    def approve(self, transaction: Transaction) -> None:
        """Check a planned request. The commit calls this each time that the request is planned, also after another
        request's change.

        Raises:
            LimitExceeded: the repository or a file would be too large.
            PlanAgain: the hooks must judge the request first.
        """
        pack = None if self._upload is None else self._upload.entry
        if pack is not None:
            path = self._repository.path
            check_repository(self._limits, transaction.snapshot, pack.length + pack.index_length, path)
            if self._limits.file is not None and not self._checked_files:
                check_files(self._limits.file, self._preview(transaction))
                self._checked_files = True
        if self._hooks:
            digest = self._digest_of(transaction)
            if digest not in (b"", self._digest):
                self._asked = transaction, digest
                raise PlanAgain

    def _preview(self, transaction: Transaction) -> Preview:
        return Preview(self._repository.folder, transaction, self._upload, self._context.id)

    def _digest_of(self, transaction: Transaction) -> bytes:
        """Return the digest of the changes of a transaction; empty if hooks have nothing to judge: nothing changes, or
        the copy is still hidden, because more of its requests follow."""
        stored = NOWHERE.state if transaction.snapshot is None else transaction.snapshot.state
        entry = entry_of(transaction, stored, b"", "", b"", None, bytes(16), self._context.header.push_options)
        pack = None if self._upload is None else self._upload.entry
        if not (entry.changes or entry.begins or entry.deletes or pack) or INCOMPLETE in transaction.settings:
            return b""
        commands = [hook.before for hook in self._hooks]
        # Another request of the copy may come while hooks judge the last one, and the last one shows its changes too.
        copied = stored.hash if transaction.is_incomplete else b""
        judged = (self._repository.folder.describe(), self._context.access.user, commands, entry, self._content, copied)
        return blake2b(msgspec.msgpack.encode(judged), digest_size=16).digest()

    def _ask(self) -> None:
        """Let the hooks judge the transaction of the last `approve`.

        Raises:
            RefusedByHook: a hook refuses the changes.
        """
        assert self._asked is not None  # `approve` set it before it left the commit.
        transaction, digest = self._asked
        preview = None if transaction.deleted else self._preview(transaction)
        vcs, is_new = transaction.vcs, transaction.created is not None or transaction.is_incomplete
        changes = () if preview is None else _changes(transaction, preview)
        said = {
            "path": self._repository.path,
            "vcs": vcs,
            "user": self._context.access.user,
            "request": self._context.id.hex(),
            "repository": "deleted" if transaction.deleted else "created" if is_new else "changed",
            "options": list(self._context.header.push_options),
            "changes": list(change_fields(vcs, changes)),
        }
        store = self._repository.folder.local_folder()
        hooks, report = self._context.site.hooks, self._context.progress
        hooks.judge(self._context.id, digest, self._hooks, lambda hook: hooks.run(hook, said, preview, store, report))
        self._digest = digest


def _changes(transaction: Transaction, preview: Preview) -> tuple[Change, ...]:
    """Return the changes of a transaction. The last request of a copy shows all refs, map entries and settings as new,
    because hooks did not see the earlier requests."""
    if not transaction.is_incomplete:
        return preview.entry.changes
    state = preview.state
    names = [REFS, *(MAP + word for word in state.maps)]
    of_tables = [Change(name, key, None, value) for name in names for key, value in state.table(name).items()]
    return (*of_tables, *(Change(SETTINGS, name.encode(), None, value) for name, value in state.settings.items()))


def check_repository(limits: SizeLimits, stored: Snapshot | None, new: int, path: str) -> None:
    """Check the size of a repository after `new` bytes are added. A push without new revisions is never refused.

    Raises:
        LimitExceeded: the repository would be too large.
    """
    if limits.repository is None or not new:
        return
    packs = () if stored is None else stored.state.packs
    size = new + sum(entry.length + entry.index_length for entry in packs)
    if size > limits.repository:
        raise LimitExceeded(f"bytes of the repository {path or '.'} (max-repository-size)", size, limits.repository)


def check_files(limit: int, preview: Preview) -> None:
    """Check the sizes of the files in a push.

    Raises:
        LimitExceeded: a file is too large.
    """
    system = system_of(preview.state.vcs)
    for revision, entry in preview.records_over(limit):
        if system.is_file(entry.kind, entry.meta):
            name = shown(preview.path_of(revision, (entry.kind, entry.key)) or entry.key)
            raise LimitExceeded(f"bytes of the file {name} (max-file-size)", entry.length, limit)
