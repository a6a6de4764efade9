"""Breezy's own `test_vfs_ratchet` on ours: each scenario, the calls it asserts, and the round trips it takes here.

What is refused is in a table of its own: together they are all Breezy has.
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import breezy.bzr
import pytest
from breezy.workingtree import WorkingTree
from brz_sides import CLOSING, LOOPBACK, SHIM, Users, copy_start, in_process

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


class Scenario(NamedTuple):
    """{there} is the branch on the server, {made} a place there where nothing is, {here} a folder for what is made."""

    name: str
    old: int
    """Calls that Breezy asserts."""
    ours: int
    """Round trips."""
    command: str
    says: str = ""
    where: str = ""
    """The folder it runs in: user a has seen the branch before, who is in none has not."""


READS = (
    Scenario("Annotate.test_simple_annotate", 9, 1, "annotate -d {there} one", " | one\n"),
    Scenario(
        "Branching.test_branch_from_trivial_branch_streaming_acceptance", 11, 1, "branch {there} {here}/b", "Bran"
    ),
    Scenario("BreakLock.test_simple_branch_break_lock", 5, 1, "break-lock --force {there}", "no locks to break"),
    Scenario("Cat.test_simple_branch_cat", 9, 1, "cat {there}/two", "two\n"),
    Scenario("Checkout.test_heavyweight_checkout", 11, 1, "checkout {there} {here}/c"),
    Scenario("Checkout.test_lightweight_checkout", 13, 1, "checkout --lightweight {there} {here}/l"),
    Scenario("Config.test_simple_branch_config", 5, 1, "config -d {there}"),
    Scenario("Info.test_simple_branch_info", 10, 1, "info {there}", "repository branch: "),
    Scenario("Info.test_verbose_branch_info", 14, 1, "info -v {there}", "3 revisions"),
    Scenario("Export.test_simple_export", 8, 1, "export {here}/foo.tar.gz {there}"),
    Scenario("Log.test_standard_log", 9, 1, "log {there}", "commit three"),
    Scenario("Log.test_verbose_log", 10, 1, "log -v {there}", "added:\n  three"),
    Scenario("Log.test_per_file", 14, 1, "log -v {there}/two", "commit two"),
    Scenario("Ls.test_simple_ls", 6, 1, "ls {there}", "trunk/two\n"),
    Scenario("Revno.test_simple_branch_revno", 6, 1, "revno {there}", "3\n"),
    Scenario("Revno.test_simple_branch_revno_lookup", 5, 1, "revno -rrevid:{first} {there}", "1\n"),
    Scenario("Tags.test_show_tags", 6, 1, "tags -d {there}", "v1"),
)
"""Of a branch that stays as it is."""

CHANGES = (
    Scenario("Branching.test_branch_from_trivial_branch_to_same_server_branch_acceptance", 34, 1,
             "branch {there} {there}-copy", "Branched 3 revisions.", "a"),
    Scenario("InitRepository.test_init_repo_smart_acceptance", 11, 1, "init-shared-repository {made}", "Shared"),
    Scenario("Push.test_push_smart_non_stacked_streaming_acceptance", 9, 1, "push {there}-new", "Created", "a"),
    Scenario("Pack.test_simple_pack", 6, 1, "pack {there}"),
    Scenario("Reconcile.test_simple_reconcile", 10, 1, "reconcile {there}"),
    Scenario("RemoveBranch.test_simple_remove_branch", 5, 1, "rmbranch {there}"),
    Scenario("Tags.test_set_tag", 9, 1, "tag -d {there} tagname", "Created tag tagname", "a"),
    Scenario("Uncommit.test_uncommit", 14, 2, "uncommit --force {there}", "restore the old tip"),
)  # fmt: skip
"""Of one that is another's afterwards."""

