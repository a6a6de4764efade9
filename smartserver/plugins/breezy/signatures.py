"""Signatures of revisions on a server. One that comes when its revision is there already is an entry of a map of the
repository's; a fetch puts those beside the revisions they sign.
"""

from __future__ import annotations

from typing import Any

from breezy import gpg
from breezy.repository import Repository

from smartserver.plugins.breezy.place import Place
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import Testament
from smartserver.vcs.bzr.kinds import SIGNATURES
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest


def late(place: Place) -> dict[RevisionId, bytes]:
    """The signatures that came after their revisions, as last seen."""
    return place.knowledge.map(SIGNATURES)


def add_late(place: Place, target: Repository) -> None:
    """Put those of revisions that are here, and have none, into a local repository."""
    signatures = late(place)
    if signatures:
        BrzRepository(target).add_signatures(signatures)


class Signatures:
    """Those of a repository, and what is to become of them by one command."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._new: dict[RevisionId, bytes] = {}

    def find(self, revision: RevisionId, shadow: Repository) -> bytes | None:
        """The signature of a revision that `shadow` has, if it has one."""
        if shadow.has_signature_for_revision_id(revision):
            signature: bytes = shadow.get_signature_text(revision)
            return signature
        return self._new.get(revision) or late(self._place).get(revision)

    def sign(self, revision: RevisionId, shadow: Repository, strategy: Any) -> None:
        """Sign a revision that `shadow` has."""
        self._new[revision] = strategy.sign(testament(shadow, revision), gpg.MODE_CLEAR)

    def drop(self) -> None:
        """Forget what was signed."""
        self._new.clear()

    def send(self) -> None:
        """Send what was signed. What somebody else has signed meanwhile stays as it is."""
        entries = [EntryChange(revision, signature) for revision, signature in self._new.items()]
        parts = [entries[at : at + MAX_IDS] for at in range(0, len(entries), MAX_IDS)]
        if parts:
            updates = [MapUpdateRequest(SIGNATURES, MapKind.OPAQUE, part) for part in parts]
            with self._place.words():
                self._place.change([], updates)
        self.drop()


def testament(shadow: Repository, revision: RevisionId) -> bytes:
    """What is signed of a revision."""
    text: bytes = Testament.from_revision(shadow, revision).as_short_text()
    return text
