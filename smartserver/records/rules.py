"""What the records of one version-control system say of each other; here, of one nothing is known of: nothing.

`records.check` names the rules of each system that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from smartserver.records.model import Key, RevisionId

References = tuple[int, Sequence[Key]]
"""The kind a record refers to, and the keys."""

NOTHING: Final[References] = (0, ())

Changes = tuple[int, frozenset[Key], frozenset[Key]]
"""The kind that two versions of a record refer to, and the keys that only the newer one and only the older one does."""


class Rules:
    """The rules of a system; kinds are indexes into its kinds."""

    own_kind: int | None = None
    """The kind whose record is a revision's own, the one with the revision's id as key; None where there is none."""

    label: bytes | None = None
    """The meta of an own record that only says something of its parent, as an annotated tag does of a commit."""

    ghosts = True
    """Whether parents may be absent."""

    content_keys: frozenset[int] = frozenset()
    """Kinds with a key that is proof of the text: what a record refers to can be remembered by it."""

    of_revision: frozenset[int] = frozenset()
    """Kinds whose records have the id of the revision that introduces them as key."""

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        """The parents a revision's own record names.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del key, meta, text
        return ()

    def may_refer(self, kind: int, meta: bytes) -> bool:
        """Whether a record of this kind and meta can refer to others, whatever its text."""
        del kind, meta
        return False

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        """The records that this one needs, in its order; a key may come twice.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del kind, key, meta, text
        return NOTHING

    def changes(self, kind: int, meta: bytes, text: bytes, base: bytes) -> Changes | None:
        """What a record refers to that its base, of the same kind, does not; None: `references` of both say it.

        `base`: the text of a record whose references were read before, for it was proved.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del kind, meta, text, base
        return None
