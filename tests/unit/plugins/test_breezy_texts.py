"""plugins.breezy.stores: lines, and where they are from, follow from whole texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from smartserver.plugins.breezy.stores import Texts, give_stores
from smartserver.vcs.bzr.compat import AbsentContentFactory, FulltextContentFactory, StoreKey

ONE, TWO, GHOST = (b"file", b"one"), (b"file", b"two"), (b"file", b"ghost")


class Kept(Texts):
    """Two versions of a file; a carriage return ends no line."""

    texts = {ONE: b"first\nsec\rond\n", TWO: b"first\nsec\rond\nthird"}
    parents: dict[StoreKey, tuple[StoreKey, ...]] = {ONE: (), TWO: (ONE,)}

    def get_parent_map(self, keys: Iterable[StoreKey]) -> dict[StoreKey, tuple[StoreKey, ...]]:
        return {key: self.parents[key] for key in keys if key in self.parents}

    def get_record_stream(self, keys: Iterable[StoreKey], ordering: str, include_delta_closure: bool) -> Iterator[Any]:
        for key in sorted(keys):
            if key in self.texts:
                yield FulltextContentFactory(key, self.parents[key], None, self.texts[key])
            else:
                yield AbsentContentFactory(key)


def test_every_line_of_what_is_there() -> None:
    found = list(Kept().iter_lines_added_or_present_in_keys([ONE, GHOST]))
    assert found == [(b"first\n", ONE), (b"sec\rond\n", ONE)]


def test_where_lines_are_from() -> None:
    assert Kept().annotate(TWO) == [(ONE, b"first\n"), (ONE, b"sec\rond\n"), (TWO, b"third")]


def test_it_rests_on_nothing() -> None:
    kept = Kept()
    assert kept.without_fallbacks() is kept
    assert kept.get_missing_compression_parent_keys() == frozenset()


def test_a_repository_is_given_other_stores() -> None:
    made = SimpleNamespace(chk_bytes=SimpleNamespace(_search_key_func=len), texts=object(), name="made")
    stores = {"chk_bytes": Kept(), "texts": Kept()}
    assert give_stores(made, stores) is made
    assert (made.chk_bytes, made.texts, made.name) == (*stores.values(), "made")
    assert made.chk_bytes._search_key_func is len
    assert made.texts._search_key_func is None
