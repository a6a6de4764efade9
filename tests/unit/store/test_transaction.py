"""store.transaction: what calls see of those before them, names and maps; the attributes that tips are stored with.

store.preview_folder: the folder of a preview lacks packs, which are read where the repository is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import pytest
from builders import GIT, KINDS, MAIN, SETTINGS, Far, History, check_whole, create, push, upload
from bzr_builders import TRUNK, BzrHistory
from calls import calls_of
from changes import change
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile, InvalidName, MissingParents, MissingRevision, NoSuchRepository, WrongMapKind
from smartserver.records.model import GraphNode, Parent, RefValue, Tip
from smartserver.records.system import MapType, system_of
from smartserver.server.hook_place import make_place
from smartserver.store import transaction as module
from smartserver.store.allowance import Allowance
from smartserver.store.model import INCOMPLETE
from smartserver.store.preview import Preview
from smartserver.store.preview_folder import NEW, PREVIEW, PreviewedStore, PreviewTransport, is_preview, previewed_by
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import TipProof, Transaction
from transports.base import Transport
from transports.local import LocalTransport

STORE = PreviewedStore("s3://bucket/code", "/var/cache/packs", 7)


@pytest.mark.parametrize("reach", [lambda store: store, Far], ids=["near", "far"])
def test_what_came_is_there_and_the_rest_is_read_elsewhere(reach: type[Far], tmp_path: Path) -> None:
    storage: Transport = reach(MemoryTransport())
    repository, history = PackRepository(storage), History()
    line = history.line(4)
    push(repository, history, line[:2], {MAIN: line[1]})
    push(repository, history, line[2:3], {MAIN: line[2]})
    sent = upload(repository, history.body(line[3:]), 1)
    transaction = repository.begin(sent.graph() or ())
    transaction.set_ref(MAIN, (Tip(line[3]),))
    make_place(Preview(repository.folder, transaction, sent, bytes(16)), STORE.below("team/a b"), tmp_path)
    sent.abandon()
    assert is_preview(str(tmp_path), {NEW: f"{tmp_path}/"})
    assert not is_preview(str(tmp_path), {})
    assert not is_preview(str(tmp_path), {NEW: str(tmp_path / "packs")})
    assert not is_preview(str(tmp_path / "packs"), {NEW: str(tmp_path / "packs")})
    found = previewed_by(LocalTransport(tmp_path))
    assert found == PreviewedStore("s3://bucket/code/team/a%20b", "/var/cache/packs", 7)
    assert len(list((tmp_path / "packs").iterdir())) == 2
    shown = PackRepository(PreviewTransport(LocalTransport(tmp_path), storage))
    snapshot = check_whole(shown, history)
    assert (snapshot.state.vcs, snapshot.graph.count) == (GIT, 4)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / PREVIEW).write_text('{"url": 1}')
    with pytest.raises(CorruptFile, match=PREVIEW):
        previewed_by(LocalTransport(tmp_path))


@pytest.fixture
def line(history: History, repository: PackRepository) -> list[bytes]:
    """Six commits of a line, the first four pushed."""
    line = history.line(6)
    push(repository, history, line[:4], {MAIN: line[3]})
    return line


def begin(repository: PackRepository, *announced: GraphNode) -> Transaction:
    return repository.begin(announced)


def test_without_a_repository() -> None:
    transaction = begin(PackRepository(MemoryTransport(), "project"))
    assert not transaction.exists
    for ask in (
        lambda: transaction.vcs,
        lambda: transaction.kinds,
        lambda: transaction.settings,
        transaction.refs,
        lambda: transaction.ref(MAIN),
        lambda: transaction.set_ref(MAIN, None),
        lambda: transaction.plan_pull([], []),
        lambda: transaction.map("a"),
        lambda: transaction.map_kind("a"),
        lambda: transaction.entry("a", b"k"),
    ):
        with pytest.raises(NoSuchRepository) as caught:
            ask()
        assert caught.value.path == "project"
    assert not transaction.has_revision(b"r")
    assert not transaction.is_stored(b"r")
    transaction.check_parents()
    assert transaction.known_heads() == []


def test_creation_counts_for_the_calls_after_it(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    transaction = begin(repository, history.announced(tip))
    assert transaction.create(GIT, KINDS, SETTINGS)
    assert not transaction.create(GIT, KINDS, {})
    assert transaction.exists
    assert (transaction.vcs, transaction.kinds, dict(transaction.settings)) == (GIT, KINDS, SETTINGS)
    assert dict(transaction.refs()) == {}
    assert transaction.ref(MAIN) is None
    transaction.set_ref(MAIN, (Tip(tip),))
    assert transaction.ref(MAIN) == (Tip(tip),)
    assert dict(transaction.refs()) == {MAIN: (Tip(tip),)}
    assert dict(transaction.map("a")) == {}
    transaction.set_map("a", "ids", MAIN + b"\0v", b"v")
    transaction.remove_entries(MAIN)
    assert transaction.entries == {"a": {}}
    with pytest.raises(NoSuchRepository):
        transaction.plan_pull([tip], [])
    assert not repository.exists()


def test_refs_changed_so_far(repository: PackRepository, line: list[bytes]) -> None:
    transaction = begin(repository)
    assert dict(transaction.refs()) == {MAIN: (Tip(line[3]),)}
    transaction.set_ref(b"refs/heads/a", (Tip(line[0]),))
    transaction.set_ref(MAIN, None)
    assert list(transaction.refs()) == [b"refs/heads/a"]
    assert transaction.ref(MAIN) is None
    assert transaction.changes == {b"refs/heads/a": (Tip(line[0]),), MAIN: None}
    assert dict(begin(repository).refs()) == {MAIN: (Tip(line[3]),)}


def test_a_ref_set_back_is_no_change(repository: PackRepository, line: list[bytes]) -> None:
    transaction = begin(repository)
    transaction.set_ref(MAIN, (Tip(line[1]),))
    transaction.set_ref(MAIN, (Tip(line[3]),))
    transaction.set_ref(b"refs/heads/none", None)
    assert transaction.changes == {}


def test_ancestry_of_what_is_not_there(repository: PackRepository, line: list[bytes]) -> None:
    with pytest.raises(MissingRevision):
        begin(repository).is_ancestor(b"unknown", line[0])
    with pytest.raises(MissingRevision):
        begin(repository).is_ancestor(line[0], line[5])


def test_missing_parents_are_all_named(repository: PackRepository, history: History, line: list[bytes]) -> None:
    transaction = begin(
        repository,
        history.announced(line[5]),
        GraphNode(b"ghostly", (Parent(b"not here", absent=True),)),
        GraphNode(b"merge", (Parent(b"x"), Parent(line[5]), Parent(b"y"))),
    )
    with pytest.raises(MissingParents) as caught:
        transaction.check_parents()
    assert caught.value.revisions == [line[4], b"x", b"y"]


def test_known_heads_of_branches(repository: PackRepository, history: History, line: list[bytes]) -> None:
    side = history.commit({"side": b"s"}, (line[0],))
    push(repository, history, [side], {b"refs/heads/side": side})
    new = history.commit({"new": b"n"}, (side, line[3]))
    transaction = begin(repository, *(history.announced(each) for each in [*line[:3], side, new]))
    assert sorted(transaction.known_heads()) == sorted([line[2], side])


def test_what_tips_reach_and_the_labels_on_it(repository: PackRepository, history: History, line: list[bytes]) -> None:
    tag = history.tag(line[1])
    on_tag = history.tag(tag, "again")
    beyond = history.tag(line[3], "beyond")
    push(repository, history, [tag, on_tag, beyond], {})
    transaction = begin(repository)
    everything = [*line[:4], tag, on_tag, beyond, b"unknown"]
    assert transaction.followed(everything, [line[1]]) == [*line[:2], tag, on_tag]
    assert transaction.followed(everything, [line[3], b"unknown"]) == everything[:-1]
    assert transaction.followed(everything, []) == []
    assert transaction.followed([beyond], [line[2]]) == []
    on_beyond = history.tag(beyond, "far")
    push(repository, history, [on_beyond], {})
    transaction = begin(repository)
    # The label between is no candidate.
    assert transaction.followed([on_tag, on_beyond], [line[1]]) == [on_tag]
    assert transaction.followed([beyond, on_beyond], [line[2]]) == []


def test_what_is_beyond_others(repository: PackRepository, line: list[bytes]) -> None:
    transaction = begin(repository).announcing([GraphNode(b"new", (Parent(line[3]),))])
    revisions = [b"new", line[1], line[3]]
    assert transaction.beyond(revisions, []) == revisions
    assert transaction.beyond(revisions, [b"unknown"]) == revisions
    assert transaction.beyond(revisions, [line[0]]) == revisions
    assert transaction.beyond(revisions, [line[2], b"unknown"]) == [b"new", line[3]]
    assert transaction.beyond(revisions, [line[3]]) == [b"new"]
    assert transaction.beyond(revisions, [b"new"]) == []
    with pytest.raises(MissingRevision):
        transaction.beyond([b"unknown"], [])


def test_the_line_of_first_parents_of_a_system_without_ghosts(repository: PackRepository, line: list[bytes]) -> None:
    snapshot = repository.snapshot()
    assert [snapshot.first_parent(ordinal) for ordinal in range(3)] == [None, 0, 1]


# -- maps


def test_a_system_says_what_its_maps_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_of(GIT), "maps", {"marks": MapType("opaque")})
    transaction = Transaction("p", None)
    transaction.create(GIT, KINDS, {})
    with pytest.raises(WrongMapKind):
        transaction.set_map("marks", "ids", b"key", b"value")
    assert transaction.entries == {}
    transaction.set_map("marks", "opaque", b"key", b"value")
    transaction.set_map("others", "ids", b"key", b"value")
    assert transaction.maps() == ["marks", "others"]


def test_what_has_entries(repository: PackRepository, line: list[bytes]) -> None:
    for number in range(3):
        change(repository, partial(Transaction.set_map, name="notes", kind="opaque", key=b"a%d" % number, value=b"x"))
    transaction = begin(repository)
    for key, value in ((b"a1", None), (b"a5", b"y"), (b"b", b"z")):
        transaction.set_map("notes", "opaque", key, value)
    firsts = [b"c", b"a1", b"a5", b"a", b"b", b"a0", b"b0"]
    assert transaction.with_entries("notes", firsts) == [b"a5", b"a", b"b", b"a0"]
    assert transaction.with_entries("none", firsts) == []
    created = Transaction("p", None)
    created.create("git sha1", KINDS, {})
    created.set_map("notes", "opaque", b"a", b"x")
    assert created.with_entries("notes", [b"a", b"b"]) == [b"a"]


PIECES = [bytes((each,)) for each in b"\n ~^:?*[\\\x7f\xe9{}-.@/"]
PIECES += [b"", b"..", b"/../../x", b"@{", b".lock", b".lock/b", b"./b", b"a@b"]
FORMS = [b"refs/heads/%b", b"refs/heads/a%b", b"refs/%b/b"]
LONGEST = b"refs/heads/" + b"n" * 250
OTHERS = [b"main", b"refs/main", b"heads/main", b"/refs/heads/a", LONGEST, LONGEST + b"n"]


@pytest.mark.parametrize("names", [OTHERS, *([form % piece for piece in PIECES] for form in FORMS)])
def test_names_that_git_refuses(repository: PackRepository, line: list[bytes], names: list[bytes]) -> None:
    """And those that are longer than some file systems take, or that lie outside of the folders of refs."""
    for name in names:
        transaction = begin(repository)
        done = subprocess.run([b"git", b"check-ref-format", name], check=False)
        if not done.returncode and re.match(b"refs/[^/]+/", name) and len(name) <= len(LONGEST):
            transaction.set_ref(name, (Tip(line[0]),))
            continue
        with pytest.raises(InvalidName) as caught:
            transaction.set_ref(name, (Tip(line[0]),))
        assert caught.value.name == name
        with pytest.raises(InvalidName, match="the setting 'HEAD' cannot have this value"):
            transaction.set_setting("HEAD", name)
        transaction.set_ref(name, None)  # One that an older release took can be removed.


def test_other_systems_have_other_names() -> None:
    repository = PackRepository(MemoryTransport(), "bzr")
    transaction = begin(repository)
    transaction.create("bzr 2a", system_of("bzr 2a").kinds, {"HEAD": b"."})
    for name in (b"trunk", b"a..b", b"."):
        with pytest.raises(MissingRevision):  # The name is taken.
            transaction.set_ref(name, (Tip(b"r"),))
    with pytest.raises(InvalidName, match="control character"):
        transaction.set_ref(b"a\nb", (Tip(b"r"),))
    assert transaction.nested(b"trunk/x") is None


def test_a_repository_whose_head_cannot_be_one_is_not_made() -> None:
    transaction = begin(PackRepository(MemoryTransport(), "git"))
    with pytest.raises(InvalidName, match="the setting 'HEAD' cannot have this value"):
        transaction.create(GIT, KINDS, {"HEAD": b"refs/heads/../../x"})
    assert not transaction.exists


def test_only_a_copy_makes_a_repository_incomplete(repository: PackRepository, line: list[bytes]) -> None:
    new = begin(PackRepository(MemoryTransport(), "git"))
    with pytest.raises(InvalidName, match="takes several requests"):
        new.create(GIT, KINDS, {INCOMPLETE: b"yes"})
    assert new.create(GIT, KINDS, {}, incomplete=True)
    assert dict(new.settings) == {INCOMPLETE: b"yes"}
    with pytest.raises(InvalidName, match="takes several requests"):
        begin(repository).set_setting(INCOMPLETE, b"yes")


def test_a_setting_that_changes_leaves_what_is_stored_as_it_was(
    repository: PackRepository, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def entries(
        _system: object, old: Mapping[str, bytes], new: Mapping[str, bytes], tips: Iterable[bytes]
    ) -> Mapping[str, Mapping[bytes, bytes]]:
        return {"kept": {old.get("way", b"") + b"to " + new["way"]: b"".join(tips)}}

    monkeypatch.setattr(type(system_of(GIT)), "settings_entries", entries)
    transaction = begin(repository)
    transaction.set_setting("way", b"one ")
    transaction.set_setting("way", b"two")
    assert transaction.map("kept") == {b"to one ": line[3], b"one to two": line[3]}


TAGS = b"refs/tags/"


def stored(begun: PackRepository) -> dict[bytes, RefValue]:
    return dict(begun.snapshot().state.refs().items())


def claim(begun: PackRepository, history: History, **refs: Tip) -> bool:
    """Set refs with what a client says of their tips; whether the begun changed."""

    def first(transaction: Transaction) -> None:
        for name, tip in refs.items():
            transaction.set_ref(TAGS + name.encode(), (tip,))

    return push(begun, history, [], first=first).changed


@pytest.fixture
def begun(history: History) -> PackRepository:
    begun = PackRepository(MemoryTransport(), "project")
    push(begun, history, [history.line(1)[0]], first=create)
    return begun


def test_what_a_tag_peels_to_is_proved_when_it_comes_and_later(begun: PackRepository, history: History) -> None:
    (commit,) = history.parents
    tag = history.tag(commit)
    nested, blob = history.tag(tag, "nested"), history.tag(history.key_at(commit, "README"), "blob")
    new = {b"a": tag, b"b": nested, b"c": blob, b"d": commit}

    def first(transaction: Transaction) -> None:
        for name, tip in new.items():
            transaction.set_ref(TAGS + name, (Tip(tip, b"claimed", closed=True),))
        transaction.set_ref(MAIN, (Tip(commit, commit),))

    push(begun, history, [tag, nested, blob], first=first)
    right = {
        TAGS + b"a": (Tip(tag, commit),),
        TAGS + b"b": (Tip(nested, commit),),
        TAGS + b"c": (Tip(blob, history.key_at(commit, "README")),),
        TAGS + b"d": (Tip(commit),),
        MAIN: (Tip(commit),),
    }
    assert stored(begun) == right
    later = {"e": Tip(nested, tag), "f": Tip(blob), "g": Tip(commit, tag), "a": Tip(nested, b"x")}
    assert claim(begun, history, **later)
    right |= {TAGS + b"e": right[TAGS + b"b"], TAGS + b"f": right[TAGS + b"c"], TAGS + b"g": right[TAGS + b"d"]}
    assert stored(begun) == right | {TAGS + b"a": right[TAGS + b"b"]}


def test_a_claim_about_the_same_tip_changes_nothing_and_is_remembered(begun: PackRepository, history: History) -> None:
    """Were it not, a repetition of the request could be carried out after somebody else's change."""
    tag = history.tag(next(iter(history.parents)))
    push(begun, history, [tag], {TAGS + b"a": tag})
    before = stored(begun)
    assert claim(begun, history, a=Tip(tag, b"claimed"))
    assert (stored(begun), list(begun.snapshot().state.history)[-1].changes) == (before, ())


