"""plugins.breezy.stores: what is read from a repository that has everything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from smartserver.plugins.breezy.stores import Store
from smartserver.vcs.base import WrongContent
from smartserver.vcs.bzr.compat import FulltextContentFactory, StoreKey
from smartserver.vcs.bzr.kinds import INVENTORY, REVISION, TEXT

KEY = (b"f", b"r2")


def store(
    parents: Sequence[StoreKey],
    patience: int = 9,
    asked: list[Sequence[bytes]] | None = None,
    *,
    reads_versions: bool = False,
) -> Store:
    """A store of texts that has none; in the whole repository is one, with these parents. `patience`: times it may be
    asked for alone; `asked`: which were; `reads_versions`: whether all texts of a file are read.
    """

    def stream(keys: Sequence[StoreKey], ordering: str, include_delta_closure: bool) -> list[Any]:
        return [FulltextContentFactory(key, tuple(parents), None, b"text\n") for key in keys]

    texts = SimpleNamespace(get_parent_map=dict.fromkeys, get_record_stream=stream)
    whole = SimpleNamespace(lock_read=nullcontext, texts=texts)
    left = [*range(patience)]
    content: Any = SimpleNamespace(
        records={},
        complete=set(),
        reads_versions=reads_versions,
        fetch_texts=[].append if asked is None else asked.append,
        lets_ask=lambda: bool(left and left.pop() is not None),
    )
    return Store(TEXT, "texts", content, nullcontext, lambda: whole)


def test_a_text_of_the_whole_repository() -> None:
    assert store([(b"f", b"r1")]).get_parent_map([KEY]) == {KEY: ((b"f", b"r1"),)}


def test_a_text_with_a_parent_of_another_file_is_what_cannot_be_read() -> None:
    with pytest.raises(WrongContent, match="f r2 from the server: a text of f has a parent of g, another file"):
        store([(b"g", b"r1")]).get_parent_map([KEY])


def test_what_is_missing_again_and_again_is_read_from_the_whole_repository() -> None:
    asked: list[Sequence[bytes]] = []
    texts = store([], 2, asked)
    for number in range(5):
        assert list(texts.get_parent_map([(b"f", b"r%d" % number)]).values()) == [()]
    assert asked == [[b"f\0r0"], [b"f\0r1"]]


@pytest.mark.parametrize(("kind", "name"), [(REVISION, "revisions"), (INVENTORY, "inventories")])
def test_revisions_of_the_whole_repository_have_their_parents(kind: int, name: str) -> None:
    """Where no request for them alone is allowed any more."""
    parents = {b"r1": (b"null:",), b"r2": (b"r1", b"ghost")}

    def stream(keys: Sequence[StoreKey], ordering: str, include_delta_closure: bool) -> list[Any]:
        return [FulltextContentFactory(key, None, None, b"text\n") for key in keys]

    whole = SimpleNamespace(
        lock_read=nullcontext,
        get_parent_map=lambda revisions: {each: parents[each] for each in revisions},
        **{name: SimpleNamespace(get_record_stream=stream)},
    )
    content: Any = SimpleNamespace(records={}, parents={}, is_absent=lambda revision: False, lets_ask=lambda: False)
    found = Store(kind, name, content, nullcontext, lambda: whole).get_record_stream(
        [(b"r1",), (b"r2",)], "unordered", True
    )
    assert [each.parents for each in found] == [(), ((b"r1",), (b"ghost",))]


def test_patience_is_spent_on_requests_alone() -> None:
    texts = store([], 1, reads_versions=True)
    texts.get_parent_map([KEY])
    assert texts._content.lets_ask()
