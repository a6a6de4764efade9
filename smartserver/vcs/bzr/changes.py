"""Compares a page of Breezy's with its base, and reads only the items that differ.

A page has some hundred items, of which a revision changes few. The rule of this file: the base was once read whole, or
compared with a page that was. So the common start and end of both pages, and a whole item that is in both, are not
checked again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from smartserver.records.alike import common_end, common_start
from smartserver.records.model import Key
from smartserver.vcs.bzr.pages import (
    CHILD_BYTES,
    ENTRY_PARTS,
    MAX_CHILDREN,
    LeafHead,
    count_items,
    is_node,
    item_texts,
    leaf_head,
    node_head,
    node_pages,
)


class KeyChanges(NamedTuple):
    """The keys of pages to which only the new node (`now`) or only the old node (`before`) refers."""

    now: frozenset[Key]
    before: frozenset[Key]


NOTHING: Final = KeyChanges(frozenset(), frozenset())

_STEPS: Final = 32
"""The most items that are compared one by one. After them, the rest of a leaf is read without a comparison."""


def new_texts(new: bytes, old: bytes) -> dict[Key, bytes] | None:
    """Return the texts (see `leaf_texts`) of the items that only the new leaf has, and perhaps of a few other items.
    `old` was read before.

    Return None if the leaf must be read whole. Two items with the same key are not detected.
    """
    heads = _heads(new, old)
    if heads is None:
        return None
    head, earlier = heads
    if head.parts != ENTRY_PARTS:
        return {}
    items, others = other_items(new, head.end, old, earlier.end)
    texts = item_texts(head, items, 0, len(items))
    count = count_items(head, items, 0, len(items))
    _check_counts(head, earlier, count, count_items(earlier, others, 0, len(others)))
    if len(texts) != count:
        raise ValueError("cannot be read as a leaf: its items")
    return texts


def _heads(new: bytes, old: bytes) -> tuple[LeafHead, LeafHead] | None:
    """Return the heads of two leaves; None if their items cannot be compared."""
    if is_node(old):
        return None
    head, earlier = leaf_head(new), leaf_head(old)
    return (head, earlier) if (head.prefix, head.parts) == (earlier.prefix, earlier.parts) else None


def node_changes(new: bytes, old: bytes) -> KeyChanges | None:
    """Return the pages that only one of two nodes names; None if `new` must be read whole. `old` was read before."""
    head, earlier = node_head(new), node_head(old)
    if head is None or earlier is None or head[:2] != earlier[:2]:
        return None
    pages, others = new[head.end :], old[earlier.end :]
    if not 0 < len(pages) <= MAX_CHILDREN * CHILD_BYTES or len(pages) % CHILD_BYTES:
        return None
    if len(set(pages[::CHILD_BYTES])) * CHILD_BYTES != len(pages):
        return None  # Two are at the same place.
    ahead = common_start(pages, others)
    behind = common_end(pages, others, min(len(pages), len(others)) - ahead)
    start = ahead - ahead % CHILD_BYTES
    behind -= behind % CHILD_BYTES
    one = frozenset(node_pages(pages[start : len(pages) - behind]))
    other = frozenset(node_pages(others[start : len(others) - behind]))
    return KeyChanges(one - other, other - one)


def _check_counts(head: LeafHead, earlier: LeafHead, count: int, count_before: int) -> None:
    """Check that a leaf has as many items as its header says. `count`, `count_before`: the numbers of items that
    differ."""
    if head.items - count != earlier.items - count_before:
        has = earlier.items + count - count_before
        raise ValueError(f"cannot be read as a leaf: it says {head.items} and has {has}")


def other_items(new: bytes, start: int, old: bytes, old_start: int) -> tuple[bytes, bytes]:
    """Return the items that only one of two leaves has, joined for each leaf, and a few common ones.

    Items begin at `start` and at `old_start`. Only the old leaf is known to have valid items there.
    """
    at, old_at = _step(new, start, old, old_start)
    new_end, old_end = _ends(new, at, old, old_at)
    mine: list[bytes] = []
    theirs: list[bytes] = []
    for _ in range(_STEPS):
        if at >= new_end or old_at >= old_end:
            break
        end, old_then = _item_end(new, at, new_end), _item_end(old, old_at, old_end)
        item, other = new[at:end], old[old_at:old_then]
        key, old_key = item[: item.find(b"\0")], other[: other.find(b"\0")]
        if key < old_key:
            mine.append(item)
            at = end
            continue
        theirs.append(other)
        old_at = old_then
        if key == old_key:
            mine.append(item)
            at = end
            if at < new_end and old_at < old_end:
                at, old_at = _step(new, at, old, old_at)
    mine.append(new[at:new_end])
    theirs.append(old[old_at:old_end])
    for item in mine:
        # Else a missing line in one item and an extra line in another could make up for each other.
        if item and item.find(b"\n", 0, item.find(b"\0")) >= 0:
            raise ValueError("cannot be read as a leaf: its items")
    return b"".join(mine), b"".join(theirs)


def _step(new: bytes, at: int, old: bytes, old_at: int) -> tuple[int, int]:
    """Return the offsets after the items at `at` and `old_at` that are the same in both leaves."""
    same = common_start(new, old, at, old_at)
    # Only the first line of an item has a NUL. The last item that begins in the common bytes may end differently.
    last = old.rfind(b"\0", old_at, old_at + same)
    skipped = old.rfind(b"\n", old_at, last) + 1 - old_at if last >= 0 else 0
    return (at + skipped, old_at + skipped) if skipped > 0 else (at, old_at)


def _ends(new: bytes, at: int, old: bytes, old_at: int) -> tuple[int, int]:
    """Return the offsets at which the items begin that are the same at the ends of both leaves."""
    behind = common_end(new, old, min(len(new) - at, len(old) - old_at))
    # The first item in the common bytes may begin differently; the key of a name has several NULs.
    first = old.find(b"\0", len(old) - behind)
    second = old.find(b"\0", old.find(b"\n", first)) if first >= 0 else -1
    left = len(old) - old.rfind(b"\n", 0, second) - 1 if second >= 0 else 0
    return len(new) - left, len(old) - left


def _item_end(text: bytes, at: int, end: int) -> int:
    """Return the end of the item that begins at `at`: the line with the next NUL begins there."""
    following = text.find(b"\0", text.find(b"\0", at, end) + 1, end)
    return max(text.rfind(b"\n", at, following) + 1, at + 1) if following >= 0 else end
