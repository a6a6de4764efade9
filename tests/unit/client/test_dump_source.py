"""client.dump_source: what a dump in a file sends, by what the target has."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import pairwise

import pytest
from builders import KINDS, MAIN, History
from hypothesis import given
from hypothesis import strategies as st

from smartserver.client import dump_file
from smartserver.client.copy import CannotCopy
from smartserver.client.dump_file import BadDump, DumpHeader, DumpReader, write_dump
from smartserver.client.dump_source import DumpPart, DumpSource
from smartserver.records.model import Tip


def history() -> tuple[History, list[bytes]]:
    """Two branches and their merge, in an order that a pack may have."""
    made = History()
    trunk = made.line(4)
    branch = made.line(3, trunk[1], "other")
    merge = made.commit({"README": b"merged\n"}, (trunk[-1], branch[-1]))
    return made, [trunk[0], trunk[1], branch[0], trunk[2], branch[1], trunk[3], branch[2], merge]


def source_of(made: History, order: list[bytes], piece: int = dump_file.PIECE, damage: bytes = b"") -> DumpSource:
    return source_in(io.BytesIO(), made, order, piece, damage)


def source_in(file: io.BytesIO, made: History, order: list[bytes], piece: int, damage: bytes = b"") -> DumpSource:
    """The dump is what follows in the file."""
    body = b"".join(made.segment(each) for each in order) + damage
    head = DumpHeader("git sha1", list(KINDS), {}, {MAIN: (Tip(order[-1]),)}, {}, [], len(order), len(body))
    begin = file.tell()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dump_file, "PIECE", piece)
        file.writelines(write_dump(head, [body], []))
    file.seek(begin)
    checked: list[tuple[int, int, int]] = []
    source = DumpSource(DumpReader(file, "x.dump"), lambda *far: checked.append(far))
    assert checked[-1] == (len(body), len(body), len(body))
    return source


def planned(part: DumpPart) -> list[bytes]:
    return [node.revision for node in part.graph]


@given(st.integers(1, 3000), st.binary(max_size=9))
def test_segments_are_read_wherever_blocks_end(piece: int, before: bytes) -> None:
    made, order = history()
    file = io.BytesIO(before)
    file.seek(len(before))
    part = source_in(file, made, order, piece).lacking()
    assert planned(part) == order
    parents = [tuple(parent.id for parent in node.parents) for node in part.graph]
    assert parents == [made.parents[each] for each in order]
    assert list(part.segments()) == list(part.segments()) == [made.segment(each) for each in order]
    assert part.size == sum(len(made.segment(each)) for each in order)


def ancestors(made: History, revisions: Iterable[bytes]) -> set[bytes]:
    todo, found = list(revisions), set[bytes]()
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += made.parents[each]
    return found


@given(*[st.sets(st.integers(0, 7))] * 3)
def test_what_the_target_has_is_left_out_with_its_ancestors(
    stored: set[int], haves: set[int], distrusted: set[int]
) -> None:
    made, order = history()
    source = source_of(made, order)
    assert source.mark([*[order[number] for number in stored], b"elsewhere"]) == bool(stored)
    had = ancestors(made, [order[number] for number in stored])
    assert planned(source.lacking()) == [each for each in order if each not in had]
    source.distrusted = {order[number] for number in distrusted}
    part = source.lacking().plan((), [order[number] for number in haves])
    had |= ancestors(made, [order[number] for number in haves - distrusted])
    assert planned(part) == [each for each in order if each not in had]
    assert list(part.segments()) == [made.segment(each) for each in planned(part)]


@given(st.integers(1, 5000))
def test_parts(most: int) -> None:
    made, order = history()
    lacking = source_of(made, order).lacking()
    parts = lacking.parts(most)
    assert [each for part in parts for each in planned(part)] == order
    assert all(part.size <= most or len(part) == 1 for part in parts)
    # None could have taken the first revision of the next one.
    for one, other in pairwise(parts):
        assert one.size + len(made.segment(planned(other)[0])) > most


@given(st.integers(1, 12))
def test_revisions_at_even_distances(count: int) -> None:
    made, order = history()
    spaced = source_of(made, order).lacking().spaced(count)
    places = [order.index(each) for each in spaced]
    assert places[0] == 0
    assert len(places) <= count
    assert len({after - before for before, after in pairwise(places)}) <= 1


def test_bytes_that_are_no_segments() -> None:
    made, order = history()
    for damage in (b"\x05abc", b"\x03abc"):
        with pytest.raises(BadDump, match=r"^x\.dump is damaged at byte \d+: revision 8 cannot be read: "):
            source_of(made, order, damage=damage)
    more = made.segment(made.line(1)[0])
    with pytest.raises(BadDump, match=r"^x\.dump is damaged at byte \d+: 9 revisions, the header says 8$"):
        source_of(made, order, damage=more)


def test_another_base_cannot_be_taken() -> None:
    made, order = history()
    with pytest.raises(CannotCopy, match=r"^the other side lacks key though it has what brought it: verify it$"):
        source_of(made, order).lacking().without_bases([b"key"])


def test_a_file_that_becomes_shorter() -> None:
    made, order = history()
    file = io.BytesIO()
    part = source_in(file, made, order, 100).lacking()
    file.truncate(1000)
    with pytest.raises(BadDump, match=r"^x\.dump is damaged at byte \d+: it became shorter while it was read$"):
        list(part.segments())
