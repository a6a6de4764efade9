"""plugins.breezy.controldir, plugins.breezy.words: the branches that `brz` and a program create
on a server, and the requests that they refuse.

plugins.breezy.inter, plugins.breezy.repository: a lightweight checkout's branch takes what commands insert into
its repository (bundles, rebase), and is compared with others, as a local one."""

from __future__ import annotations

import os
import shutil

import pytest
from breezy import errors
from breezy.branch import Branch
from breezy.controldir import ControlDir
from breezy.errors import BzrError
from breezy.transport import get_transport
from brz_sides import Users, in_process

from smartserver.plugins.breezy.words import NotOnServer

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def test_a_folder_that_may_be_used(users: Users) -> None:
    users.path("folder").mkdir()
    assert users.run("", "branch", "--use-existing-dir", users.url(), "folder").status == 0
    assert users.tip("folder") == users.served_tip()


def test_a_checkout_into_a_control_directory_without_a_branch(users: Users) -> None:
    assert users.run("", "init-shared-repository", "-q", "shared").status == 0
    for where, target in (("", "shared"), ("shared", "below")):
        users.fine(where, "checkout", users.url(), target)
        assert users.tip(os.path.join(where, target)) == users.served_tip()


def test_a_repository_is_told_from_nothing(users: Users) -> None:
    assert users.run("", "init-shared-repository", "-q", users.served.url("shared")).status == 0
    for words in (["branch"], ["log"], ["pull", "-d", "a"], ["merge", "-d", "a"], ["checkout"], ["tags", "-d"]):
        there = users.run("", *words, users.served.url("shared"))
        assert there.said.endswith('/shared/": location is a repository.\n'), there.said
        assert not users.run("", *words, users.served.url("none")).said.endswith("location is a repository.\n")
    assert users.run("", "push", "-q", "-d", "a", users.served.url("alone")).status == 0
    inside = users.run("", "branch", users.served.url("alone/nothing"))
    assert inside.said.endswith('/alone/nothing/".\n'), inside.said


def test_a_clone_takes_one_round_trip(users: Users) -> None:
    users.path("folder").mkdir()
    assert "Created new control directory.\n" in users.ask("branch", "", "clone", users.url(), "folder")
    assert users.tip("folder") == users.served_tip()
    assert "Created new control directory.\n" in users.ask("branch", "", "clone", "-r1", "a", users.url("cloned"))
    assert users.run("", "revno", users.url("cloned")).out == "1\n"


def test_a_branch_that_is_there_is_refused_before_a_revision_that_is_not(users: Users) -> None:
    """Breezy does the same for a local target. A tag may name a revision that was never pushed."""
    users.commit("b", "four")
    users.tag("b", "lost")
    assert users.run("b", "uncommit", "-q", "--force", "--keep-tags").status == 0
    for place in ("trunk", "other"):
        assert users.run("b", "push", "-q", users.url(place)).status == 0
    done = users.run("", "branch", "-r", "tag:lost", users.url(), users.url("other"))
    assert (done.status, done.said) == (3, 'brz: ERROR: Already a branch: "URL/other/".\n')
    assert "has no revision" in users.refused("", "branch", "-r", "tag:lost", users.url(), users.url("new"))


def test_a_new_branch_records_its_parent(users: Users) -> None:
    for source, name in ((users.url(), "copy"), ("a", "sent")):
        assert users.run("", "branch", "-q", source, users.url(name)).status == 0
    assert users.served_entries("config", "copy") == {"": b"parent_location = ../trunk/\n"}
    assert "parent branch: URL/trunk/" in users.run("", "info", users.url("copy")).out
    assert "parent branch: a\n" in users.run("", "info", users.url("sent")).out
    assert users.run("b", "switch", "-q", "-b", users.url("switched")).status == 0
    assert users.served_entries("config", "switched").keys() == {""}


def test_a_program_clones(users: Users) -> None:
    with in_process():
        for name, source in (("one", str(users.path("b"))), ("two", users.url())):
            here = Branch.open(source)
            made = here.create_clone_on_transport(get_transport(users.url(name)))
            assert made.last_revision_info() == here.last_revision_info() == users.served_tip(name)
            assert made.get_parent() == here.get_parent()
        with pytest.raises(errors.AlreadyBranchError):
            Branch.open(str(users.path("a"))).create_clone_on_transport(get_transport(users.url()))


def test_what_a_program_asks_that_cannot_be_done_is_breezy_s_own_error(users: Users) -> None:
    with in_process():
        there, here = Branch.open(users.url()), Branch.open(str(users.path("a")))
        control = there.controldir
        new = ControlDir.open(users.url("new"))
        with there.lock_write():
            for refused in (
                lambda: there.set_last_revision_info(0, b"null:"),
                lambda: new.create_branch(),
                lambda: control.cloning_metadir(require_stacking=True),
                lambda: there.repository.reconcile_canonicalize_chks(),
                lambda: there.repository.set_make_working_trees(False),
                lambda: control.push_branch(here, lossy=True),
                lambda: here.controldir.sprout(users.url("other"), stacked=True),
                lambda: control.destroy_repository(),
            ):
                with pytest.raises(NotOnServer) as caught:
                    refused()  # type: ignore[no-untyped-call]
                assert isinstance(caught.value, errors.UnsupportedOperation)
            assert str(caught.value).endswith(f"`smartserver delete {users.url('')}` deletes all of it")
            here.repository.copy_content_into(there.repository)  # What it would do of that policy, it is not told.
            with pytest.raises(errors.NotLocalUrl):
                control.create_workingtree()
            for wrong in (lambda: there.tags.set_tag("x" * 2000, b"any"), lambda: here.push(new.unasked(), lossy=True)):
                with pytest.raises(errors.BzrError) as caught:
                    wrong()  # type: ignore[no-untyped-call]
                assert not isinstance(caught.value, errors.CommandError)
            with pytest.raises(errors.NotBranchError):
                new.open_branch().last_revision()


