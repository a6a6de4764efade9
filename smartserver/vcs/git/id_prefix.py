"""Revisions named by the begin of their id in hex."""

from __future__ import annotations

from smartserver.errors import NoSuchPart
from smartserver.records.content import RepositoryView
from smartserver.records.model import RevisionId


def find_by_prefix(stored: RepositoryView, digits: str) -> RevisionId | None:
    """The revision whose id in hex begins so; None where there is none."""
    whole = bytes.fromhex(digits) if len(digits) % 2 == 0 else b""
    if whole and stored.ordinal(whole) is not None:
        return whole
    start, half = bytes.fromhex(digits[: len(digits) // 2 * 2]), digits[len(digits) // 2 * 2 :]
    tips = [stored.ordinal(tip.id) for value in stored.refs().values() for tip in value]
    newest = max([ordinal for ordinal in tips if ordinal is not None], default=-1)
    found: RevisionId | None = None
    for revision in map(stored.revision, range(newest + 1)):
        if revision.startswith(start) and (not half or revision.hex().startswith(digits)):
            if found is not None:
                raise NoSuchPart(f"ambiguous id {digits}: {found.hex()} and {revision.hex()} begin so")
            found = revision
    return found