def test_numbers_are_counted_in_what_comes_and_in_what_is_stored() -> None:
    history, begun = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(4)
    grafted = history.commit({b"f": b"grafted"}, [line[1]], [b"ghost"], ghost_first=True)
    history.push(begun, history.parents, {TRUNK: Tip(line[3], b"2"), b"grafted": Tip(grafted, b"9" * 3000)})
    assert stored(begun) == {TRUNK: (Tip(line[3], b"4"),), b"grafted": (Tip(grafted, b"1"),)}
    more = [history.commit({b"f": b"more"}, [line[3]]), history.commit({b"f": b"later"}, [grafted])]
    history.push(begun, more, {TRUNK: Tip(more[0]), b"grafted": Tip(more[1], b"1"), b"old": Tip(line[2], b"7")})
    assert {name: value[0].attributes for name, value in stored(begun).items()} == {
        TRUNK: b"5",
        b"grafted": b"2",
        b"old": b"3",
    }


def test_a_push_on_top_reads_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    history, begun = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(30)
    history.push(begun, line, {TRUNK: Tip(line[-1])})
    new = history.commit({b"f": b"new"}, [line[-1]])
    monkeypatch.setattr(Snapshot, "first_parent", None)
    history.push(begun, [new], {TRUNK: Tip(new)})
    assert stored(begun) == {TRUNK: (Tip(new, b"31"),)}