PREPARED = {
    "Branching.test_branch_from_branch_with_ghosts": 12,
    "Branching.test_branch_from_branch_with_tags": 11,
    "Commit.test_commit_to_lightweight": 211,
    "Push.test_push_smart_incremental_acceptance": 11,
    "Push.test_push_smart_tags_streaming_acceptance": 11,
    "Send.test_send": 7,
    "SignMyCommits.test_sign_single_commit": 15,
    "Switch.test_switch_lightweight": 21,
    "VerifySignatures.test_verify_signatures": 10,
}
"""Those with a test of their own below: calls that Breezy asserts. Here each is one round trip, but for a commit
and signing, which are two."""

REFUSED = {
    "Branching.test_branch_from_trivial_stacked_branch_streaming_acceptance": 16,
    "Branching.test_branch_to_stacked_from_trivial_branch_streaming_acceptance": None,
    "Push.test_push_smart_stacked_streaming_acceptance": 15,
}
"""Stacked branches: a line says so (`test_brz_commands`)."""


ELSEWHERE = {
    "test_ping.TestSmartServerPing.test_simple_ping": 1,
    "test_pull.TestPull.test_pull_smart_stacked_streaming_acceptance": 20,
}
"""What Breezy asserts of commands in other files of its, with tests below. Of stacked branches there are none here: the
pull of one is a pull, and a ping is refused with what does it."""


def breezys_others() -> dict[str, int]:
    """Each figure that Breezy asserts in its tests of commands."""
    found = {}
    for source in sorted((Path(breezy.bzr.__file__).parents[1] / "tests" / "blackbox").glob("test_*.py")):
        text = source.read_text(encoding="utf-8")
        if "hpss_calls" in text:
            for kind in ast.parse(text).body:
                for test in kind.body if isinstance(kind, ast.ClassDef) else ():
                    asserted = re.search(r"assertLength\((\d+), self\.hpss_calls\)", ast.unparse(test))
                    if isinstance(kind, ast.ClassDef) and isinstance(test, ast.FunctionDef) and asserted:
                        found[f"{source.stem}.{kind.name}.{test.name}"] = int(asserted[1])
    return found


def breezys_own() -> dict[str, int | None]:
    """Each scenario of Breezy's, and the calls it asserts."""
    source = Path(breezy.bzr.__file__).parent / "tests" / "test_vfs_ratchet.py"
    found: dict[str, int | None] = {}
    for kind in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(kind, ast.ClassDef):
            for test in kind.body:
                if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                    asserted = re.search(r"assertLength\((\d+), self\.hpss_calls\)", ast.unparse(test))
                    name = f"{kind.name.removeprefix('TestSmartServer')}.{test.name}"
                    found[name] = int(asserted[1]) if asserted else None
    return found


def test_the_old_figures_are_breezys_own_and_no_scenario_is_left_out() -> None:
    told: dict[str, int | None] = {each.name: each.old for each in (*READS, *CHANGES)}
    assert {**told, **PREPARED, **REFUSED} == breezys_own()
    assert len(told) == len(READS) + len(CHANGES)
    assert breezys_others() == ELSEWHERE


def ask(users: Users, trips: int, where: str, *words: str, status: int = 0, **variables: str) -> str:
    """What brz said, in so many round trips and without a VFS call."""
    done = users.run(where, *words, "-Dhpss", **variables)
    assert done.status == status, done.said
    assert CLOSING.findall(done.err) == [(str(trips), "0")], done.said
    assert (done.counts.rounds_without_handshake, done.counts.rounds) == (trips, trips + 1), (done.counts, done.said)
    return CLOSING.sub("", done.said)


def words(users: Users, scenario: Scenario, here: Path) -> list[str]:
    with users.branch("a") as branch:
        first = branch.get_rev_id(1).decode()
    made = users.served.url(f"{users.place}-made")
    return shlex.split(scenario.command.format(there=users.url(), made=made, here=here, first=first))


@pytest.fixture(scope="module")
def readers(brz_start: Users, tmp_path_factory: pytest.TempPathFactory) -> Users:
    """Users who change nothing on the server."""
    return copy_start(brz_start, tmp_path_factory.mktemp("readers") / "users", "brz-readers")


