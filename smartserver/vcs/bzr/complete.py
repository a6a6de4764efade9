"""Checks that the references of pulled records lead to pulled or local records, as Breezy does before it ends a write
group.

Breezy's own check reads every written page again, and decodes it and both maps' items. Here a page is checked while its
text is at hand. If its base was pulled, too, only their differences are checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any, Final

from smartserver.errors import shown
from smartserver.records.model import Key
from smartserver.records.native import native
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.changes import new_texts, node_changes
from smartserver.vcs.bzr.compat import Repository, Store
from smartserver.vcs.bzr.pages import is_node, leaf_texts, read_node
from smartserver.vcs.bzr.revision import read_inventory

_native: Final = native("page_references")
"""The native form of `page_references`. It returns None for a page that Python must read."""


def page_references(text: bytes, base: bytes | None) -> tuple[Collection[Key], dict[Key, bytes]]:
    """Return the pages to which an internal node refers, and the texts to which a leaf refers with the SHA-1 of each,
    which is empty for a folder or link. `base`: a page that was read before; its references may be left out.

    Raises:
        ValueError: the page cannot be parsed.
    """
    if is_node(text):
        below = None if base is None else node_changes(text, base)
        return (read_node(text).children.values() if below is None else below.now), {}
    named = None if base is None else new_texts(text, base)
    return (), leaf_texts(text) if named is None else named


class References:
    """Collects the references of pages and inventories."""

    def __init__(self, *, kept: bool = True) -> None:
        """`kept`: True if references are stored for `check`."""
        self._kept = kept
        self._pages: set[Key] = set()
        self._texts: set[Key] = set()

    def page(self, text: bytes, base: bytes | None) -> dict[Key, bytes]:
        """Add a page, and return the texts to which it refers, as `page_references` does. `base`: the text of a page
        that was added before, or None.

        Raises:
            ValueError: the page cannot be parsed.
        """
        named: dict[Key, bytes]
        found = None if _native is None else _native(text, base)
        pages, named = found or page_references(text, base)
        if self._kept:
            self._pages.update(pages)
            self._texts.update(named)
        return named

    def inventory(self, text: bytes) -> None:
        """Add an inventory.

        Raises:
            ValueError: the inventory cannot be parsed.
        """
        inventory = read_inventory(text)
        if self._kept:
            self._pages.update((inventory.id_to_entry, inventory.by_name))

    def check(self, repository: Repository, pages: Collection[Key], texts: Collection[Key]) -> None:
        """Check that all references point to `pages` and `texts`, which were pulled, or into the repository."""
        _check(repository.chk_bytes, self._pages.difference(pages), "page")
        _check(repository.texts, self._texts.difference(texts), "text")


def _check(store: Store, keys: Collection[Key], what: str) -> None:
    wanted = {tuple(key.split(b"\0")) for key in keys}
    missing = wanted.difference(store.get_parent_map(wanted)) if wanted else ()
    if missing:
        named = " of ".join(map(shown, min(missing)))
        raise VcsError(f"the pulled revisions refer to a {what} that is missing: {named}")


def is_alone(repository: Repository) -> bool:
    """Tell whether a repository is not stacked and this module can replace Breezy's check. For a stacked repository,
    Breezy requires more than the references."""
    return not repository._fallback_repositories and hasattr(_collection(repository), "_check_new_inventories")


@contextlib.contextmanager
def instead_of_breezys_look(repository: Repository) -> Iterator[None]:
    """Keep Breezy from its check for missing records while the context is open. The caller checks instead."""
    collection = _collection(repository)
    collection._check_new_inventories = list
    try:
        yield
    finally:
        del collection._check_new_inventories


def _collection(repository: Repository) -> Any:
    return getattr(repository, "_pack_collection", None)
