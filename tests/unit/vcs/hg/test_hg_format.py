"""vcs.hg.format, kinds, delta: the texts, keys and differences of Mercurial's records, read as Mercurial does."""

from __future__ import annotations

import itertools
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mercurial.changelog import changelogrevision, decodeextra
from mercurial.encoding import fromlocal
from mercurial.mdiff import patch

from smartserver.records.check import make_check, verify_record
from smartserver.records.hunks import Hunk
from smartserver.records.system import system_of
from smartserver.vcs.hg.delta import FEW, delta, hunks
from smartserver.vcs.hg.format import (
    Changeset,
    ManifestLine,
    all_entries,
    changeset_manifest,
    copied_from,
    differing,
    differing_in,
    entries,
    file_text,
    keys,
    lines_of,
    lines_starting,
    read_changeset,
    read_line,
)
from smartserver.vcs.hg.kinds import (
    CHANGESET,
    FILE,
    NULL,
    checked_file_key,
    file_key,
    meta_of,
    node_of,
    parents_of,
    path_of,
)

A, B = b"\xaa" * 20, b"\xbb" * 20


def line(path: bytes, node: bytes = A, flag: bytes = b"") -> bytes:
    return path + b"\0" + node.hex().encode() + flag + b"\n"


def manifest(*lines: bytes) -> bytes:
    return b"".join(sorted(lines))


SAMPLE = A.hex().encode() + b"\nJo <jo@example.org>\n12 -3600 branch:b\nf1\nf2\n\nthe message\n\nmore"


def test_a_changeset_names_its_manifest() -> None:
    assert changeset_manifest(SAMPLE) == A
    assert changeset_manifest(bytes(40).replace(b"\0", b"0") + b"\nJo\n0 0\n\n") == NULL


@pytest.mark.parametrize(
    "text",
    [
        b"",
        SAMPLE[1:],
        SAMPLE[:10] + b" " * 30 + SAMPLE[40:],
        SAMPLE.replace(b"\n\n", b"\n"),
        b"z" + SAMPLE[1:],
        A.hex().encode() + b"\nJo\n\nmessage",
        *[SAMPLE.replace(b"12 -3600", date) for date in (b"", b"nan 0", b"inf 0", b"not a date")],
        SAMPLE.replace(b"12 -3600 branch:b", b"0"),
        SAMPLE.replace(b"12 -3600 branch:b", b"0 0 x"),
        SAMPLE.replace(b"branch:b", b"branch:b\0no colon"),
    ],
)
def test_what_is_no_changeset(text: bytes) -> None:
    """Mercurial cannot read these, or `hg log` ends with a traceback."""
    with pytest.raises(ValueError, match=r"changeset|hex"):
        changeset_manifest(text)


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
def test_extras_that_mercurial_cannot_read() -> None:
    """Every pull of such a changeset would end with a traceback."""
    refused = 0
    for each in itertools.product(b"\\x0\0:", repeat=5):
        extras = b":" + bytes(each).replace(b"\0", b"\0:")
        try:
            decodeextra(extras)
        except ValueError:
            refused += 1
            with pytest.raises(ValueError, match="escapes nothing"):
                changeset_manifest(SAMPLE.replace(b"branch:b", extras))
        else:
            assert changeset_manifest(SAMPLE.replace(b"branch:b", extras)) == A
    assert refused > 500


@pytest.mark.parametrize(
    ("text", "source", "content"),
    [
        (b"", None, b""),
        (b"no metadata", None, b"no metadata"),
        (b"\1\n\1\ntext", None, b"text"),
        (b"\1\n\1\n\1\ntext", None, b"\1\ntext"),
        (b"\1\ncopy: d/a b\ncopyrev: " + B.hex().encode() + b"\n\1\ntext\1\n", (b"d/a b", B), b"text\1\n"),
        (b"\1\nother: x\n\1\ncopy: a\n", None, b"copy: a\n"),
        (b"\1\ncopy: a\n\1\n", None, b""),
        (b"\1\ncopyrev: %b\n\1\n" % B.hex().encode(), None, b""),
    ],
)
def test_what_a_file_was_copied_from_and_its_content(
    text: bytes, source: tuple[bytes, bytes] | None, content: bytes
) -> None:
    assert (copied_from(text), file_text(text)) == (source, content)
    with pytest.raises(ValueError, match="have no end"):
        file_text(b"\1\n" + text.replace(b"\1", b""))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\1\ncopy: a\n", "no end"),
        (b"\1\ncopy\n\1\n", "cannot be read"),
        (b"\1\ncopy: a\ncopyrev: 12\n\1\n", "2 hex digits"),
    ],
)
def test_metadata_that_cannot_be_read(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        copied_from(text)


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (b"a\0", line(b"a")),
        (b"a/", line(b"a/b") + line(b"a/c", B, b"x")),
        (b"a/c\0", line(b"a/c", B, b"x")),
        (b"b/", b""),
        (b"c", line(b"c")),
        (b"/", b""),
        (line(b"a")[:-1] + b"\na", b""),
        (b"\n", b""),
    ],
)
def test_lines_that_start_alike(start: bytes, found: bytes) -> None:
    whole = manifest(line(b"a"), line(b"a/b"), line(b"a/c", B, b"x"), line(b"b"), line(b"c"))
    assert lines_starting(whole, start) == found
    assert lines_starting(whole, b"") == whole