@pytest.mark.parametrize("scenario", READS, ids=lambda scenario: scenario.name)
def test_of_a_branch_that_stays(readers: Users, scenario: Scenario, tmp_path: Path) -> None:
    said = ask(readers, scenario.ours, scenario.where, *words(readers, scenario, tmp_path))
    assert scenario.says in said


@pytest.mark.parametrize("scenario", CHANGES, ids=lambda scenario: scenario.name)
def test_of_a_branch_that_changes(users: Users, scenario: Scenario, tmp_path: Path) -> None:
    assert scenario.says in ask(users, scenario.ours, scenario.where, *words(users, scenario, tmp_path))


def test_push(users: Users) -> None:
    users.commit("a", "four")
    assert "Pushed up to revision 4." in ask(users, 1, "a", "push", users.url())
    users.tag("a", "new-tag")
    assert "Created new branch" in ask(users, 1, "a", "push", users.url("to-one"))
    assert users.served_entries("tags", "to-one").keys() == {"v1", "new-tag"}


def test_branch_with_ghosts_and_tags(users: Users) -> None:
    with in_process():
        tree = WorkingTree.open(str(users.path("a")))
        tree.set_parent_ids([tree.last_revision(), b"ghost"])
        tree.commit("a ghost", committer="a <a@example.org>")
    with users.branch("a") as branch:
        branch.tags.set_tag("tag-missing", b"missing-rev")
    assert users.run("a", "push", users.url()).status == 0
    ask(users, 1, "", "branch", users.url(), "made")
    assert (users.tip("made"), users.tags("made")) == (users.tip("a"), users.tags("a"))


def test_send(users: Users) -> None:
    users.commit("b", "another")
    ask(users, 1, "b", "send", "-o", "x.diff", users.url())
    assert users.tip("b")[1] in (users.path("b") / "x.diff").read_bytes()


def test_commit_and_switch_in_a_lightweight_checkout(users: Users) -> None:
    ask(users, 1, "", "checkout", "--lightweight", users.url(), "target")
    users.path("target/afile").write_text("content\n")
    assert users.run("", "add", "target/afile").counts.rounds == 0
    assert "Committed revision 4." in ask(users, 2, "", "commit", "-m", "do something", "target")
    assert users.run("b", "pull", users.url()).status == 0
    assert (users.path("b") / "afile").read_text() == "content\n"
    assert "Tree is up to date at revision 4." in ask(users, 1, "target", "switch", users.url())


def test_sign_and_verify(users: Users, tmp_path: Path) -> None:
    """Signing reads what is there, and sends the signatures."""
    (tmp_path / "loopback.py").write_text(LOOPBACK)
    plugin = f"hpss@{SHIM}:loopback@{tmp_path / 'loopback.py'}"
    assert users.run("", "rmbranch", users.url()).status == 0
    users.make("alone")
    users.commit("alone", "foo", b"thecontents")
    assert users.run("alone", "push", users.url("alone")).status == 0
    said = ask(users, 2, "alone", "sign-my-commits", users.url("alone"), "alone <alone@example.org>", plugin=plugin)
    assert said.endswith("Signed 1 revision.\n")
    assert users.run("alone", "sign-my-commits", plugin=plugin).status == 0
    said = ask(users, 1, "alone", "verify-signatures", users.url("alone"), plugin=plugin)
    assert said == "All commits signed with verifiable keys\n"


def test_pull_of_one_revision_of_a_branch_that_went_on(users: Users) -> None:
    users.make("empty")
    users.commit("a", "four")
    assert users.run("a", "push", users.url("went-on")).status == 0
    assert "Now on revision 1." in ask(users, 1, "empty", "pull", "-r", "1", users.url("went-on"))
    assert users.tip("empty")[0] == 1


def test_ping_says_what_pings(users: Users) -> None:
    done = users.run("", "ping", users.url())
    assert done.status == 3
    assert done.counts.rounds == 0
    assert "`smartserver ping URL` pings a server of hpss://" in done.err
