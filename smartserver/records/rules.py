"""What the records of one version-control system say of each other; here, of one nothing is known of: nothing.

`records.check` names the rules of each system that is known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from smartserver.records.model import Key, RevisionId

References = Sequence[tuple[int, bytes | None, Collection[Key]]]
"""What a record refers to, in groups: the kind, the meta those records must have (None: any), and the keys."""

NOTHING: Final[References] = ()

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")

Changes = tuple[References, References]
"""Of two versions of a record what only the newer one and only the older one refers to; a key may be in both."""


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

    refs_are_files = False
    """Whether clients keep refs in files, so that `a` and `a/b` cannot both be refs."""

    def ref_problem(self, name: bytes) -> str:
        """Why a ref cannot have this name; empty where it can. NUL and the length were checked before."""
        return "it has a control character" if _CONTROL.search(name) else ""

    def setting_problem(self, name: str, value: bytes) -> str:
        """Why a setting cannot have this value; empty where it can."""
        del name, value
        return ""

    def tip_meta(self, ref: bytes) -> bytes | None:
        """The meta that the own record of this ref's tip must have; None: any."""
        del ref
        return None

    def type_name(self, meta: bytes) -> str:
        """What a record with this meta is called in a message."""
        return f"a record with the meta {meta.hex()}"

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
        """What a record refers to and its base, of the same kind and meta, does not; None: `references` of both say.

        `base`: the text of a record whose references were read before, for it was proved.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del kind, meta, text, base
        return None
