"""The blocks and tables of the disk specification: what is read, and what is written, by us and by Breezy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bzr_samples import FIRST, SECOND
from memory_transport import MemoryTransport

from smartserver.records import browse, delta
from smartserver.records.announced import AnnouncedGraph
from smartserver.records.browse import ChangeList, encode_revision
from smartserver.records.check import verify_record
from smartserver.records.delta import decompress
from smartserver.records.model import BaseTag, GraphNode, Kind, Parent, Tip
from smartserver.records.segment import decode_segment, encode_graph, encode_segment, frames
from smartserver.records.system import system_of
from smartserver.store import checkpoint, history, index_build, repack, summaries, table, upkeep
from smartserver.store import index as index_module
from smartserver.store import pack as pack_module
from smartserver.store import state as state_module
from smartserver.store.browse import LONGEST
from smartserver.store.checkpoint import _Head, checkpoint_path, decode_checkpoint, encode_checkpoint
from smartserver.store.format import LINE
from smartserver.store.history import LogEntry
from smartserver.store.index import Index
from smartserver.store.index_build import nowhere, rebuild
from smartserver.store.log import WAIT
from smartserver.store.pack import PackReader, PackWriter
from smartserver.store.record import (
    MARK,
    MAX_RECORD,
    NOTHING,
    Beginning,
    Change,
    Entry,
    Join,
    PackEntry,
    Record,
    decode_record,
    encode_record,
    hash_of,
)
from smartserver.store.state import decode_value, encode_value, first_state
from smartserver.store.summaries import Summaries, encode_summaries
from smartserver.store.trailer import Trailer, encode_trailer, trailer_behind
from smartserver.vcs.bzr.pages import read_node
from smartserver.vcs.git.system import git_key
from transports.base import BytesFile

SPEC = Path(__file__).parents[3] / "doc" / "spec"
KINDS = (Kind("text", "blake2b-128", True),)
PACK = "a pack with two revisions"
INDEX = "the index of the pack with two revisions"
NAME = bytes(range(16))


def text() -> str:
    """The whole specification."""
    return (SPEC / "disk.md").read_text()


def blocks() -> dict[str, bytes]:
    """Every block by its title: its first line is `# title`, what follows a `#` is a remark."""
    found: dict[str, bytes] = {}
    for block in re.findall(r"^```hex\n(.*?)^```$", text(), re.M | re.S):
        lines = block.splitlines()
        title = lines[0].removeprefix("# ")
        assert title not in found, f"two blocks are called {title!r}"
        found[title] = bytes.fromhex("".join(line.partition("#")[0] for line in lines))
    return found


NOW = 1_700_000_000_000
ONE = Record(number=1, parent=NOTHING, time=NOW, random=NAME)
VALUE = encode_value((Tip(bytes(range(0x20, 0x34))),))
ENTRY = Entry(
    NAME,
    "joe",
    b"ok",
    (
        Change("refs", b"refs/heads/main", None, VALUE),
        Change("settings", b"HEAD", None, b"refs/heads/main"),
    ),
    PackEntry(b"\x11" * 16, 300, b"\x22" * 16, 200, b"\x33" * 16, 1, 3),
    Beginning(bytes(range(0xA0, 0xB0)), "git sha1", (Kind("object", "git-sha1", True),)),
    options=("ci",),
)
"""The records in the blocks of the log."""


def test_the_records() -> None:
    one, two = (blocks()[title] for title in ("record 1", "a record that creates a repository with a push"))
    record = Record(number=2, parent=hash_of(one), time=NOW + 1, entries=(ENTRY,))
    assert (encode_record(ONE), decode_record(one, "1")) == (one, ONE)
    assert (encode_record(record), decode_record(two, "2")) == (two, record)


def test_the_checkpoint() -> None:
    two, content = blocks()["a record that creates a repository with a push"], blocks()["the checkpoint of that record"]
    state = first_state(hash_of(encode_record(ONE))).after(decode_record(two, "2"), hash_of(two))
    assert encode_checkpoint(state) == content
    assert encode_checkpoint(decode_checkpoint(content, "checkpoint")) == content
    assert checkpoint_path(2, state.hash) == f"checkpoints/0000000002-{hash_of(two).hex()}"
    assert (decode_checkpoint(content, "checkpoint").settings, state.refs()) == (
        {"HEAD": b"refs/heads/main"},
        {b"refs/heads/main": (Tip(bytes(range(0x20, 0x34))),)},
    )


def test_the_trailer() -> None:
    content = blocks()["the trailer of that push"]
    trailer = Trailer(bytes(range(0xA0, 0xB0)), 1, hash_of(blocks()["record 1"]), ENTRY)
    assert encode_trailer(trailer) == content
    assert trailer_behind(content, lambda offset, size: b"", 0, "pack") == trailer


def test_the_summaries() -> None:
    content = blocks()["the summaries of two revisions"]
    entry = PackEntry(b"\x11" * 16, 300, b"\x22" * 16, 200, b"\x33" * 16, 2, 3)
    changes, none = ChangeList(), ChangeList()
    changes.add(browse.ChangedPath("A", b"a"))
    rows = (
        encode_revision(browse.LogEntry("aa", "Joe", 1_700_000_000, 60, [], "one\n"), changes),
        encode_revision(browse.LogEntry("bb", "Joe", 1_700_000_001, 60, ["aa"], "two\n"), none),
    )
    assert b"".join(encode_summaries([rows], entry, 3)) == content
    assert Summaries(BytesFile(content), entry).block(0, messages=True, changes=True) == rows
    said = text()
    assert "each pack of 64 revisions or more" in said
    assert (summaries.LEAST, summaries.BLOCK, summaries.GROUP, LONGEST) == (64, 256, 32, 16 << 10)


def test_the_format_file_and_the_value_of_a_ref() -> None:
    assert blocks()["the format file"] == LINE
    heads = (Tip(b"h1"), Tip(b"h2", b"a", True))
    assert decode_value(blocks()["the value of a ref with two heads"]) == heads
    assert encode_value(heads) == blocks()["the value of a ref with two heads"]


def test_the_fields_are_listed_in_the_order_they_lie() -> None:
    for heading, struct in (("| # | record | type | meaning |", Record), ("| # | entry | type | meaning |", Entry)):
        rows = table_after("The repository's folder", heading)
        assert [row[1] for row in rows] == list(struct.__struct_fields__)
        assert [row[0] for row in rows] == [str(number) for number in range(len(rows))]
    said = " ".join(text().split())
    begun = {"A *pack* is": PackEntry, "": Join, "An entry is kept as": LogEntry, "The head is": _Head}
    for begins, kind in begun.items():
        fields = [word.replace("_", " ") for word in kind.__struct_fields__]
        found = re.findall(re.escape(begins) + r" ?\[([^]]*)\]", said)
        listed = [[re.split(" bin|:", part.strip())[0] for part in each.split(",")] for each in found]
        assert fields in listed, kind


def reader() -> PackReader:
    return PackReader(BytesFile(blocks()[PACK]), len(blocks()[PACK]), "pack")


def test_every_block_of_the_text_has_a_test() -> None:
    named = "".join(path.read_text() for path in (SPEC.parents[1] / "tests").rglob("*.py"))
    alone = [title for title in blocks() if f'"{title}"' not in named]
    assert not alone


def test_the_pack_is_read_and_written() -> None:
    pack = reader()
    assert pack.kinds == KINDS
    segments = dict(pack.segments())
    decoded = [decode_segment(segment, 0, KINDS) for segment in segments.values()]
    assert list(segments) == [31, 91]
    assert [segment.parents for segment in decoded] == [(Parent(b"r0"),), (Parent(b"r1"), Parent(b"gh", True))]
    assert pack.trailer() == blocks()[PACK][-16:]
    text = b""
    added = (b"alpha\nbravo\ncharlie\ndelta\n", b"echo\n")
    for segment, content, more in zip(decoded, segments.values(), added, strict=True):
        (entry,), (frame,) = segment.entries, frames(segment, content)
        expected, text = text + more, decompress(entry.encoding, frame, entry.length, text)
        assert text == expected
    transport = MemoryTransport()
    writer = PackWriter(transport.create("again"), KINDS)
    for content in segments.values():
        writer.append(content)
    writer.finish()
    assert transport.get("again") == blocks()[PACK]


def test_the_index_is_that_of_the_pack() -> None:
    assert rebuild(reader(), nowhere) == blocks()[INDEX]
    index = Index.of(blocks()[INDEX], "index")
    assert index.outside == (b"r0",)
    assert (index.records, index.segments) == (2, 2)


def table_after(heading: str, start: str) -> list[list[str]]:
    """The cells of the table that begins with the line `start` below a heading."""
    lines = text().split(f"## {heading}\n", 1)[1].split(start, 1)[1].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_columns_are_listed_in_the_order_they_lie() -> None:
    rows = table_after("Indexes", "| column | items | item | |")
    bits, records, segments, parents, external, outside = 2, 40, 50, 60, 70, 80
    names = {"R": records, "S": segments, "P": parents, "B": external, "O": outside, "2^f": 1 << bits}
    widths = {"u8": 1, "u32": 4, "u64": 8, "20 bytes": 20, "41 bytes": 41}
    listed = [
        (sum(names[part] if part in names else int(part) for part in items.split(" + ")), widths[item])
        for _, items, item, _ in rows
    ]
    counts = index_module._counts(bits, records, segments, parents, external, outside)
    assert listed == [(count, part[1]) for count, part in zip(counts, index_module._COLUMNS, strict=True)]
    row = [cells[0] for cells in table_after("Indexes", "| bytes of a row | |")]
    assert [{"Q": "u64", "I": "u32", "B": "u8"}[form] for form in index_module.ROW.format[1:]] == row
    assert [row[0] for row in table_after("Indexes", "| table | |")] == ["ids", "external bases", "outside parents"]


@pytest.mark.parametrize(
    "said",
    [
        f"magic `{pack_module.MAGIC.decode()}`",
        f"magic `{index_module.MAGIC.decode()}`",
        f"joins when there are more than {repack.MOST_PACKS} others",
        f"no more than {repack.FEW_PACKS} are left",
        f"never more than {repack.MOST_PACKS + 1} packs",
        f"leave those of more than {repack.LARGE >> 30} GiB alone",
        f"{index_module.NO_BASE:#X} for none".replace("0X", "0x"),
        f"earlier pack {index_module.EXTERNAL:#x} + an entry of the external bases",
        f"earlier pack {index_module.OUTSIDE:#x} + an entry of the outside parents",
        "at most 2^31 - 2 records",
        f"| bytes of a record | {MAX_RECORD:,} |",
        f"{table.OVERHEAD} for each, but {table.LEAST_ENTRY} at least for each entry of a table",
        f" | {state_module.MAX_STATE:,}, unless it becomes fewer |",
        f"| maps | {state_module.MAX_MAPS} |",
        f"| bytes of the history | {history.KEPT_BYTES:,}, or its newest entry |",
        f"more than {history.KEPT_ENTRIES:,} and the oldest is more than {history.KEPT // 3_600_000} hours older",
        f"the earlier of its time and the record's + {history.CLOCK_MARGIN // 60_000} minutes",
        f"the first {MARK} bytes of its record's hash",
        f"are {checkpoint.FEW} and take 1/{checkpoint.SHARE} of its size, or are {checkpoint.MANY:,}",
        f"after {WAIT:.0f} seconds it may give up",
        f"may be deleted {upkeep.KEPT // 3600} hours after the time in *dropped*",
    ],
)
def test_numbers_in_the_text_are_those_of_the_source(said: str) -> None:
    assert said in " ".join(text().split())
    assert checkpoint.FLOOR_AGE == 3600
    assert index_build.MAX_ROWS == (1 << 31) - 2


OBJECTS = (Kind("object", "git-sha1", True),)
SEGMENT = "a segment"
GRAPH = "an announced graph"

README = b"# Title\n\nOne line.\nAnother line.\nA third line, and more of it.\n"
PARENT = (
    b"tree c68dd430d162917dc363748f699449d9d3e5dbf7\n"
    b"author A U Thor <a@example.org> 1000000000 +0000\n"
    b"committer A U Thor <a@example.org> 1000000000 +0000\n\nFirst\n"
)


def test_the_segment_is_read_and_written() -> None:
    whole = blocks()[SEGMENT]
    segment = decode_segment(whole, 0, OBJECTS)
    content = [bytes(frame) for frame in frames(segment, whole)]
    assert encode_segment(segment.revision, segment.parents, segment.entries, content, OBJECTS) == whole
    assert [entry.base for entry in segment.entries] == [BaseTag.parent(0), BaseTag.NONE, BaseTag.FULL_KEY]


def test_its_frames_hold_what_its_keys_say() -> None:
    whole = blocks()[SEGMENT]
    segment = decode_segment(whole, 0, OBJECTS)
    texts = {git_key("git-sha1", b"\x01", PARENT): PARENT, git_key("git-sha1", b"\x03", README): README, b"": b""}
    assert segment.parents == (Parent(git_key("git-sha1", b"\x01", PARENT)),)
    decoded = []
    for entry, frame in zip(segment.entries, frames(segment, whole), strict=True):
        text = delta.decompress(entry.encoding, frame, entry.length, texts[segment.base_of(entry)])
        verify_record(OBJECTS[0], entry.key, entry.meta, text, entry.check)
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
    graph = AnnouncedGraph(blocks()[GRAPH])
    assert list(graph) == [
        GraphNode(b"r1", (Parent(b"r0"),)),
        GraphNode(b"r2", (Parent(b"r1"),)),
        GraphNode(b"r3", (Parent(b"r2"), Parent(b"r1"), Parent(b"gh", True))),
    ]
    assert encode_graph(graph) == blocks()[GRAPH]


def text_of_breezy(title: str) -> bytes:
    """The text a block of the specification shows."""
    (lines,) = re.findall(rf"^```bzr\n# {re.escape(title)}\n(.*?)^```$", text(), re.M | re.S)
    return str(lines).replace("\u2400", "\0").encode()


@pytest.mark.parametrize(
    ("title", "content"),
    [
        ("an inventory", SECOND[1].text),
        ("a leaf of id_to_entry", SECOND[2].text),
        ("a leaf of parent_id_basename_to_file_id", FIRST[3].text),
    ],
)
def test_the_texts_are_breezys(title: str, content: bytes) -> None:
    assert text_of_breezy(title) == content


def test_the_revision_is_breezys() -> None:
    assert text_of_breezy("a revision, cut into lines before its items").replace(b"\n", b"") == SECOND[0].text


def test_a_page_of_pages_is_read() -> None:
    node = read_node(text_of_breezy("a page of pages"))
    assert node == (2, b"", {b"7": SECOND[2].key, b"@": FIRST[2].key, b"G": FIRST[3].key})


@pytest.mark.parametrize(("vcs", "title"), [("bzr 2a", "Records of Breezy"), ("hg sha1", "Records of Mercurial")])
def test_the_kinds_are_those_of_the_table(vcs: str, title: str) -> None:
    section = re.split(r"^##", text().partition(f"### {title}\n")[2], maxsplit=1, flags=re.M)[0]
    rows = re.findall(r"^\| (\d) \| `(\w+)` \| `([\w-]+)` \| (yes|no) \|", section, re.M)
    kinds = enumerate(system_of(vcs).kinds)
    assert rows == [(str(place), kind.name, kind.check, "yes" if kind.base else "no") for place, kind in kinds]
