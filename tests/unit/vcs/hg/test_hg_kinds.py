from __future__ import annotations

import pytest

from smartserver.records.check import make_check, verify_record
from smartserver.vcs.hg.kinds import (
    CHANGESET,
    FILE,
    KINDS,
    NULL,
    checked_file_key,
    file_key,
    meta_of,
    node_of,
    parents_of,
    path_of,
)

A, B = bytes([10]) * 20, bytes([200]) * 20


@pytest.mark.parametrize(
    ("parents", "meta"),
    [((NULL, NULL), b""), ((A, NULL), A), ((A, B), A + B), ((NULL, B), NULL + B), ((B, A), B + A)],
)
def test_meta_is_the_parents_and_no_more(parents: tuple[bytes, bytes], meta: bytes) -> None:
    assert meta_of(*parents) == meta
    assert parents_of(meta) == parents


@pytest.mark.parametrize("meta", [A[:19], A + b"\0", NULL, A + NULL, A + B + b"\1"])
def test_meta_in_another_form_is_none(meta: bytes) -> None:
    with pytest.raises(ValueError, match=f"its meta of {len(meta)} bytes is not two parents"):
        parents_of(meta)


def test_the_key_of_a_changeset_is_its_node_and_nothing_else() -> None:
    node = node_of(A, b"text")
    kind = KINDS[CHANGESET]
    assert make_check(kind, node, A, b"text") == b""
    verify_record(kind, node, A, b"text", b"")
    for wrong in (b"x" + node, node[1:]):
        with pytest.raises(ValueError, match="hashes to"):
            verify_record(kind, wrong, A, b"text", b"")


def test_the_key_of_a_file_has_its_path() -> None:
    node = node_of(A, b"text")
    key = file_key(b"d/f", node)
    assert key == b"d/f\0" + node
    assert path_of(key) == b"d/f"
    assert checked_file_key(key, node) == key
    verify_record(KINDS[FILE], key, A, b"text", b"")
    with pytest.raises(ValueError, match="hashes to"):
        verify_record(KINDS[FILE], key, B, b"text", b"")


@pytest.mark.parametrize("key", [A, b"\0" + A, b"path" + A, b"a\0b\0" + A, b"a\nb\0" + A, b""])
def test_keys_that_are_no_files(key: bytes) -> None:
    with pytest.raises(ValueError, match="a path, a NUL and a node"):
        path_of(key)
