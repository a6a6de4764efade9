"""Parents and references of Mercurial's records."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import pytest
from lines import Lines

from smartserver.records.model import GraphNode, Parent, Record, Tip
from smartserver.records.system import EntryRight, MapType, system_of
from smartserver.vcs.hg.kinds import CHANGESET, EVOLUTION, FILE, MANIFEST, NULL, PUBLISHING
from smartserver.vcs.hg.markers import key_of
from smartserver.vcs.hg.system import HG, HgSystem, is_publishing

RULES = HgSystem()

A, B, C, D = (bytes([n]) * 20 for n in (0xA1, 0xB2, 0xC3, 0xD4))


def line(path: bytes, node: bytes) -> bytes:
    return path + b"\0" + node.hex().encode() + b"\n"


def changeset(manifest: bytes) -> bytes:
    return manifest.hex().encode() + b"\nJo\n0 0\nf\n\nmessage"


def needs(kind: int, key: bytes, meta: bytes, text: bytes) -> dict[int, list[bytes]]:
    return {wanted: list(found) for wanted, meta, found in RULES.references(kind, key, meta, text) if found}


def test_it_is_registered() -> None:
    assert type(system_of(HG)) is HgSystem
    assert not RULES.ghosts
    assert RULES.content_keys == {CHANGESET, MANIFEST, FILE}
    assert all(RULES.may_refer(kind, b"") for kind in RULES.content_keys)
    assert [RULES.is_list(kind, b"") for kind in (CHANGESET, MANIFEST, FILE)] == [True, True, False]


def test_a_changeset_needs_its_manifest() -> None:
    assert needs(CHANGESET, C, A, changeset(B)) == {MANIFEST: [B]}
    assert needs(CHANGESET, C, A, changeset(NULL)) == {}


def test_a_manifest_needs_its_files_and_parents() -> None:
    text = line(b"a", A) + line(b"b/c", B)
    assert needs(MANIFEST, C, A + B, text) == {FILE: [b"a\0" + A, b"b/c\0" + B], MANIFEST: [A, B]}
    assert needs(MANIFEST, C, b"", b"") == {}


def test_a_file_needs_its_parents_and_not_what_it_was_copied_from() -> None:
    """To Mercurial that may be on another branch, or missing."""
    copied = b"\1\ncopy: other\ncopyrev: %b\n\1\ntext" % C.hex().encode()
    assert needs(FILE, b"d/f\0" + C, A + B, b"text") == {FILE: [b"d/f\0" + A, b"d/f\0" + B]}
    assert needs(FILE, b"d/f\0" + C, NULL + B, copied) == {FILE: [b"d/f\0" + B]}
    assert needs(FILE, b"d/f\0" + C, A, copied) == {FILE: [b"d/f\0" + A]}
    assert needs(FILE, b"d/f\0" + C, b"", copied) == needs(FILE, b"d/f\0" + C, b"", b"text") == {}
    with pytest.raises(ValueError, match="hex digits"):
        needs(FILE, b"d/f\0" + C, b"", copied.replace(C.hex().encode(), b"c"))


def test_a_version_that_was_taken_away() -> None:
    """Every pull would end with it."""
    for text in (b"\1\ncensored: x\n\1\n", b"\1\ncensored: x\n\1\nmore"):
        with pytest.raises(ValueError, match="taken away"):
            needs(FILE, b"f\0" + A, b"", text)
    assert needs(FILE, b"f\0" + A, b"", b"\1\nx: censored: \n\1\n") == {}


def test_whether_a_repository_publishes() -> None:
    assert [RULES.setting_problem(PUBLISHING, value) for value in (b"yes", b"no")] == ["", ""]
    assert RULES.setting_problem(PUBLISHING, b"maybe") == "expected yes or no"
    assert RULES.setting_problem("other", b"maybe") == ""
    assert [is_publishing(settings) for settings in ({}, {PUBLISHING: b"yes"}, {PUBLISHING: b"no"})] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ({}, {PUBLISHING: b"no"}, True),
        ({PUBLISHING: b"yes", EVOLUTION: b"yes"}, {PUBLISHING: b"no"}, True),
        ({PUBLISHING: b"no"}, {}, False),
        ({PUBLISHING: b"no"}, {PUBLISHING: b"no", EVOLUTION: b"yes"}, False),
        ({}, {EVOLUTION: b"yes"}, False),
    ],
)
def test_what_was_public_stays_so(old: dict[str, bytes], new: dict[str, bytes], kept: bool) -> None:
    entries = {A.hex().encode(): b"1", B.hex().encode(): b"1"}
    assert RULES.settings_entries(old, new, [A, B]) == ({"public": entries} if kept else {})


@pytest.mark.parametrize(
    ("settings", "public", "kept"),
    [
        ({PUBLISHING: b"no"}, {3}, {2}),  # It is on another branch, which has 2 of this one.
        ({PUBLISHING: b"no"}, {5}, {5}),
        ({PUBLISHING: b"no"}, {0, 4}, {4}),
        ({PUBLISHING: b"no"}, {0, 1}, {1}),
        ({PUBLISHING: b"no"}, set(), set()),
        ({}, {3}, set()),
    ],
)
@pytest.mark.parametrize("asked", [1, 2])
def test_what_is_public_of_one_branch(settings: dict[str, bytes], public: set[int], kept: set[int], asked: int) -> None:
    """0 to 2 are a line, 3 and 4 its children; 5 is the child of 4, and the tip that is copied."""
    parents: dict[int, tuple[int, ...]] = {0: (), 1: (0,), 2: (1,), 3: (2,), 4: (2,), 5: (4,)}
    nodes = {number: bytes([number]) * 20 for number in parents}

    def reached(number: int) -> set[int]:
        return {number}.union(*map(reached, parents[number]))

    def beyond(tips: Sequence[bytes], others: Sequence[bytes]) -> list[GraphNode]:
        had = set().union(*[reached(each[0]) for each in list(others)[:asked]])
        left = set().union(*[reached(each[0]) for each in tips]) - had
        return [GraphNode(nodes[at], tuple([Parent(nodes[each]) for each in parents[at]])) for at in sorted(left)]

    entries = {nodes[each].hex().encode(): b"1" for each in sorted(public)}
    found = RULES.part_entries(settings, {"public": entries}, [nodes[5]], beyond)
    whole = {bytes.fromhex(key.decode())[0] for key in found.get("public", {})}
    assert set().union(*map(reached, whole)) == set().union(*map(reached, kept))


def test_what_a_manifest_changes() -> None:
    old = line(b"a", A) + line(b"b", B) + line(b"c", C)
    new = line(b"a", A) + line(b"b", C) + line(b"d", A)
    changes = RULES.changes(Record(MANIFEST, C, A, new), Record(MANIFEST, A, b"", old))
    assert changes == (
        ((FILE, None, [b"b\0" + C, b"d\0" + A]), (MANIFEST, None, (A,))),
        ((FILE, None, [b"b\0" + B, b"c\0" + C]),),
    )
    assert RULES.changes(Record(FILE, b"a\0" + C, A, b""), Record(FILE, b"a\0" + A, b"", b"")) is None


@pytest.mark.parametrize(
    "name", [b"default", "\u00fc b".encode(), b"a:b", b" a", b"a\n", b"a\rb", b"\x1b[31m", b"\xff"]
)
def test_every_name_may_be_that_of_a_branch(name: bytes) -> None:
    """Repositories that were made long ago have such branches, and Mercurial pushes them."""
    assert RULES.ref_problem(name) == ""


MARKER = struct.pack(">IdhHBBB", 59, 0.0, 0, 0, 1, 3, 0) + A + B


@pytest.mark.parametrize(
    ("table", "key", "value", "why"),
    [
        ("obsolete", key_of(MARKER), MARKER, ""),
        ("obsolete", key_of(MARKER)[:-1] + b"x", MARKER, "not the key"),
        ("obsolete", key_of(MARKER), MARKER[1:], "marker"),
        ("public", A.hex().encode(), b"1", ""),
        ("public", A, b"1", "not the id"),
        ("public", A.hex().encode(), b"1" * 1000, "not 1"),
        ("another", b"x", b"y", ""),
        # Bookmarks that would end every pull.
        *[
            ("bookmarks", key, value, why)
            for key, value, why in (
                (b"mark", A, ""), ("bü".encode(), NULL, ""), (b"a:b", A, ""), (b" a\x1b[31m", A, ""),
                (b"x\ny", A, "end of a line"), (b"x\ty", A, "tab"), (b"x\ry", A, "end of a line"),
                (b"x ", A, "space at"), (b"b\xfc", A, "not UTF-8"), (b"x", A[1:], "on 19 bytes, expected the 20"),
                (b"x", b"", "on 0"), (b"x", A.hex().encode(), "on 40"),
            )
        ],
    ],
)  # fmt: skip
def test_entries_that_are_none(table: str, key: bytes, value: bytes, why: str) -> None:
    said = RULES.entry_problem(table, key, value)
    assert why in said
    assert bool(said) is bool(why)


def test_what_its_maps_are() -> None:
    """Else the first entry could say that a map has ids, and every later push would be refused."""
    assert RULES.maps == dict.fromkeys(("bookmarks", "obsolete", "public"), MapType("opaque"))


@pytest.mark.parametrize(
    ("table", "key", "value", "revision"),
    [
        ("bookmarks", b"mark", A, A),
        ("bookmarks", b"mark", bytes(20), b""),
        ("public", A.hex().encode(), b"1", A),
        ("obsolete", A.hex().encode(), b"", b""),  # A marker may come before, or without, what it replaces.
    ],
)
def test_which_changeset_must_be_stored_for_an_entry(table: str, key: bytes, value: bytes, revision: bytes) -> None:
    assert RULES.entry_revision(table, key, value) == revision


class Maps:
    """Changesets A, B and C in a row, D beside them; A, B and D have markers."""

    settings: Mapping[str, bytes] = {"publishing": b"no", "evolution": b"yes"}

    def __init__(self, bookmark: bytes = NULL, public: bytes = NULL) -> None:
        self.maps = {"bookmarks": {b"mark": bookmark}, "public": {public.hex().encode(): b"1"}}

        self.charged = 0

    def charge(self, steps: int) -> None:
        self.charged += steps

    def map(self, name: str) -> Mapping[bytes, bytes]:
        return self.maps[name]

    def has_revision(self, revision: bytes) -> bool:
        return revision in (A, B, C, D)

    def is_ancestor(self, ancestor: bytes, revision: bytes) -> bool:
        return ancestor == revision or (ancestor, revision) in ((A, B), (A, C), (B, C))

    def with_entries(self, name: str, firsts: Sequence[bytes]) -> list[bytes]:
        return [each for each in firsts if name == "obsolete" and bytes.fromhex(each.decode()) in (A, B, D)]

    def beyond(self, revisions: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
        below = {A: (A,), B: (A, B), C: (A, B, C), D: (D,)}
        return [each for each in revisions if not any(each in below.get(other, ()) for other in others)]


@pytest.mark.parametrize(
    ("maps", "gone", "stays"),
    [
        (Maps(), {A, B, D}, set()),
        (Maps(bookmark=B), {A, D}, {B}),
        (Maps(public=A), {B, D}, set()),
        (Maps(public=C), {D}, set()),
        (Maps(bookmark=D, public=D), {A, B}, set()),
    ],
)
def test_tips_that_others_replace(maps: Maps, gone: set[bytes], stays: set[bytes]) -> None:
    assert RULES.superseded(maps, [A, B, C, D]) == (gone, stays)
    assert RULES.superseded(maps, [C]) == ((), ())


WRITE, CREATE, FORCE, ADMIN = EntryRight.WRITE, EntryRight.CREATE, EntryRight.FORCE, EntryRight.ADMIN
ALL_PUBLIC = {"publishing": b"yes"}


@pytest.mark.parametrize(
    ("table", "old", "new", "right"),
    [
        ("bookmarks", None, A, CREATE),
        ("bookmarks", A, B, WRITE),
        ("bookmarks", B, A, FORCE),
        ("bookmarks", B, D, FORCE),
        ("bookmarks", A, None, FORCE),
        ("bookmarks", A, bytes(20), FORCE),
        ("bookmarks", bytes(20), A, WRITE),
        ("bookmarks", bytes(20), None, FORCE),
        ("public", None, b"1", WRITE),
        ("public", b"1", None, ADMIN),
        ("obsolete", None, b"marker", WRITE),
        ("obsolete", b"marker", None, ADMIN),
    ],
)
def test_rights_to_change_entries(table: str, old: bytes | None, new: bytes | None, right: EntryRight) -> None:
    maps = Maps()
    maps.settings = ALL_PUBLIC
    assert RULES.entry_rights(maps, table, [(old, new)]) == [right]


def test_a_bookmark_may_leave_a_draft_that_others_replace() -> None:
    assert RULES.entry_rights(Maps(bookmark=B), "bookmarks", [(B, D), (B, None), (C, D)]) == [WRITE, FORCE, FORCE]
    assert RULES.entry_rights(Maps(bookmark=B, public=B), "bookmarks", [(B, D)]) == [FORCE]


def test_what_is_public_is_looked_at_once_for_all_entries_of_a_call() -> None:
    maps = Maps(public=D)
    RULES.entry_rights(maps, "bookmarks", [(B, D)] * 100)
    assert maps.charged == 2


@pytest.mark.parametrize(
    ("extras", "closed"),
    [(b"", False), (b" branch:x", False), (b" branch:x\0close:1", True), (b" close:1", True), (b" closed:1", False)],
)
@pytest.mark.parametrize("user", [b"Jo", b""])
def test_a_tip_is_closed_where_its_changeset_says_so(user: bytes, extras: bytes, closed: bool) -> None:
    text = A.hex().encode() + b"\n" + user + b"\n0 0" + extras + b"\nclose:1\n\nclose:1\n"
    assert bool(RULES.tip_fact(b"", text)) is closed
    assert RULES.prove_tips(Lines(facts={A: RULES.tip_fact(b"", text)}), [A]) == [Tip(A, closed=closed)]


@pytest.mark.parametrize("settings", [{}, {"evolution": b"yes"}, {"publishing": b"no"}])
def test_nothing_is_replaced_where_all_is_public_or_markers_are_not_exchanged(settings: dict[str, bytes]) -> None:
    maps = Maps()
    maps.settings = settings
    assert RULES.superseded(maps, [A]) == ((), ())
