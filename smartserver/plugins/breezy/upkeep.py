"""Packing and checking a repository on a server: the server does it; here is what Breezy's commands are told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from breezy import errors, trace
from breezy.reconcile import ReconcileResult

from smartserver.client.plain import plain
from smartserver.verbs.repository_pack import PackRequest, PackResult, repository_pack
from smartserver.verbs.repository_verify import VerifyRequest, VerifyResult, repository_verify

if TYPE_CHECKING:
    from smartserver.plugins.breezy.remote import Remote
    from smartserver.plugins.breezy.repository import HpssRepository

CLEANED_LATER = "The server deletes packs that were joined when a day is over."


def pack(remote: Remote, *, clean: bool) -> None:
    """Join the packs of a repository; `clean`: the user wants those deleted that were joined."""
    done: PackResult = remote.ask(repository_pack, PackRequest())
    trace.mutter("hpss: %d packs are now %d, of %d bytes", done.before, done.after, done.size)
    if clean:
        trace.note(CLEANED_LATER)


def verify(remote: Remote) -> VerifyResult:
    """Have everything read and checked, once in a command."""
    if remote.verified is None:
        remote.verified = remote.ask(repository_verify, VerifyRequest())
    return remote.verified


class Checked:
    """The result of a check."""

    def __init__(self, repository: HpssRepository, found: VerifyResult, *, shown: bool = True) -> None:
        """`shown`: whether the user asked for the repository."""
        self._repository = repository
        self._found = found
        self._shown = shown

    def report_results(self, verbose: bool) -> None:
        """Say what was checked.

        Raises:
            BzrError: something is damaged.
        """
        found = self._found
        if self._shown:
            repository = self._repository
            trace.note("checked repository %s format %s", repository.user_url, repository._format)
            trace.note("%6d revisions", found.segments)
            trace.note("%6d records", found.records)
            if found.ghosts:
                trace.note("%6d ghost revisions", found.ghosts)
            if verbose:
                trace.note("%6d packs, %d bytes", found.packs, found.size)
        raise_damage(found)


class Reconciled(ReconcileResult):  # type: ignore[misc]  # Breezy is not typed.
    """The result of reconciling: nothing was to be done."""

    aborted = False
    inconsistent_parents = 0
    garbage_inventories = 0
    fixed_history = False


def reconcile(remote: Remote) -> Reconciled:
    """Say that there is nothing to reconcile, when that is so.

    Raises:
        BzrError: something is damaged.
    """
    raise_damage(verify(remote))
    return Reconciled()


def raise_damage(found: VerifyResult) -> None:
    """List what is damaged.

    Raises:
        BzrError: something is.
    """
    for problem in found.problems:
        trace.note("%s", plain(problem))
    if found.problems:
        count = len(found.problems)
        raise errors.BzrError(
            f"the repository on the server is damaged: {count} {'problem' if count == 1 else 'problems'}"
        )
