"""vcs.bzr.pages, vcs.bzr.system: whatever the bytes, a reader gives what they say or a `ValueError`."""

from __future__ import annotations

import contextlib
import hashlib

from bzr_samples import FIRST, SECOND
from hypothesis import given, settings
from hypothesis import strategies as st

from smartserver.records.model import Key, Record
from smartserver.records.system import system_of
from smartserver.vcs.bzr.changes import leaf_changes
from smartserver.vcs.bzr.kinds import CHK
from smartserver.vcs.bzr.pages import is_node, leaf_texts, read_entry, read_leaf
from smartserver.vcs.bzr.revision import Inventory
from smartserver.vcs.bzr.tree import BzrTree

RULES = system_of("bzr 2a")
PIECES = [
    b"\0",
    b"\n",
    b"0",
    b"4",
    b"5",
    b"7",
    b"e",
    b"l",
    b"d",
    b"i",
    b": ",
    b"chkleaf:\n",
    b"chknode:\n",
    b"999999999",
]
SAMPLES = [record.text for record in FIRST + SECOND]
NODE = b"chknode:\n65536\n1\n9\n\n" + b"".join(b"%c\0sha1:%040x\n" % (place, place) for place in range(20, 30))


def read_all(text: bytes) -> None:
    for kind in range(5):
        with contextlib.suppress(ValueError):
            RULES.references(kind, b"key", b"", text)
    for read in (lambda: RULES.own_parents(b"key", b"", text), lambda: read_leaf(text), lambda: read_entry(text)):
        with contextlib.suppress(ValueError):
            read()


@given(st.binary())
def test_any_bytes(text: bytes) -> None:
    read_all(text)


@given(st.lists(st.sampled_from([*PIECES, *SAMPLES]) | st.binary(max_size=3)))
def test_pieces_of_texts(pieces: list[bytes]) -> None:
    read_all(b"".join(pieces))


@given(st.sampled_from([*SAMPLES, NODE]), st.data())
def test_texts_with_something_wrong(text: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 60)))
    read_all(text[:start] + data.draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + text[stop:])


@given(st.sampled_from([FIRST[2], SECOND[2], FIRST[3]]), st.data())
def test_both_readers_of_a_leaf_agree(record: Record, data: st.DataObject) -> None:
    """What the proof takes a reader reads, and finds the same texts in it."""
    at = data.draw(st.integers(0, len(record.text) - 1))
    text = record.text[:at] + data.draw(st.sampled_from(PIECES)) + record.text[at + 1 :]
    try:
        texts = leaf_texts(text)
    except ValueError:
        return
    with contextlib.suppress(ValueError):  # The names of a folder may come twice: that is for who reads them.
        leaf = read_leaf(text)
        if leaf.parts == 1:
            entries = [read_entry(value) for value in leaf.items.values()]
            assert {entry.text_key: entry.sha1 for entry in entries} == texts
            assert all(read_entry(value).file_id == file_id for file_id, value in leaf.items.items())


FILE = b"%b\0007\nfile: %b%b\n%b\n%b\n%b\n" + b"0" * 40 + b"\n7\nN\n"
FOLDER = b"%b\0004\ndir: %b%b\n%b\n%b\n%b\n"
LINK = b"%b\0005\nsymlink: %b%b\n%b\n%b\n%b\n\n"
NAME = b"%b\0%b\0001\n%b\n"
words = st.sampled_from([b"", b"a", b"b", b"4", b"dir: a", b"aa"]) | st.integers(10, 40).map(b"%d".__mod__)