def test_a_line() -> None:
    assert read_line(line(b"a/c", B, b"x")[:-1]) == ManifestLine(b"a/c", B, b"x")
    assert read_line(line(b"a")[:-1]).flag == b""
    with pytest.raises(ValueError, match="not found"):
        lines_starting(line(b"a")[:-1], b"a")


def test_a_manifest_names_files() -> None:
    text = line(b"a") + line(b"a/b", B, b"x") + line(b"a1", A, b"l")
    assert all_entries(text) == {b"a": A, b"a/b": B, b"a1": A}
    assert keys({b"a": A, b"b": NULL}) == [b"a\0" + A]
    assert lines_of(b"") == []
    assert entries([]) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (line(b"b") + line(b"a"), "not sorted"),
        (line(b"a") + line(b"a", B), "twice"),
        (line(b"a")[:-1], "no end"),
        (line(b"a", A, b"t"), "cannot be read"),
        (line(b""), "cannot be read"),
        (line(b"a", A[:-1]), "cannot be read"),
        (line(b"a\rb"), "cannot be read"),
        *[
            (line(path), "cannot be checked out")
            for path in (b"..", b"a/../b", b"/abs", b"a//b", b"a/", b"./a", b".hg/hgrc", b".HG/x", b".hg./x")
        ],
    ],
)
def test_what_is_no_manifest(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        all_entries(text)
    with pytest.raises(ValueError, match=why):
        differing(text, line(b"0"))


@pytest.mark.parametrize(
    "text",
    [
        *[
            SAMPLE.replace(b"12 -3600 branch:b", date)
            for date in (
                b"0 0", b"-1 -3600", b"1.5 7200", b"1115154970 25200.0", b"1115154970 UTC", b"1e9 ", b"1_0 1_0",
                b"1e300 %d" % 10**20, b"0 " + b"9" * 5_000, b"0 0 ", b"0 0 branch:a", b"0 0 a:b:c\0\0close:1\0",
                b"0 0 a:" + b":" * 5_000, b"0 0 branch:a\x1b[31mb\r", b"-1.75 0",
            )
        ],
        SAMPLE.replace(b"Jo <jo@example.org>", b""),
        SAMPLE.replace(b"Jo <jo@example.org>", b"\0\r\xc3\xbf"),
        SAMPLE.replace(b"f1\nf2\n\n", b"\n"),
        SAMPLE.replace(b"f1\nf2\n\n", b"\n\n"),
        SAMPLE.replace(A.hex().encode(), A.hex().upper().encode()),
    ],
)  # fmt: skip
def test_a_changeset_is_read_as_mercurial_reads_it(text: bytes) -> None:
    theirs = changelogrevision(None, text, None, False)
    assert theirs.extra  # It can be read.
    seconds, offset = theirs.date
    raw = fromlocal(theirs.user), int(seconds), offset, fromlocal(theirs.description)
    assert read_changeset(text) == Changeset(theirs.manifest, *raw)


def test_paths_that_look_like_those() -> None:
    fine = [b".hgtags", b"...", b"a/.hg/b", b"..a/b..", b"a.", b".a"]
    assert set(all_entries(manifest(*map(line, fine)))) == set(fine)


@pytest.mark.parametrize(("at", "odd", "why"), [(8, line(b"f07", B), "twice"), (7, line(b"f19x"), "not sorted")])
def test_a_wrong_line_beside_lines_that_are_the_same(at: int, odd: bytes, why: str) -> None:
    lines = [line(b"f%02d" % n) for n in range(20)]
    with pytest.raises(ValueError, match=why):
        differing(b"".join([*lines[:at], odd, *lines[at:]]), b"".join(lines))


@given(st.data())
def test_what_differs(data: st.DataObject) -> None:
    """Whatever lines are between, it is the difference of the two as tables, lines with another flag besides."""
    path = st.text("ab.", min_size=3, max_size=3).map(str.encode)
    rows = st.dictionaries(
        path, st.tuples(st.sampled_from([A, B, A[:-1] + b"\0"]), st.sampled_from([b"", b"x"])), max_size=8
    )
    old, new = data.draw(rows), data.draw(rows)
    for name, row in data.draw(rows).items():  # Most of a manifest is as it was.
        old[name] = new[name] = row
    texts = [manifest(*[line(name, *row) for name, row in each.items()]) for each in (new, old)]
    now, before = differing(*texts)
    assert now == {name: row[0] for name, row in new.items() if old.get(name) != row}
    assert before == {name: row[0] for name, row in old.items() if texts[1] and new.get(name) != row}
    if texts[1]:
        assert differing_in(hunks(*texts), texts[1]) == (now, before)


@pytest.mark.parametrize("hunk", [(2, 2, b""), (0, 0, b"a"), (0, 4, b"")])
def test_hunks_that_are_not_of_whole_lines_say_nothing(hunk: Hunk) -> None:
    assert differing_in([hunk], manifest(line(b"a"), line(b"b"))) is None


KINDS = system_of("hg sha1").kinds
LOW, HIGH = bytes([10]) * 20, bytes([200]) * 20


@pytest.mark.parametrize(
    ("parents", "meta"),
    [
        ((NULL, NULL), b""),
        ((LOW, NULL), LOW),
        ((LOW, HIGH), LOW + HIGH),
        ((NULL, HIGH), NULL + HIGH),
        ((HIGH, LOW), HIGH + LOW),
    ],
)
def test_meta_is_the_parents_and_no_more(parents: tuple[bytes, bytes], meta: bytes) -> None:
    assert meta_of(*parents) == meta
    assert parents_of(meta) == parents


@pytest.mark.parametrize("meta", [LOW[:19], LOW + b"\0", NULL, LOW + NULL, LOW + HIGH + b"\1"])
def test_meta_in_another_form_is_none(meta: bytes) -> None:
    with pytest.raises(ValueError, match=f"its meta of {len(meta)} bytes is not two parents"):
        parents_of(meta)


def test_the_key_of_a_changeset_is_its_node_and_nothing_else() -> None:
    node = node_of(LOW, b"text")
    kind = KINDS[CHANGESET]
    assert make_check(kind, node, LOW, b"text") == b""
    verify_record(kind, node, LOW, b"text", b"")
    for wrong in (b"x" + node, node[1:]):
        with pytest.raises(ValueError, match="hashes to"):
            verify_record(kind, wrong, LOW, b"text", b"")


def test_the_key_of_a_file_has_its_path() -> None:
    node = node_of(LOW, b"text")
    key = file_key(b"d/f", node)
    assert key == b"d/f\0" + node
    assert path_of(key) == b"d/f"
    assert checked_file_key(key, node) == key
    verify_record(KINDS[FILE], key, LOW, b"text", b"")
    with pytest.raises(ValueError, match="hashes to"):
        verify_record(KINDS[FILE], key, HIGH, b"text", b"")


@pytest.mark.parametrize("key", [LOW, b"\0" + LOW, b"path" + LOW, b"a\0b\0" + LOW, b"a\nb\0" + LOW, b""])
def test_keys_that_are_no_files(key: bytes) -> None:
    with pytest.raises(ValueError, match="a path, a NUL and a node"):
        path_of(key)


def test_of_nothing() -> None:
    assert delta(b"text", None) == struct.pack(">lll", 0, 0, 4) + b"text"
    assert delta(b"", b"") == delta(b"same\n", b"same\n") == b""


def test_a_line_in_the_middle() -> None:
    base = b"".join(b"line %d\n" % n for n in range(1000))
    text = base.replace(b"line 500\n", b"another\n")
    assert delta(text, base) == struct.pack(">lll", base.index(b"line 500"), base.index(b"line 501"), 8) + b"another\n"


def test_any() -> None:
    chance = random.Random(3)
    for _ in range(300):
        base = [b"line %d" % chance.randrange(50) for _ in range(chance.randrange(400))]
        text = list(base)
        for _ in range(chance.randrange(6)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randrange(4)] = [b"new %d" % chance.randrange(9)] * chance.randrange(4)
        old = b"\n".join(base) + chance.choice((b"", b"\n"))
        new = b"\n".join(text) + chance.choice((b"", b"\n"))
        difference = delta(new, old)
        assert patch(old, difference) == new
        assert len(difference) <= len(new) + FEW
