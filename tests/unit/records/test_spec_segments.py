"""The hex blocks of the disk specification that show a segment and a graph are read, and are what is written."""

from __future__ import annotations

import re
from pathlib import Path

from smartserver.records import delta
from smartserver.records.announced import AnnouncedGraph
from smartserver.records.check import verify_record
from smartserver.records.model import BaseTag, GraphNode, Kind, Parent
from smartserver.records.segment import decode_segment, encode_graph, encode_segment, frames
from smartserver.records.system import system_of
from smartserver.vcs.git.system import git_key

SPEC = Path(__file__).parents[3] / "doc" / "spec"
KINDS = (Kind("object", "git-sha1", True),)
SEGMENT = "a segment"
GRAPH = "an announced graph"

README = b"# Title\n\nOne line.\nAnother line.\nA third line, and more of it.\n"
PARENT = (
    b"tree c68dd430d162917dc363748f699449d9d3e5dbf7\n"
    b"author A U Thor <a@example.org> 1000000000 +0000\n"
    b"committer A U Thor <a@example.org> 1000000000 +0000\n\nFirst\n"
)


def block(title: str) -> bytes:
    """The bytes of a block of the specification; what follows a `#` is a remark."""
    text = "\n".join(path.read_text() for path in sorted(SPEC.glob("disk*.md")))
    (lines,) = re.findall(rf"^```hex\n# {re.escape(title)}\n(.*?)^```$", text, re.M | re.S)
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines.splitlines()))


def test_the_segment_is_read_and_written() -> None:
    whole = block(SEGMENT)
    segment = decode_segment(whole, 0, KINDS)
    content = [bytes(frame) for frame in frames(segment, whole)]
    assert encode_segment(segment.revision, segment.parents, segment.entries, content, KINDS) == whole
    assert [entry.base for entry in segment.entries] == [BaseTag.parent(0), BaseTag.NONE, BaseTag.FULL_KEY]


def test_its_frames_hold_what_its_keys_say() -> None:
    whole = block(SEGMENT)
    segment = decode_segment(whole, 0, KINDS)
    texts = {git_key("git-sha1", b"\x01", PARENT): PARENT, git_key("git-sha1", b"\x03", README): README, b"": b""}
    assert segment.parents == (Parent(git_key("git-sha1", b"\x01", PARENT)),)
    decoded = []
    for entry, frame in zip(segment.entries, frames(segment, whole), strict=True):
        text = delta.decompress(entry.encoding, frame, entry.length, texts[segment.base_of(entry)])
        verify_record(KINDS[0], entry.key, entry.meta, text, entry.check)
        decoded.append(text)
    commit, tree, blob = segment.entries
    assert commit.key == segment.revision
    rules = system_of("git sha1")
    assert rules.own_parents(commit.key, commit.meta, decoded[0]) == (segment.parents[0].id,)
    needed = rules.references(0, commit.key, commit.meta, decoded[0])
    assert needed == ((0, tree.meta, (tree.key,)), (0, commit.meta, (segment.parents[0].id,)))
    assert rules.references(0, tree.key, tree.meta, decoded[1]) == ((0, blob.meta, [blob.key]), (0, tree.meta, []))
    assert decoded[2] == README.replace(b"Another", b"A second")


def test_the_graph_is_read_and_written() -> None:
    graph = AnnouncedGraph(block(GRAPH))
    assert list(graph) == [
        GraphNode(b"r1", (Parent(b"r0"),)),
        GraphNode(b"r2", (Parent(b"r1"),)),
        GraphNode(b"r3", (Parent(b"r2"), Parent(b"r1"), Parent(b"gh", True))),
    ]
    assert encode_graph(graph) == block(GRAPH)
