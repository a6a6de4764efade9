"""plugins.breezy.history: what a pull brings is read once, kept, and given out in part."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from smartserver.plugins.breezy.history import History

from smartserver.client.medium import ConnectionLost
from smartserver.errors import CorruptRecord
from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.model import GraphNode, Parent
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed

KINDS = system_of("bzr 2a").kinds

GRAPH = [
    GraphNode(b"one", ()),
    GraphNode(b"two", (Parent(b"one"),)),
    GraphNode(b"side", (Parent(b"one"), Parent(b"ghost", True))),
    GraphNode(b"three", (Parent(b"two"), Parent(b"side"))),
]


def segments() -> dict[bytes, bytes]:
    writer = SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: b"")
    writer.begin(GRAPH)
    return {
        revision: writer.segment(revision, parents, [NewRecord(0, revision, b"", b"text of " + revision, ())])
        for revision, parents in GRAPH
    }


def history(body: bytes, count: int = 4) -> History:
    """One whose body comes in pieces of seven bytes."""
    return History(iter([body[at : at + 7] for at in range(0, len(body), 7)]), count, KINDS)


def test_the_graph_and_parts_of_it() -> None:
    whole = segments()
    came = history(b"".join(whole.values()))
    assert dict(came.parents) == {
        b"one": (),
        b"two": (b"one",),
        b"side": (b"one", b"ghost"),
        b"three": (b"two", b"side"),
    }
    assert came.reached([b"side", b"not here"]) == [b"one", b"side"]
    assert came.reached([b"three"]) == [b"one", b"two", b"side", b"three"]
    assert list(came.segments({b"side", b"one"})) == [whole[b"one"], whole[b"side"]]
    assert list(came.segments(whole)) == list(whole.values())


def test_ghosts() -> None:
    came = history(b"".join(segments().values()))
    assert came.ghosts == {b"ghost"}
    assert not came.ends_at_ghost(b"three")
    assert not came.ends_at_ghost(b"not here")
    lone = GraphNode(b"lone", (Parent(b"ghost", True), Parent(b"one")))
    writer = SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: b"")
    writer.begin([lone])
    came = history(writer.segment(*lone, [NewRecord(0, b"lone", b"", b"text", ())]), 1)
    assert came.ends_at_ghost(b"lone")


def test_a_parent_that_comes_later_is_refused() -> None:
    """Who goes from parent to parent would never come to an end."""
    body = b""
    for each in (GraphNode(b"a", (Parent(b"b"),)), GraphNode(b"b", (Parent(b"a"),))):
        writer = SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: b"")
        writer.begin([each])
        body += writer.segment(*each, [NewRecord(0, each.revision, b"", b"text", ())])
    with pytest.raises(CorruptRecord, match="came after a revision whose parent it is"):
        history(body, 2).receive()


def test_what_it_rests_on() -> None:
    whole = segments()
    came = history(whole[b"two"] + whole[b"side"] + whole[b"three"], 3)
    assert came.rests_on([b"two", b"side", b"three"]) == {b"one"}
    assert came.rests_on([b"three"]) == set()


def test_it_is_received_once() -> None:
    asked = []

    def body() -> Iterator[bytes]:
        asked.append(True)
        yield b"".join(segments().values())

    came = History(body(), 4, KINDS)
    assert not asked
    came.receive()
    came.receive()
    assert len(asked) == 1


def test_fewer_than_announced_are_refused() -> None:
    with pytest.raises(CorruptRecord, match="the server sent 4 revisions, having announced 5"):
        history(b"".join(segments().values()), 5).receive()


def test_what_broke_off_is_never_taken_for_all_of_it() -> None:
    whole = segments()

    def body() -> Iterator[bytes]:
        yield whole[b"one"] + whole[b"two"]
        raise ConnectionLost("gone")

    came = History(body(), 4, KINDS)
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="gone"):
            came.receive()
    with pytest.raises(ConnectionLost):
        came.reached([b"one"])


def test_a_body_that_is_cut_off_is_refused() -> None:
    with pytest.raises(Malformed):
        history(b"".join(segments().values())[:-1]).receive()


def test_a_large_revision_is_shown_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is whole."""
    told: list[tuple[int, int, int]] = []
    monkeypatch.setattr(
        "smartserver.plugins.breezy.history.moving",
        lambda what: contextlib.nullcontext(lambda *sent: told.append(sent)),
    )
    body = b"".join(segments().values())
    assert len(history(body).parents) == 4
    assert told[0] == (7, 0, 4)
    assert told[-1] == (len(body), 4, 4)
