from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
from held_memory import RESULT_TIMES, TABLE

from smartserver.verbs.map_update import EntryOutcome, Verdict


def test_the_documentation_shows_the_table() -> None:
    page = Path(__file__).parents[3] / "doc/howto/run_a_server.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    start = lines.index(TABLE[0].row)
    assert lines[start : start + len(TABLE)] == [row.row for row in TABLE]
    assert not lines[start + len(TABLE)]


def test_a_result_takes_some_times_its_bytes() -> None:
    tracemalloc.start()
    try:
        encoded = msgspec.msgpack.encode([EntryOutcome(Verdict.DONE) for _ in range(20_000)])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < RESULT_TIMES * len(encoded)
