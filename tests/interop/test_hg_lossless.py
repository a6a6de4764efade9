"""vcs.hg.plan, vcs.hg.insert, vcs.received, vcs.hg.compat, vcs.hg.repository: our repository keeps Mercurial's data
unchanged: random parts of random histories, pulled in random increments."""

from __future__ import annotations

import random
import re
import tempfile
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hg_histories import RandomHistory, Served, commit, new_repository, open_repository, verify
from mercurial import changegroup, phases, util
from needs import needs

from smartserver.errors import RequestError
from smartserver.records import limits
from smartserver.records.model import BaseTag, Entry
from smartserver.records.segment import STORED, encode_segment
from smartserver.vcs import received
from smartserver.vcs.base import VcsError
from smartserver.vcs.hg import insert
from smartserver.vcs.hg import plan as hg_plan
from smartserver.vcs.hg.format import changeset_manifest
from smartserver.vcs.hg.insert import Arrived
from smartserver.vcs.hg.kinds import CHANGESET, FILE, KINDS, NULL, node_of
from smartserver.vcs.hg.repository import HgRepository

pytestmark = pytest.mark.interop

SIZE = 180
TRIALS = 12
VERIFIED = 3


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> RandomHistory:
    return RandomHistory(new_repository(tmp_path_factory.mktemp("hg") / "source"), 11, SIZE)


@pytest.fixture(scope="module")
def served(history: RandomHistory) -> Served:
    """A server with all of `history`, pushed in some increments."""
    made = Served()
    order = list(history.parents)
    pushed: list[bytes] = []
    for at in (1, 30, 31, 32, 120, len(order)):
        heads = order[len(pushed) : at]
        made.push(history.repository, heads, pushed)
        pushed += heads
    return made


def check_equal(history: RandomHistory, target: Any, nodes: set[bytes]) -> None:
    """Check that `target` has exactly these changesets, as `history` has them."""
    one, other = history.repository.unfiltered(), target.unfiltered()
    found = {other.changelog.node(rev) for rev in other.changelog}
    assert found == nodes
    for node in nodes:
        assert other.changelog.rawdata(node) == one.changelog.rawdata(node)
        assert other.changelog.parents(node) == one.changelog.parents(node)
        mine, theirs = one[node], other[node]
        assert theirs.manifestnode() == mine.manifestnode()
        for path in set(mine.files()) & set(theirs.manifest()):
            assert theirs[path].data() == mine[path].data()
            assert theirs[path].renamed() == mine[path].renamed()
            assert theirs[path].flags() == mine[path].flags()


def test_the_history_has_all_there_is(history: RandomHistory) -> None:
    """The random history covers every case; otherwise the tests here would prove less."""
    repository = history.repository
    every = [repository[node] for node in history.parents]
    assert sum(len(each.parents()) > 1 for each in every) > 5
    assert sum(not each.files() for each in every) > 5
    assert any(each.closesbranch() for each in every)
    assert any(b"x" in each.extra() for each in every)
    assert len({each.branch() for each in every}) > 2
    flags = {each.manifest().flags(path) for each in every for path in each.manifest()}
    assert flags == {b"", b"x", b"l"}
    assert any(each[path].renamed() for each in every for path in each.files() if path in each)
    # Versions of files that another changeset than the one that Mercurial links them to made, too.
    shared = 0
    for each in every:
        for path in set(each.files()) & set(each.manifest()):
            store = repository.file(path)
            shared += store.linkrev(store.rev(each.filenode(path))) != each.rev()
    assert shared > 5