@st.composite
def pages(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A leaf that can be read, of either map, and one that was made of it: items new, changed, moved, doubled, cut."""
    prefix = draw(st.sampled_from([b"", b"a"]))
    if entries := draw(st.booleans()):
        keys = st.lists(words.filter(lambda word: bool(prefix + word)), unique=True, max_size=20)
        kinds = st.sampled_from([FILE, FOLDER, LINK])
        items = [draw(kinds) % (key, prefix, key, draw(words), draw(words), b"r1") for key in draw(keys)]
    elif draw(st.booleans()):
        places = st.lists(st.tuples(words, words), unique=True, max_size=20)
        items = [NAME % (*place, draw(st.sampled_from([b"x", b"r1"]))) for place in draw(places)]
    else:
        prefix += b"\0"
        items = [b"%b\0001\nr1\n" % name for name in draw(st.lists(words, unique=True, max_size=20))]
    old = items[: draw(st.integers(0, len(items)))]
    start = draw(st.integers(0, len(old)))
    stop = draw(st.integers(start, len(old)))
    others = [*items, *[item.replace(b"r1", b"r2") for item in items]]
    new = [*old[:start], *(draw(st.lists(st.sampled_from(others), max_size=4)) if others else []), *old[stop:]]
    made = []
    for items in (old, new):
        said = len(items) + (draw(st.sampled_from([0, 0, 0, 0, 1])) if items is new else 0)
        made.append(b"chkleaf:\n1\n%d\n%d\n%b\n%b" % (1 if entries else 2, said, prefix, b"".join(items)))
    if draw(st.booleans()):
        return made[0], made[1]
    at = draw(st.integers(0, len(made[1])))
    return made[0], made[1][:at] + draw(st.sampled_from([b"r2", *PIECES])) + made[1][at + draw(st.integers(0, 2)) :]


@given(pages())
@settings(max_examples=300)
def test_what_cannot_be_read_whole_cannot_be_read_from_its_changes(made: tuple[bytes, bytes]) -> None:
    """The proof of a push rests on it: what is not looked at was proved with the page it rests on, all else is read."""
    old, new = made
    before = set(leaf_texts(old))
    try:
        now = set(leaf_texts(new))
    except ValueError:
        with contextlib.suppress(ValueError):
            assert leaf_changes(new, old) is None
        return
    found = leaf_changes(new, old)
    if found is not None:
        assert (set(found.now), set(found.before)) == (now - before, before - now)


@given(st.lists(st.sampled_from([*SAMPLES, NODE, *PIECES]), max_size=4).map(b"".join), st.data())
def test_a_tree_of_any_pages(text: bytes, data: st.DataObject) -> None:
    """A walk ends, with what is there or a `ValueError`, also where each page leads to the same pages."""
    pages = [text, FIRST[2].text, FIRST[3].text, NODE]

    def page(key: Key) -> bytes:
        return pages[hashlib.sha1(key).digest()[0] % len(pages)]

    tree = BzrTree(Inventory(b"r1", data.draw(st.sampled_from([b"root-id", b"x"])), SECOND[2].key, FIRST[3].key), page)
    for ask in (lambda: tree.find(b"lib/run"), lambda: list(tree.walk()), lambda: list(tree.walk(b"lib"))):
        with contextlib.suppress(ValueError):
            ask()


def test_long_nonsense_takes_no_longer_than_its_length() -> None:
    """A million bytes of each form that ends in the middle: what went back over them would not come to an end."""
    many = 100_000
    for text in (
        b"chkleaf:\n65536\n1\n%d\n\n" % many + b"a\0004\ndir: a\n\n\nr1\n" * many + b"x",
        b"chkleaf:\n65536\n2\n%d\n\n" % many + b"a\0b\0001\nx\n" * many + b"x",
        b"chkleaf:\n65536\n1\n1\n\n" + b"a\0" * many,
        b"chkleaf:\n65536\n1\n%d\n\na\0004\ndir: a\n\n" % many + b"x\0" * (many - 1) + b"\nr1\n",
        b"chkleaf:\n65536\n2\n%d\na\0\n" % many + b"x\0" * (many - 1) + b"x\0001\nx\n",
        b"chkleaf:\n65536\n2\n%d\na\0\nx\0001\n" % many + b"x\0" * (many - 1) + b"\n" * (2 * many - 1),
        b"chkleaf:\n65536\n1\n1\n\n" + b"a\0005\nsymlink: a\n" + b"\n" * many,
        b"chkleaf:\n65536\n1\n%d\n" % many + b"x" * many + b"\n" + b"a" * many,
        b"chknode:\n65536\n1\n1\n\n" + (b"a\0sha1:" + b"0" * 40 + b"\n") * many + b"x",
        b"l" * many,
        b"l" + b"l6:formati10ee" * many,
        b"ll10:propertiesd" + b"1:a1:b" * many + b"eee",
        b"ll10:parent-idsl" + b"1:a" * many,
        b"ll6:formati" + b"1" * many + b"eee",
        b"ll" + b"1" * many + b":",
        b"chkinventory:\n" + b"\n" * many,
    ):
        read_all(text)
    assert not is_node(b"")
    assert CHK in RULES.content_keys