@pytest.mark.parametrize("ahead", [256, 8, 1])
def test_headers_behind_a_link_are_read_together(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    history, begun = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(20)
    line.append(history.commit({b"f": b"merge"}, [line[-1], line[3]]))
    line.append(history.commit({b"f": b"grafted"}, [line[-1]], [b"ghost"], ghost_first=True))
    line.append(history.commit({b"f": b"later"}, [line[-1]]))
    history.push(begun, line, {})
    snapshot = begun.snapshot()
    expected = [snapshot.first_parent(ordinal) for ordinal in range(len(line))]
    reads = calls_of(monkeypatch, Snapshot, "first_parents")
    monkeypatch.setattr(module, "AHEAD", ahead)
    monkeypatch.setattr(snapshot, "is_remote", True)
    transaction = Transaction("project", snapshot)
    proof: TipProof = transaction.tips
    assert [proof.first_parent(ordinal) for ordinal in reversed(range(len(line)))] == expected[::-1]
    assert len(reads) == -(-len(line) // ahead)


def test_what_it_reads_is_charged(begun: PackRepository, history: History) -> None:
    tag = history.tag(next(iter(history.parents)))
    push(begun, history, [tag], {TAGS + b"a": tag})
    allowance = Allowance()
    transaction = Transaction("project", begun.snapshot(), allowance=allowance)
    transaction.set_ref(TAGS + b"b", (Tip(tag),))
    before = allowance.steps
    transaction.prove_tips()
    assert (allowance.steps - before, allowance.decoded >= 1024) == (3, True)


def test_each_ref_is_looked_at_once(begun: PackRepository, history: History) -> None:
    compared = 0

    class Name(bytes):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = bytes.__hash__

    claimed: dict[bytes, RefValue] = {
        Name(TAGS + b"%d" % number): (Tip(next(iter(history.parents))),) for number in range(100)
    }
    assert Transaction("project", begun.snapshot()).tips.values(claimed, {}) == claimed
    assert compared <= 3 * len(claimed)
