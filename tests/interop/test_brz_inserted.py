"""plugins.breezy.inter, plugins.breezy.repository: a lightweight checkout's branch takes what commands insert into
its repository (bundles, rebase), and is compared with others, as a local one."""

from __future__ import annotations

import os
import shutil

import pytest
from breezy.branch import Branch
from breezy.errors import BzrError
from brz_sides import Users, in_process

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


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
