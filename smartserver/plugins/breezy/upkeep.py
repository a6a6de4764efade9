"""Lets the server pack or check a repository, and reports the results to Breezy's commands."""

from __future__ import annotations

from breezy import errors, trace
from breezy.reconcile import ReconcileResult

from smartserver.client.plain import plain
from smartserver.plugins.breezy.place import Place
from smartserver.verbs.repository_pack import PackRequest, PackResult, repository_pack
from smartserver.verbs.repository_verify import VerifyRequest, VerifyResult, repository_verify

CLEANED_LATER = "The server deletes packs that were joined when a day is over."


def pack(place: Place, *, clean: bool) -> None:
    """Join the packs of a repository. `clean`: the user wants the packs that were joined to be deleted."""
    done: PackResult = place.ask(repository_pack, PackRequest())
    trace.mutter("hpss: %d packs are now %d, of %d bytes", done.before, done.after, done.size)
    if clean:
        trace.note(CLEANED_LATER)


def verify(place: Place) -> VerifyResult:
    """Let the server read and check the whole repository, once in a command."""
    if place.verified is None:
        place.verified = place.ask(repository_verify, VerifyRequest())
    return place.verified


class CheckReport:
    """The result of a check."""

    def __init__(self, found: VerifyResult, shown: tuple[str, object] | None) -> None:
        """`shown`: the URL and the format of the repository, if the user asked for them."""
        self._found = found
        self._shown = shown

    def report_results(self, verbose: bool) -> None:
        """Print the numbers of checked items. Raise an error if something is damaged."""
        found = self._found
        if self._shown is not None:
            trace.note("checked repository %s format %s", *self._shown)
            trace.note("%6d revisions", found.segments)
            trace.note("%6d records", found.records)
            if found.ghosts:
                trace.note("%6d ghost revisions", found.ghosts)
            if verbose:
                trace.note("%6d packs, %d bytes", found.packs, found.size)
        raise_damage(found)


class ReconcileReport(ReconcileResult):  # type: ignore[misc]  # Breezy is not typed.
    """The result of a reconciliation that had nothing to do."""

    aborted = False
    inconsistent_parents = 0
    garbage_inventories = 0
    fixed_history = False


def reconcile(place: Place) -> ReconcileReport:
    """Verify the repository and raise an error if it is damaged. An undamaged repository needs no reconciliation."""
    raise_damage(verify(place))
    return ReconcileReport()


def raise_damage(found: VerifyResult) -> None:
    """Print each problem. Raise an error if there was a problem."""
    for problem in found.problems:
        trace.note("%s", plain(problem))
    if found.problems:
        count = len(found.problems)
        raise errors.BzrError(
            f"the repository on the server is damaged: {count} {'problem' if count == 1 else 'problems'}"
        )
