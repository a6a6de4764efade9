"""client.dump_source: what a dump in a file sends, by what the target has."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
from builders import KINDS, MAIN, History
from hypothesis import given
from hypothesis import strategies as st

from smartserver.client import dump_file, dump_source
from smartserver.client.copy import CannotCopy
from smartserver.client.dump_file import BadDump, DumpHeader, DumpReader, write_dump
from smartserver.client.dump_source import DumpPlan, DumpSource, FirstPart
from smartserver.records.model import Tip


def history() -> tuple[History, list[bytes]]:
    """Two branches and their merge, in an order that a pack may have."""
    made = History()
    trunk = made.line(4)
    branch = made.line(3, trunk[1], "other")
    merge = made.commit({"README": b"merged\n"}, (trunk[-1], branch[-1]))
    return made, [trunk[0], trunk[1], branch[0], trunk[2], branch[1], trunk[3], branch[2], merge]


def source_of(made: History, order: list[bytes], piece: int = dump_file.PIECE, damage: bytes = b"") -> DumpSource:
    body = b"".join(made.segment(each) for each in order) + damage
    head = DumpHeader("git sha1", list(KINDS), {}, {MAIN: (Tip(order[-1]),)}, {}, [], len(order), len(body))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dump_file, "PIECE", piece)
        content = b"".join(write_dump(head, [body], []))
    return DumpSource(DumpReader(io.BytesIO(content), "x.dump"), "x.dump")


def planned(plan: DumpPlan) -> list[bytes]:
    return [node.revision for node in plan.graph]


@given(st.integers(1, 3000))
def test_segments_are_read_wherever_blocks_end(piece: int) -> None:
    made, order = history()
    plan = source_of(made, order, piece).plan((), ())
    assert planned(plan) == order
    assert [[parent.id for parent in node.parents] for node in plan.graph] == [
        list(made.parents[each]) for each in order
    ]
    assert list(plan.segments()) == list(plan.segments()) == [made.segment(each) for each in order]
    assert plan.size == sum(len(made.segment(each)) for each in order)


def ancestors(made: History, revisions: Iterable[bytes]) -> set[bytes]:
    todo, found = list(revisions), set[bytes]()
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += made.parents[each]
    return found


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_what_is_had_is_left_out_with_its_ancestors(haves: set[int], stored: set[int]) -> None:
    made, order = history()
    source = source_of(made, order)
    source.stored = {order[number] for number in stored} | {b"elsewhere"}
    plan = source.plan((), [order[number] for number in haves])
    had = ancestors(made, [order[number] for number in haves | stored])
    assert planned(plan) == [each for each in order if each not in had]
    assert list(plan.segments()) == [made.segment(each) for each in planned(plan)]


def test_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made, order = history()
    source = source_of(made, order)
    sizes = [len(made.segment(each)) for each in order]
    monkeypatch.setattr(dump_source, "PART", sizes[0] + sizes[1])
    part = FirstPart(source)
    assert planned(part.plan((), ())) == order[:2] == [node.revision for node in part.planned]
    # The target says that it has more: the part is what comes after that.
    assert order[2] not in planned(part.plan((), [order[2]]))
    assert part.planned[0].revision == order[3]
    monkeypatch.setattr(dump_source, "PART", 1)
    assert planned(part.plan((), ())) == order[:1]
    assert planned(part.plan((), order)) == []


def test_bytes_that_are_no_segments() -> None:
    made, order = history()
    for damage in (b"\x05abc", b"\x03abc"):
        with pytest.raises(BadDump, match=r"^x\.dump is damaged: revision 8 cannot be read: "):
            source_of(made, order, damage=damage)


def test_another_base_cannot_be_taken() -> None:
    made, order = history()
    with pytest.raises(CannotCopy, match=r"^the other side lacks key though it has what brought it: verify it$"):
        source_of(made, order).plan((), ()).without_bases([b"key"])


def test_a_file_that_was_cut_meanwhile() -> None:
    """The server refuses what comes: segments that are shorter than was announced."""
    made, order = history()
    source = source_of(made, order)
    whole = list(source.plan((), ()).segments())
    source.read._file.truncate(len(whole[0]))
    assert list(source.plan((), ()).segments()) != whole