@pytest.fixture
def light(users: Users) -> Users:
    """A lightweight checkout of `trunk`; `new` is two revisions ahead of it, `apart` has two that it has not."""
    shutil.copytree(users.path("a"), users.path("new"))
    users.commit("new", "four")
    users.commit("new", "five")
    assert users.run("", "branch", "-q", "-r", "2", "a", "apart").status == 0
    users.commit("apart", "other")
    users.commit("apart", "another")
    for name in ("new", "apart"):
        assert users.run(name, "send", "-q", "-o", f"../{name}.bundle", "../a").status == 0
    assert users.run("", "checkout", "--lightweight", users.url(), "light").status == 0
    return users


def fine(users: Users, *words: str) -> str:
    return users.fine("light", *words).said


def stored(users: Users) -> list[str]:
    """The packs of the repository on the server."""
    return sorted(os.listdir(os.path.join(users.served.root, users.place, "packs")))


def checked(users: Users) -> None:
    """The branch on the server can be branched, and Breezy finds nothing wrong with what comes."""
    assert users.run("", "branch", "-q", users.url(), "got").status == 0
    users.check("got")


def test_merge_of_a_bundle(light: Users) -> None:
    before = light.served_tip()
    done = light.run("light", "merge", "../apart.bundle")
    assert (done.status, done.counts.rounds) == (0, 3), done.said  # To connect, read and send.
    assert light.served_tip() == before
    assert "pending merge tips" in fine(light, "status")
    assert "Committed revision 4." in fine(light, "commit", "-m", "merged")
    checked(light)
    assert light.tip("apart")[1] in light.run("", "log", "-n0", "--show-ids", light.url()).out.encode()


def test_pull_of_a_bundle(light: Users) -> None:
    assert "Now on revision 5." in fine(light, "pull", "../new.bundle")
    assert light.served_tip() == light.tip("new")
    assert fine(light, "status") == ""
    checked(light)


def test_a_bundle_that_is_torn_leaves_nothing(light: Users) -> None:
    bundle = light.path("apart.bundle")
    text = bundle.read_text()
    bundle.write_text(text[: text.index("# Begin bundle") + 400])
    assert light.run("light", "merge", "../apart.bundle").status != 0
    assert fine(light, "status") == ""
    assert fine(light, "commit", "--unchanged", "-m", "empty").endswith("Committed revision 4.\n")
    checked(light)


@pytest.mark.parametrize("words", [["bundle-revisions", "-o", "-"], ["send", "-o", "-"]])
def test_what_is_compared_is_not_sent(light: Users, words: list[str]) -> None:
    light.commit("a", "beside")
    (light.path("light") / "one").write_text("changed\n")
    fine(light, "commit", "-m", "to be sent")
    before = stored(light)
    said = light.run("light", words[0], "../a", *words[1:]).out
    assert "+changed\n" in said
    assert "beside" not in said
    light.path("sent").write_text(said)
    assert light.run("a", "merge", "../sent").status == 0
    assert stored(light) == before


def test_remerge(light: Users) -> None:
    fine(light, "merge", "../apart")
    assert fine(light, "remerge", "--weave") == "All changes applied successfully.\n"
    fine(light, "commit", "-m", "merged")
    checked(light)


MANY = "each revision that is made again is a commit of its own, which reads what it rests on"


@pytest.mark.unbanned(MANY)
def test_rebase(light: Users) -> None:
    for name in ("mine", "too"):
        light.path("light").joinpath(name).write_text(f"{name}\n")
        fine(light, "add", name)
        fine(light, "commit", "-m", name)
    fine(light, "rebase", "../apart")
    assert fine(light, "status") == ""
    subjects = [line.split(maxsplit=3)[3] for line in fine(light, "log", "--line", "-n0").splitlines()]
    assert subjects == [
        "too",
        "mine",
        "commit three",
        "commit another",
        "commit other",
        "commit two",
        "{v1} commit one",
    ]
    checked(light)


def test_reconfigure(light: Users) -> None:
    light.commit("b", "lost")
    assert light.run("b", "uncommit", "-q", "--force").status == 0
    assert light.run("b", "revert", "-q").status == 0
    assert light.run("b", "reconfigure", "--lightweight-checkout", "--bind-to", light.url()).status == 0
    assert "light checkout root" in light.run("b", "info").out
    assert light.served_tip() == light.tip("a")


def test_a_library_s_write_group(light: Users) -> None:
    with in_process():
        there, here = Branch.open(light.url()), Branch.open(str(light.path("apart")))
        there.repository.fetch(here.repository, here.last_revision())
        with there.lock_write():
            there.set_last_revision_info(4, here.last_revision())
        assert light.served_tip() == light.tip("apart")
        with pytest.raises(BzrError):
            there.repository.fetch(here.repository, b"none")
        there.remote.server.close()
    checked(light)