def test_any_part_in_any_increments(
    history: RandomHistory, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    order = list(history.parents)
    for trial in range(TRIALS):
        monkeypatch.setattr(received, "CACHE", chance.choice((3_000, 64 << 20)))
        heads = chance.sample(order, chance.choice((1, 1, 2, 4)))
        nodes = history.ancestors(*heads)
        wanted = [node for node in order if node in nodes]
        path = tmp_path / f"part{trial}"
        target = new_repository(path)
        step = chance.choice((len(wanted), len(wanted) // 2 + 1, len(wanted) // 7 + 1))
        for at in range(0, len(wanted), step):
            part = wanted[at : at + step]
            assert served.pull(target, part) == len(part)
            target = open_repository(path)
        check_equal(history, target, nodes)
        if trial < VERIFIED:
            assert verify(path) == (0, "")


@pytest.mark.parametrize("few", [0, 10**6])
def test_the_ways_of_a_push_make_no_difference(
    history: RandomHistory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(hg_plan, "FEW", few)
    monkeypatch.setattr(hg_plan, "_CACHE", 5_000)
    monkeypatch.setattr(hg_plan, "_MANIFESTS", 5_000)
    monkeypatch.setattr(hg_plan, "_STORES", 3)
    served, order = Served(), list(history.parents)
    assert served.push(history.repository, order) == len(order)
    target = new_repository(tmp_path / "whole")
    assert served.pull(target, order) == len(order)
    check_equal(history, open_repository(tmp_path / "whole"), set(order))
    assert verify(tmp_path / "whole") == (0, "")


def test_a_merge_that_copies_a_file(tmp_path: Path) -> None:
    """Mercurial 7.2 sets a flag on the merge's version of the file."""
    source = new_repository(tmp_path / "source")
    first = commit(source, (NULL, NULL), {b"a": (b"a\n", b"", None)}, b"a file", {}, 1)
    second = commit(source, (first, NULL), {b"b": (b"b\n", b"", None)}, b"another", {}, 2)
    third = commit(source, (first, NULL), {b"b": (b"c\n", b"", None)}, b"beside it", {}, 3)
    merged = commit(source, (second, third), {b"b": (b"a\nb\n", b"", b"a")}, b"merged", {}, 4)
    served = Served()
    served.push(source, [merged])
    target = new_repository(tmp_path / "target")
    assert served.pull(target, [merged]) == 4
    assert open_repository(tmp_path / "target")[merged][b"b"].renamed() == source[merged][b"b"].renamed()
    assert verify(tmp_path / "target") == (0, "")


def test_an_empty_tree(tmp_path: Path) -> None:
    """One changeset has no manifest, and another an empty one."""
    source = new_repository(tmp_path / "source")
    first = commit(source, (NULL, NULL), {}, b"nothing", {}, 1)
    second = commit(source, (first, NULL), {b"a": (b"a\n", b"", None)}, b"a file", {}, 2)
    third = commit(source, (second, NULL), {b"a": None}, b"nothing again", {}, 3)
    assert changeset_manifest(source.changelog.rawdata(first)) == NULL
    served = Served()
    served.push(source, [third])
    target = new_repository(tmp_path / "target")
    assert served.pull(target, [third]) == 3
    assert verify(tmp_path / "target") == (0, "")


def test_a_push_that_is_planned_again(history: RandomHistory) -> None:
    """The second read begins and ends before the first, unfinished one is dropped."""
    planned = hg_plan.plan(HgRepository(history.repository), list(history.parents)[:5], ())
    first = planned.segments()
    begun = next(first)
    again = list(planned.segments())
    assert [begun, *first] == again
    assert "checkhash" not in vars(history.repository.unfiltered().changelog)


@pytest.mark.parametrize("text", [b"line of a text\n" * 400, random.Random(1).randbytes(5_000)])
def test_a_large_text_is_sent_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(hg_plan, "_PART", 700)
    monkeypatch.setattr(limits, "MAX_BASED", 4_000)
    source = new_repository(tmp_path / "source")
    first = commit(source, (NULL, NULL), {b"a": (text, b"", None), b"b": (b"b\n", b"", None)}, b"both", {}, 1)
    segments = list(hg_plan.plan(HgRepository(source), [first], ()).segments())
    assert len(segments) > 2
    assert max(map(len, segments)) < len(text)
    served = Served()
    served.bring([b"".join(segments)], [first])
    target = new_repository(tmp_path / "target")
    assert served.pull(target, [first]) == 1
    assert open_repository(tmp_path / "target")[first][b"a"].data() == text
    assert verify(tmp_path / "target") == (0, "")


OLD = [
    b"\nu\n1115154970 25200.0", b"\nu\n1115154970 UTC", b"\nu\n1e9 0", b"\n\n0 0", b"\nu\rv\n0 0",
    b"\nu\n0 0 branch:a\x1b[31mb\rc", b"\nu\n0 0 branch: a:b ", b"\nu\n0 0 branch:a\\nb",
]  # fmt: skip
"""Content of changesets, between manifest and files, that Mercurial verifies but no longer makes."""


def raw_commit(
    repository: Any, parent: bytes, middle: bytes, path: bytes, text: bytes, copied: Mapping[bytes, bytes] | None = None
) -> bytes:
    """Add a changeset of one file with a text that Mercurial itself would not write."""
    with repository.lock(), repository.transaction(b"test") as transaction:
        link = len(repository.changelog)
        tree = repository[parent].manifestctx().copy()
        try:
            store = repository.file(path, writable=True)
        except TypeError:  # Before 7.2.
            store = repository.file(path)
        tree.read()[path] = store.add(text, copied, transaction, link, NULL, NULL)
        manifest = tree.write(transaction, link, repository[parent].manifestnode() or NULL, NULL, [path], [])
        whole = manifest.hex().encode() + middle + b"\n" + path + b"\n\nold"
        repository.changelog.addrevision(whole, transaction, link, parent, NULL)
    repository.invalidateall()
    node: bytes = repository.changelog.tip()
    return node


def test_what_only_old_tools_made(tmp_path: Path) -> None:
    """Old forms of changesets survive, and a file that was copied from a version on another branch."""
    source = new_repository(tmp_path / "source")
    first = raw_commit(source, NULL, b"\nu\n0 0", b"f", b"first\n")
    tips = [raw_commit(source, first, middle, b"g", middle) for middle in OLD]
    copied = {b"copy": b"g", b"copyrev": source[tips[0]][b"g"].filenode().hex().encode()}
    tips.append(raw_commit(source, first, b"\nu\n0 0", b"h", b"copy", copied))
    assert verify(tmp_path / "source") == (0, "")
    served = Served()
    served.push(source, tips, [])
    target = new_repository(tmp_path / "target")
    assert served.pull(target, tips) == len(tips) + 1
    target = open_repository(tmp_path / "target")
    assert {target.changelog.rawdata(tip) for tip in tips} == {source.changelog.rawdata(tip) for tip in tips}
    assert verify(tmp_path / "target") == (0, "")


def test_a_full_disk_is_named(served: Served, history: RandomHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    (segment,) = served.segments(list(history.parents)[:1])
    with Arrived(None) as arrived, monkeypatch.context() as patch, open("/dev/full", "wb", buffering=0) as full:
        patch.setattr(arrived, "_spool", full)
        with pytest.raises(OSError, match=f"No space left on device: {tempfile.gettempdir()!r}"):
            arrived.add(segment)


# ---- the changegroup, made natively and in Python


def made(
    segments: Sequence[bytes], wanted: Collection[bytes] | None, patched: pytest.MonkeyPatch, *, in_python: bool
) -> tuple[bytes, str]:
    """Return the changegroup of a clone, as far as it is made, and the error that ended it. `wanted`: None if it is
    made of all while they are received."""
    with patched.context() as patch:
        if in_python:
            patch.setattr(insert, "native", lambda name: None)
        came, said = b"", ""
        with Arrived(None) as arrived:
            try:
                if wanted is not None:
                    deque(map(arrived.add, segments), maxlen=0)
                for piece in arrived.chunks_of_clone(segments) if wanted is None else arrived.chunks(wanted):
                    came += piece
            except (ValueError, RequestError, VcsError) as error:
                said = f"{type(error).__name__}: {error}"
    return came, re.sub("(?<=a damaged frame: ).*", "", said)  # zstd's own words differ from call to call.


@needs("native parts")
def test_both_forms_make_the_same_changegroup(
    history: RandomHistory, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = list(history.parents)
    chance = random.Random(3)
    as_pushed = list(hg_plan.plan(HgRepository(history.repository), order, ()).segments())
    for segments in (as_pushed, served.segments(order)):
        for heads in (order, chance.sample(order, 2), [order[0]]):
            wanted = history.ancestors(*heads)
            natively, python = (made(segments, wanted, monkeypatch, in_python=each) for each in (False, True))
            assert natively == python
            assert not python[1]
            with Arrived(None) as arrived:
                for segment in segments:
                    arrived.add(segment)
                assert len(b"".join(arrived.chunks(wanted))) == len(python[0])
                assert arrived._writer is not None, "Python made it"
        whole = made(segments, order, monkeypatch, in_python=False)
        assert [made(segments, None, monkeypatch, in_python=each) for each in (False, True)] == [whole, whole]


@needs("native parts")
def test_both_forms_refuse_the_same(served: Served, history: RandomHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments in which a byte was changed, or of which one is missing. What was made before the error is the same."""
    order = list(history.parents)
    segments = served.segments(order)
    chance = random.Random(4)
    errors = set()
    for trial in range(150):
        damaged = list(segments)
        at = chance.randrange(len(damaged))
        if trial % 10:
            piece = bytearray(damaged[at])
            piece[chance.randrange(len(piece))] ^= 1 << chance.randrange(8)
            damaged[at] = bytes(piece)
        else:
            del damaged[at]
        wanted = (order, history.ancestors(chance.choice(order)), None)[trial % 3]
        natively, python = (made(damaged, wanted, monkeypatch, in_python=each) for each in (False, True))
        assert natively == python
        errors.add(python[1].partition(":")[0])
    assert {"", "WrongContent", "Malformed"} <= errors


@needs("native parts")
def test_both_forms_refuse_a_path_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused though its changeset is not wanted."""
    text, meta = b"0" * 40 + b"\nuser\n0 0\n\ntext", b""
    node = node_of(meta, text)
    records = [
        (Entry(CHANGESET, STORED, node, meta, BaseTag.NONE, b"", len(text), len(text), b""), text),
        (Entry(FILE, STORED, b"a\nb\0" + node, meta, BaseTag.NONE, b"", len(text), len(text), b""), text),
    ]
    block = encode_segment(node, (), [entry for entry, _ in records], [frame for _, frame in records], KINDS)
    natively, python = (made([block], [], monkeypatch, in_python=each) for each in (False, True))
    assert natively == python
    assert python[1].startswith("WrongContent: ")


@needs("native parts")
def test_what_python_goes_on_with_is_the_rest(
    history: RandomHistory, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native part stops after a piece, when Mercurial has already stored changesets of it."""
    order = list(history.parents)
    target = new_repository(tmp_path / "target")
    with Arrived(HgRepository(target)) as arrived:
        for segment in served.segments(order):
            arrived.add(segment)
        writer: Any = arrived._writer
        writer.begin(order)
        pieces = chain([writer.piece()], repeat(ValueError("left to Python")))

        class Stopping:
            records = 0
            changeset = writer.changeset

            def begin(self, wanted: Collection[bytes]) -> None:
                pass

            def piece(self) -> bytes:
                found = next(pieces)
                if isinstance(found, ValueError):
                    raise found
                assert isinstance(found, bytes)
                return found

        arrived._writer = Stopping()
        chunks = util.chunkbuffer(arrived.chunks(order))
        with target.lock(), target.transaction(b"test") as transaction:
            unpacker = changegroup.getunbundler(b"03", chunks, None)
            unpacker.apply(target, transaction, b"pull", b"test:", targetphase=phases.draft, expectedtotal=len(order))
    check_equal(history, open_repository(tmp_path / "target"), set(order))
