"""vcs.bzr.complete: what pages and inventories refer to must have come or be here, whichever of it is taken away."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from brz_histories import RandomHistory, all_keys, contents, new_repository, quiet

from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.complete import References, instead_of_breezys_look, is_alone

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    with quiet():
        yield


@pytest.fixture(scope="module")
def source() -> Any:
    with quiet():
        return RandomHistory(new_repository("memory:///complete"), 5, 60).repository


def referred(repository: Any) -> tuple[References, list[bytes], list[bytes]]:
    """What all of a repository refers to, and the keys of its pages and texts."""
    keys = all_keys(repository)
    references = References()
    for (store, _), (_, text) in contents(
        repository, {name: keys[name] for name in ("inventories", "chk_bytes")}
    ).items():
        if store == "inventories":
            references.inventory(text)
        else:
            references.page(text, None)
    pages, texts = ([b"\0".join(key) for key in sorted(keys[name])] for name in ("chk_bytes", "texts"))
    return references, pages, texts


def test_what_is_complete_passes(source: Any) -> None:
    references, pages, texts = referred(source)
    void = new_repository("memory:///complete-void")
    with source.lock_read(), void.lock_read():
        references.check(void, pages, texts)
        references.check(source, [], [])
        References().check(void, [], [])


def test_each_that_is_missing_is_named(source: Any) -> None:
    references, pages, texts = referred(source)
    void = new_repository("memory:///complete-void2")
    chance = random.Random(1)
    with void.lock_read():
        for key in chance.sample(pages, 10):
            with pytest.raises(VcsError, match=f"lacks a page that what was pulled refers to: {key.decode()}"):
                references.check(void, [each for each in pages if each != key], texts)
        for key in chance.sample(texts, 10):
            with pytest.raises(VcsError, match="lacks a text that what was pulled refers to: "):
                references.check(void, pages, [each for each in texts if each != key])


def test_breezys_look_is_back_afterwards(source: Any) -> None:
    assert is_alone(source)
    collection = source._pack_collection
    own = collection._check_new_inventories
    with instead_of_breezys_look(source):
        assert collection._check_new_inventories() == []
    assert collection._check_new_inventories == own
