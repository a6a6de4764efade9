"""vcs.bzr.pages, vcs.bzr.system: for any bytes a reader gives their content or a `ValueError`."""

from __future__ import annotations

import contextlib
import hashlib

from bzr_samples import FIRST, SECOND
from hypothesis import given
from hypothesis import strategies as st

from smartserver.records.model import Key, Record
from smartserver.records.system import system_of
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


@given(st.sampled_from([*SAMPLES, NODE]), st.data())
def test_texts_with_something_wrong(text: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 60)))
    read_all(text[:start] + data.draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + text[stop:])


@given(st.sampled_from([FIRST[2], SECOND[2], FIRST[3]]), st.data())
def test_both_readers_of_a_leaf_agree(record: Record, data: st.DataObject) -> None:
    """A reader reads every page that the proof accepts, and finds the same texts in it."""
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


@given(st.lists(st.sampled_from([*SAMPLES, NODE, *PIECES]), max_size=4).map(b"".join), st.data())
def test_a_tree_of_any_pages(text: bytes, data: st.DataObject) -> None:
    """A walk ends with the entries or a `ValueError`, even if each page leads to the same pages."""
    pages = [text, FIRST[2].text, FIRST[3].text, NODE]

    def page(key: Key) -> bytes:
        return pages[hashlib.sha1(key).digest()[0] % len(pages)]

    tree = BzrTree(Inventory(b"r1", data.draw(st.sampled_from([b"root-id", b"x"])), SECOND[2].key, FIRST[3].key), page)
    for ask in (lambda: tree.find(b"lib/run"), lambda: list(tree.walk()), lambda: list(tree.walk(b"lib"))):
        with contextlib.suppress(ValueError):
            ask()


def test_long_nonsense_takes_no_longer_than_its_length() -> None:
    """The time is linear in the length; a reader that goes back in a million bytes would never finish."""
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
