"""vcs.brz_compat: what it gives of Breezy, wherever this release has it."""

from __future__ import annotations

from collections.abc import Iterable

import breezy.bzr  # noqa: F401  # Its own formats.
import pytest
from breezy import debug

from smartserver.vcs import brz_compat


class Parents:
    def __init__(self, parents: dict[bytes, tuple[bytes, ...]]) -> None:
        self._parents = parents

    def get_parent_map(self, revisions: Iterable[bytes]) -> dict[bytes, tuple[bytes, ...]]:
        return {each: self._parents[each] for each in revisions if each in self._parents}


def test_a_graph_of_what_several_know() -> None:
    graph = brz_compat.make_graph([Parents({b"b": (b"a",)}), Parents({b"a": (brz_compat.NULL,)})])
    assert graph.is_ancestor(b"a", b"b")
    assert graph.find_distance_to_null(b"b", []) == 2


def test_a_flag_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "debug_flags", {"hpss"})
    assert brz_compat.is_debugged("hpss")
    assert not brz_compat.is_debugged("hpssdetail")


def test_what_breezy_keeps_apart() -> None:
    brz_compat.load_formats()
    assert brz_compat.chk_inventory().__name__ == "CHKInventory"
    assert brz_compat.encode_length(300) == b"\xac\x02"
    record = brz_compat.ChunkedContentFactory((b"key",), None, None, [b"a ", b"text"])
    assert record.get_bytes_as("fulltext") == b"a text"
