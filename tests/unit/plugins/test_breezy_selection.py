"""plugins.breezy.selection: what the first request of a command asks for, read off what it was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from brz_running import running, specs

from smartserver.plugins.breezy.commands import wanted
from smartserver.plugins.breezy.given import TIP
from smartserver.plugins.breezy.selection import NUMBERED, Selection, batched, commit_on, pulled_into
from smartserver.vcs.bzr.selector import RevisionsField, Tag, TreesField
from smartserver.verbs.fields import MAX_NAME

URL = "hpss://localhost/p/trunk"
FILE = f"{URL}/doc/index.txt"
BARE = RevisionsField(bare=True)


def asked(command: str, **arguments: object) -> Selection | None:
    with running(command, **arguments):
        return wanted()


def test_who_runs_no_command_or_one_that_reads_whole_revisions_wants_nothing_less() -> None:
    assert wanted() is None
    for command in ("branch", "missing", "merge", "grep", "pull"):
        assert asked(command, location=URL) is None


def test_a_command_that_is_unknown_reads_the_revisions_it_names() -> None:
    def later(said: list[bytes | int]) -> Selection:
        return Selection(trees=TreesField(said, paths=[], texts=False) if said else None, later=TreesField())

    assert asked("unknown-command", location=URL) == later([])
    assert asked("revno", location=URL, revision=None) == later([])
    assert asked("revision-info", directory=URL, revision=specs("7", "-1")) == later([7, TIP])
    assert asked("revision-info", directory=URL, revision=None, revision_info_list=["7"]) == later([7])
    assert asked("lookup-revision", directory=".", revno="7") == later([7])
    assert asked("revision-history", location=URL) == Selection(RevisionsField(left_hand=True, bare=True))
    assert asked("revno", location=URL, revision=specs("tag:v1")) == Selection(NUMBERED, later=TreesField())
    assert asked("revno", location=URL, revision=specs("1.2.3")) == Selection(BARE, later=TreesField())
    assert asked("version-info", location=URL, revision=None) == later([TIP])
    assert asked("testament", branch=URL, revision=specs("3")) == Selection(
        RevisionsField(1, newest=3), TreesField([3], texts=False)
    )
    for command in ("ancestry", "find-merge-base"):
        assert asked(command, location=URL) == Selection(BARE)
    assert asked("committer-statistics", location=URL) == Selection(RevisionsField())


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("5", 5),
        ("-3", -3),
        ("revno:7", 7),
        ("last:2", -2),
        ("before:7", 6),
        ("revid:joe@example.org-1", b"joe@example.org-1"),
        ("", TIP),
    ],
)
def test_a_revision_that_is_told_by_its_name(said: str, named: int | bytes) -> None:
    expected = TreesField(list(dict.fromkeys([TIP, named])), inner=True)
    assert asked("cat", filename=FILE, revision=specs(said)) == Selection(trees=expected)


@pytest.mark.parametrize(
    ("said", "look"),
    [
        ("tag:v1", None),
        ("date:2026-11-22", RevisionsField(left_hand=True)),
        ("1.2.3", BARE),
        ("v1", BARE),
        ("0", BARE),
        ("last:0", BARE),
        ("before:1", BARE),
        ("before:tag:v1", BARE),
        ("revid:", BARE),
        ("revid:" + "x" * (MAX_NAME + 1), BARE),
        ("9999999999", BARE),
        ("5:other", BARE),
    ],
)
def test_one_that_only_a_look_at_the_branch_can_tell(said: str, look: RevisionsField | None) -> None:
    """The tip is looked at in any case, and the rest when it is known which that is."""
    of_tip = TreesField([TIP], inner=True)
    assert asked("cat", filename=FILE, revision=specs(said)) == Selection(look, of_tip, of_tip)
    later = TreesField([], texts=False)
    assert asked("ls", path=None, directory=URL, revision=specs(said)) == Selection(
        look, None, TreesField([], inner=True, texts=False)
    )
    assert asked("ls", path=None, directory=URL, from_root=True, revision=specs(said)) == Selection(look, None, later)


def test_what_of_a_tree_is_read() -> None:
    assert asked("ls", path=URL, revision=None) == Selection(trees=TreesField([TIP], inner=True, texts=False))
    assert asked("cat", filename="/doc/", directory=URL, revision=None) == Selection(
        trees=TreesField([TIP], paths=[b"doc"])
    )
    assert asked("export", branch_or_subdir=URL, revision=specs("2")) == Selection(trees=TreesField([2], inner=True))
    dated = TreesField([TIP], inner=True, bringers=True)
    assert asked("export", branch_or_subdir=URL, revision=None, per_file_timestamps=True) == Selection(trees=dated)
    versions = TreesField([TIP], inner=True, versions=True)
    assert asked("annotate", filename=FILE, revision=None) == Selection(BARE, versions, ids=[])
    assert asked("checkout", branch_location=URL, revision=specs("1")) is None
    light = asked("checkout", branch_location=URL, revision=specs("1"), lightweight=True)
    assert light == Selection(trees=TreesField([1]))


def test_a_path_in_a_checkout_is_seen_from_its_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree" / ".bzr").mkdir(parents=True)
    (tmp_path / "tree" / "doc").mkdir()
    monkeypatch.chdir(tmp_path / "tree" / "doc")
    for path, expected in (("index.txt", b"doc/index.txt"), ("..", b""), (".", b"doc"), ("../ü", "ü".encode())):
        assert asked("cat", filename=path, revision=None) == Selection(trees=TreesField([TIP], paths=[expected]))
    # A log of a folder compares all trees.
    assert asked("log", file_list=["."]) is None
    found = asked("log", file_list=["index.txt"])
    assert found is not None
    assert found.trees == TreesField([TIP], paths=[b"doc/index.txt"], versions=True)


def test_a_path_that_is_not_utf_8_is_asked_for_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".bzr").mkdir()
    monkeypatch.chdir(tmp_path)
    expected = TreesField([TIP], paths=[b"f\xff"])
    assert asked("cat", filename="f\udcff", revision=None) == Selection(trees=expected)
    assert asked("cat", filename="f\udcff", directory=URL, revision=None) == Selection(trees=expected)
    several = asked("diff", revision=specs("2"), file_list=[URL, "f\udcff"])
    assert several == Selection(trees=TreesField([2, TIP], changed=True, inner=True, paths=[b"f\xff"]))


def test_which_trees_are_compared() -> None:
    def trees(*said: str, **more: object) -> TreesField | None:
        found = asked("diff", revision=specs(*said), file_list=[URL], **more)
        return None if found is None else found.trees

    assert trees("2", "4") == TreesField([2, 4], changed=True, inner=True)
    assert trees("2") == TreesField([2, TIP], changed=True, inner=True)
    assert trees("2", old=URL) is None
    assert trees(old=URL, new=URL) == TreesField([TIP])
    several = asked("diff", revision=specs("2"), file_list=[URL, "b"])
    assert several == Selection(trees=TreesField([2, TIP], changed=True, inner=True, paths=[b"b"]))


def test_how_many_revisions_a_log_shows() -> None:
    one = asked("log", file_list=[URL], limit=1)
    assert one is not None
    assert (one.chosen, one.trees, one.is_deep) == (RevisionsField(9, True), None, False)
    for arguments in ({"levels": 0}, {"include_merged": True}):
        every = asked("log", file_list=[URL], limit=1, **arguments)
        assert every is not None
        assert (every.chosen, every.is_deep) == (RevisionsField(bare=True, ends=18), True)
        every = asked("log", file_list=[URL], **arguments)
        assert every is not None
        assert every.chosen == RevisionsField()
    forward = asked("log", file_list=[URL], limit=10, forward=True)
    assert forward is not None
    assert forward.chosen == RevisionsField(left_hand=True, bare=True, ends=22)
    said = asked("log", file_list=[URL], limit=1, match="x")
    assert said is not None
    assert said.chosen == RevisionsField(0, True)
    ranged = asked("log", file_list=[URL], revision=specs("2", "-2"))
    assert ranged is not None
    assert (ranged.chosen, ranged.is_deep) == (RevisionsField(0, True, False, -2, 2), False)
    assert ranged.inside is not None
    shown = asked("log", file_list=[URL], show_diff=True)
    assert shown is not None
    assert shown.trees == TreesField(each=True, texts=True, changed=True)


def test_a_log_of_a_folder_or_file_in_a_url_reads_something_else() -> None:
    for arguments, history in (({}, False), ({"verbose": True}, True)):
        found = asked("log", file_list=[FILE], **arguments)
        assert found is not None
        assert found.inside is not None
        assert found.inside.history is history
    tagged = Selection(RevisionsField(1, newest=Tag(b"v1"), numbers=True))
    assert asked("log", file_list=[URL], revision=specs("tag:v1")) == tagged
    assert asked("log", file_list=[URL], revision=specs("1.2.3")) == Selection(BARE)
    assert asked("log", file_list=[URL], revision=specs("v1", "v2")) == Selection(RevisionsField(left_hand=True))
    assert asked("log", file_list=[URL], revision=specs("v1"), levels=0) == Selection(RevisionsField())


@pytest.mark.parametrize(("limit", "read"), [(0, 0), (1, 9), (9, 9), (10, 9 + 13), (22, 22), (23, 22 + 19)])
def test_a_log_reads_revisions_in_batches(limit: int, read: int) -> None:
    assert batched(limit) == read
    assert 10_000 <= batched(10_000) < 10_200  # No batch has more than 200.


def test_what_is_removed_and_what_is_the_tip_then() -> None:
    def uncommit(said: str | None) -> Selection | None:
        return asked("uncommit", location=URL, revision=None if said is None else specs(said))

    one = Selection(RevisionsField(oldest=TIP), TreesField([-2], paths=[], texts=False), ends=True, ids=[])
    assert uncommit(None) == one
    assert uncommit("5") == Selection(
        RevisionsField(oldest=6), TreesField([5], paths=[], texts=False), ends=True, ids=[]
    )
    assert uncommit("-1") == Selection(RevisionsField(1))
    assert uncommit("tag:v1") is None
    assert uncommit("revid:x") is None
    assert asked("uncommit", location=None, revision=None) is None


def test_what_a_description_reads() -> None:
    assert asked("info", verbose=0) == Selection()
    assert asked("info", verbose=2) == Selection(trees=TreesField([TIP, 1], paths=[], texts=False), stats=True)
    assert asked("tags") == Selection(NUMBERED)
    assert asked("tags", revision=specs("1", "2")) == Selection(BARE)


# -- lightweight checkouts


class Light:
    """A lightweight checkout of one parent, with a file changed."""

    def __init__(self, *parents: bytes) -> None:
        self._parents = list(parents)

    def parents(self) -> list[bytes]:
        return self._parents

    def ghosts(self) -> list[bytes]:
        return [b"ghost"]

    def changed(self) -> list[bytes]:
        return [b"f-id\0one"]


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> Light:
    """The one that everything lies in."""
    made = Light(b"one")
    monkeypatch.setattr("smartserver.plugins.breezy.selection.checkout_of", lambda path: made)
    monkeypatch.setattr("smartserver.plugins.breezy.selection.open_checkout", lambda path: made)
    return made


def test_in_a_checkout_only_what_it_has_not_is_read(light: Light) -> None:
    files = [b"f-id\0one"]
    moved = TreesField([TIP], had=[b"one"], files=files)
    assert asked("update", dir=None) == Selection(
        RevisionsField(bare=True, newest=TIP, oldest=b"one"), moved, ends=True
    )
    assert asked("switch", to_location=URL) == Selection(trees=moved)
    assert asked("revert", file_list=None, revision=specs("-1")) == Selection(trees=moved)
    of_files = Selection(trees=TreesField(files=files, texts=False))
    assert asked("diff", file_list=None) == asked("revert", file_list=None) == of_files
    there = TreesField(texts=False, had=[b"one"])
    assert asked("status", file_list=None) == Selection(trees=there, later=TreesField([], texts=False))
    assert asked("commit", selected_list=None) == Selection(
        trees=TreesField(texts=False, had=[b"one", b"ghost"]), ids=[]
    )
    shown = TreesField(texts=False, had=[b"one", b"ghost"], files=files)
    assert asked("commit", selected_list=None, show_diff=True) == Selection(trees=shown, ids=[])
    kept = TreesField([-2], had=[b"one"], texts=False)
    assert asked("uncommit", location=None) == Selection(RevisionsField(oldest=TIP), kept, ends=True, ids=[])
    # Which revision it is says the branch, and its tree is read then.
    assert asked("update", dir=None, revision=specs("tag:v1")) == Selection(
        None, None, TreesField([], had=[b"one"], files=files), ids=[b"one"]
    )


def test_what_a_tree_rests_on_is_asked_for_besides(light: Light) -> None:
    """The branch may not reach it any more."""
    asked_for = asked("annotate", filename="/nowhere/f", revision=None)
    assert asked_for is not None
    assert (asked_for.chosen, asked_for.ids) == (BARE, [b"one"])
    assert asked_for.trees is not None
    assert asked_for.trees.revisions == [TIP, b"one"]
    for arguments in (
        {"filename": FILE},
        {"filename": "f", "revision": specs("1")},
        {"filename": "f", "directory": URL},
    ):
        of_branch = asked("annotate", **{"revision": None, **arguments})
        assert of_branch is not None
        assert of_branch.ids == []
    itself = TreesField([b"one"], paths=[], texts=False)
    assert asked("version-info", location=None) == Selection(BARE, itself, ids=[b"one"])
    assert asked("version-info", location=None, all=True) == Selection(RevisionsField(), itself, ids=[b"one"])
    said = TreesField([1], paths=[], texts=False)
    assert asked("version-info", location=None, revision=specs("1")) == Selection(trees=said, later=TreesField())
    said_by_all = Selection(RevisionsField(), later=TreesField())
    assert asked("version-info", location=None, revision=specs("1"), include_history=True) == said_by_all


def test_a_merge_is_committed_on_what_was_merged(light: Light) -> None:
    assert commit_on([b"one"]) == Selection(trees=TreesField(texts=False, had=[b"one"]), ids=[])
    assert commit_on([b"one", b"two"]) == Selection(BARE, TreesField(texts=False, had=[b"one", b"two"]), ids=[b"two"])


def test_what_is_pulled_into_a_checkout() -> None:
    light = Light(b"one")
    moved = TreesField([TIP], had=[b"one"], files=light.changed())
    expected = Selection(RevisionsField(bare=True, oldest=b"one"), moved, ends=True, ids=[b"one"])
    assert pulled_into(light, {}) == expected  # type: ignore[arg-type]
    shown = pulled_into(light, {"verbose": True})  # type: ignore[arg-type]
    assert shown.chosen == RevisionsField(oldest=b"one")
    assert pulled_into(light, {"revision": specs("v1")}).trees is None  # type: ignore[arg-type]
    assert pulled_into(Light(), {}).chosen is None  # type: ignore[arg-type]
