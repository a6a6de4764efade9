"""vcs.bzr.compat: what it gives of Breezy, wherever this release has it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import breezy
import breezy.bzr  # Its own formats.
import pytest
from breezy.bzr.pack_repo import RetryWithNewPacks
from breezy.controldir import ControlDir, format_registry

from smartserver.vcs.bzr import compat as brz_compat

KEYS = [(b"file-%d" % (number % 3), b"revision-%03d" % number) for number in range(40)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """The texts of a repository of Breezy's, in two packs: one is a folder's and empty, the others much alike."""
    if breezy.get_global_state() is None:
        breezy.initialize()
    made = ControlDir.create(str(tmp_path), format=format_registry.make_controldir("2a")).create_repository()
    for keys in (KEYS[:25], KEYS[25:]):
        with made.lock_write():
            made.start_write_group()
            for key in keys:
                lines = [] if key == KEYS[7] else [b"line %d of %b\n" % (n, key[n % 2]) for n in range(50)]
                made.texts.add_lines(key, [KEYS[KEYS.index(key) - 3]] if key in KEYS[3:] else [], lines)
            made.commit_write_group()
    with made.lock_read():
        yield made.texts


def streamed(store: Any, keys: Iterable[tuple[bytes, ...]]) -> dict[tuple[bytes, ...], tuple[bytes, Any]]:
    """The texts that Breezy itself gives."""
    found = store.get_record_stream(keys, "unordered", True)
    return {each.key: (each.get_bytes_as("fulltext"), each.parents) for each in found if each.storage_kind != "absent"}


def read(store: Any, keys: Iterable[tuple[bytes, ...]]) -> dict[tuple[bytes, ...], tuple[bytes, Any]]:
    found = list(brz_compat.read_texts(store, keys))
    assert len({key for key, _, _ in found}) == len(found)
    return {key: (text, parents) for key, text, parents in found}


def test_texts_are_those_that_breezy_gives(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for keys in (KEYS, KEYS[20:30], [*KEYS[:2], (b"file-0", b"elsewhere")], []):
        expected = streamed(store, keys)
        assert len(expected) == len(set(keys) & set(KEYS))
        assert read(store, iter(keys)) == expected
        # Without a stream.
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "get_record_stream", None)
            assert read(store, keys) == expected
            patch.setattr(brz_compat.groupcompress, "BATCH_SIZE", 1)
            assert read(store, keys) == expected


def test_texts_of_a_store_that_rests_on_others_are_breezys_to_find(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = streamed(store, KEYS)
    monkeypatch.setattr(brz_compat, "_from_blocks", None)
    monkeypatch.setattr(store, "_immediate_fallback_vfs", [store.without_fallbacks()])
    assert read(store, KEYS) == expected


@pytest.mark.parametrize(
    "wrong", [RetryWithNewPacks(None, False, (None, None, None)), zlib.error(), ValueError(), AttributeError()]
)
def test_what_cannot_be_read_breezy_is_asked_for(store: Any, wrong: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack that was joined to others meanwhile it looks for, of a damaged one it says what there is to say."""
    expected = streamed(store, KEYS)
    blocks = type(store)._get_blocks

    def some(self: Any, memos: list[Any]) -> Iterator[Any]:
        yield next(blocks(self, memos))
        monkeypatch.setattr(type(store), "_get_blocks", blocks)
        raise wrong

    monkeypatch.setattr(type(store), "_get_blocks", some)
    assert read(store, KEYS) == expected
