"""`ShadowTexts`: a store of a shadow as Breezy is given it: what the branch reaches of it, and nothing that is damaged.

Each text is read whole before it is given out, so that damage shows here, where it can be fetched again, and not where
the text is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from smartserver.errors import shown
from smartserver.plugins.breezy.shadow import Damaged, Shadow, decoding
from smartserver.plugins.breezy.stores import Texts, give_stores, in_memory
from smartserver.vcs.bzr.compat import AbsentContentFactory, ChunkedContentFactory, StoreKey
from smartserver.vcs.bzr.repository import STORES

NAMED_BY_REVISION = ("revisions", "inventories", "signatures")


class ShadowTexts(Texts):
    """One store of a shadow: what the branch reaches of it, and where it is damaged what is fetched again."""

    def __init__(self, name: str, shadow: Shadow) -> None:
        self._name = name
        self._shadow = shadow

    def __repr__(self) -> str:
        return f"the {self._name} that are kept of the server's"  # Breezy says it of what it misses.

    def _shown(self, keys: Iterable[StoreKey]) -> list[StoreKey]:
        wanted = list(dict.fromkeys(keys))
        if self._name not in NAMED_BY_REVISION:
            return wanted
        reached = self._shadow.shows([key[-1] for key in wanted])
        return [key for key in wanted if key[-1] in reached]

    def _read(self, read: Callable[[Any], Any]) -> Any:
        def decoded() -> Any:
            store = self._shadow.store(self._name)
            with decoding():
                return read(store)

        return self._shadow.try_twice(decoded)

    def keys(self) -> set[StoreKey]:
        """Those of what the branch reaches."""
        if self._name == "revisions":
            return {(revision,) for revision in self._shadow.parents()}
        return set(self._shown(self._read(lambda store: store.keys())))

    def get_parent_map(self, keys: Iterable[StoreKey]) -> dict[StoreKey, tuple[StoreKey, ...] | None]:
        """The parents of those of `keys` that are there."""
        there = self._shown(keys)
        found: dict[StoreKey, tuple[StoreKey, ...] | None] = self._read(lambda store: store.get_parent_map(there))
        return found

    def get_known_graph_ancestry(self, keys: Iterable[StoreKey]) -> Any:
        """The graph of `keys` and all below them."""
        there = self._shown(keys)
        return self._read(lambda store: store.get_known_graph_ancestry(there))

    def get_sha1s(self, keys: Iterable[StoreKey]) -> dict[StoreKey, bytes]:
        """The SHA-1 of each of those of `keys` that are there."""
        there = self._shown(keys)
        found: dict[StoreKey, bytes] = self._read(lambda store: store.get_sha1s(there))
        return found

    def get_record_stream(self, keys: Iterable[StoreKey], ordering: str, include_delta_closure: bool) -> Iterator[Any]:
        """The texts of `keys`, each read whole before it is given out: damage shows here, not where it is used."""
        wanted = list(dict.fromkeys(keys))
        left = dict.fromkeys(self._shown(wanted))
        for key in wanted:
            if key not in left:
                yield AbsentContentFactory(key)
        while left:
            try:
                for key, text in self._texts(list(left), ordering):
                    if key not in left:
                        raise Damaged(f"{self!r}: {_named(key)} came twice, or unasked")
                    is_missing = text is None and self._ought_to_have(key)
                    if is_missing and self._shadow.mend(Damaged(f"{_named(key)} is missing")):
                        break
                    del left[key]
                    yield AbsentContentFactory(key) if text is None else text
                else:
                    return
            except Damaged as wrong:
                if not self._shadow.mend(wrong):
                    raise

    def _texts(self, keys: list[StoreKey], ordering: str) -> Iterator[tuple[StoreKey, Any]]:
        """The texts of keys, read whole; None where there is none."""
        with decoding():
            stream = iter(self._shadow.store(self._name).get_record_stream(keys, ordering, True))
        while True:
            # No context is open at `yield`: Python forgets a ^C that comes while it closes an abandoned generator.
            with decoding():
                each = next(stream, None)
                if each is None:
                    return
                key = tuple(each.key)
                text = None
                if each.storage_kind != "absent":
                    text = ChunkedContentFactory(key, each.parents, each.sha1, each.get_bytes_as("chunked"))
            yield key, text

    def _ought_to_have(self, key: StoreKey) -> bool:
        """Whether there is a text of that key if nothing is damaged."""
        return self._name == "chk_bytes" or (self._name != "signatures" and key[-1] in self._shadow.parents())


def _named(key: StoreKey) -> str:
    return shown(b"\0".join(key))


def repository_of(shadow: Shadow) -> Any:
    """A repository that has all the branch reaches, and shows nothing else of what is kept."""
    if not shadow.is_on_disk():
        return shadow.joined()
    return give_stores(in_memory(), {name: ShadowTexts(name, shadow) for name in STORES.values()})
