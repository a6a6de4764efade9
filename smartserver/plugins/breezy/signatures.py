"""Signatures of revisions on a server. One that comes when its revision is there already is an entry of a map of the
repository's; a fetch puts those beside the revisions they sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from breezy import gpg
from breezy.errors import NoSuchRevision
from breezy.repository import Repository

from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import Testament
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest

if TYPE_CHECKING:
    from smartserver.plugins.breezy.remote import Remote
    from smartserver.plugins.breezy.repository import HpssRepository

SIGNATURES = "signatures"


def late(remote: Remote) -> dict[RevisionId, bytes]:
    """The signatures that came after their revisions, as last seen."""
    return remote.knowledge.map(SIGNATURES)


def add_late(remote: Remote, target: Repository) -> None:
    """Put those of revisions that are here, and have none, into a local repository."""
    signatures = late(remote)
    if signatures:
        BrzRepository(target).add_signatures(signatures)


class Signatures:
    """Those of a repository, and what is to become of them by one command."""

    def __init__(self, repository: HpssRepository) -> None:
        self._repository = repository
        self._new: dict[RevisionId, bytes] = {}

    def find(self, revision: RevisionId) -> bytes | None:
        """The signature of a revision, if it has one.

        Raises:
            NoSuchRevision: there is no such revision.
        """
        repository = self._repository
        if not repository.has_revision(revision):
            raise NoSuchRevision(repository, revision)
        shadow = repository.shadow()
        if shadow.has_signature_for_revision_id(revision):
            signature: bytes = shadow.get_signature_text(revision)
            return signature
        return self._new.get(revision) or late(repository.remote).get(revision)

    def sign(self, revision: RevisionId, strategy: Any) -> None:
        """Sign a revision."""
        self._new[revision] = strategy.sign(self._testament(revision), gpg.MODE_CLEAR)

    def verify(self, revision: RevisionId, strategy: Any) -> tuple[int, Any]:
        """What is to be said of a revision's signature, and of who signed."""
        signature = self.find(revision)
        if signature is None:
            return gpg.SIGNATURE_NOT_SIGNED, None
        status, key, signed = strategy.verify(signature)
        return (status, key) if signed == self._testament(revision) else (gpg.SIGNATURE_NOT_VALID, None)

    def _testament(self, revision: RevisionId) -> bytes:
        text: bytes = Testament.from_revision(self._repository.shadow(), revision).as_short_text()
        return text

    def drop(self) -> None:
        """Forget what was signed."""
        self._new.clear()

    def send(self) -> None:
        """Send what was signed. What somebody else has signed meanwhile stays as it is."""
        entries = [EntryChange(revision, signature) for revision, signature in self._new.items()]
        parts = [entries[at : at + MAX_IDS] for at in range(0, len(entries), MAX_IDS)]
        if parts:
            updates = [MapUpdateRequest(SIGNATURES, MapKind.OPAQUE, part) for part in parts]
            with self._repository.remote.words():
                self._repository.remote.change([], updates)
        self.drop()
