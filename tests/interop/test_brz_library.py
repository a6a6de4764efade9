"""A branch and a repository on a server keep the promises of Breezy's interfaces to programs that use them as a
library: plugins.breezy.branch, plugins.breezy.controldir, plugins.breezy.inter, plugins.breezy.push,
plugins.breezy.remote, plugins.breezy.repository, plugins.breezy.upkeep."""

from __future__ import annotations

import pytest
from brz_sides import Users
from test_brz_process import program

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

RAISED = """
def raised(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as wrong:
        return type(wrong).__name__
    return "nothing"

branch = Branch.open(url)
"""


def run(users: Users, source: str, where: str = "a") -> list[str]:
    return program(users, where, RAISED + source, url=users.url(), other=users.url("other"))


# -- reading


def test_a_parent_that_was_removed_is_none(users: Users) -> None:
    """Breezy removes the parent by an empty location, which is no location below the branch."""
    assert run(users, "branch.set_parent('/parent'); print(branch.get_parent())") == ["file:///parent"]
    assert run(users, "branch.set_parent(None); print(branch.get_parent(), Branch.open(url).get_parent())") == [
        "None",
        "None",
    ]
    assert users.run("", "checkout", "-q", "--lightweight", users.url(), "light").status == 0
    assert users.refused("light", "pull") == "brz: ERROR: No pull location known or specified.\n"


def test_what_cannot_be_done_is_breezys_own_error(users: Users) -> None:
    users.commit("a", "four")
    source = """
from breezy.controldir import ControlDir
here = Branch.open(".")
print(
    branch.get_rev_id(0).decode(), raised(branch.get_rev_id, 4), raised(branch.get_rev_id, -1),
    *[raised(ControlDir.open(to).push_branch, here, revision_id=b"none") for to in (url, other)],
    *[raised(branch.repository.fetch, place.repository, b"none") for place in (here, Branch.open(url))],
    raised(branch.pull, here, local=True),
)
"""
    found = run(users, source)
    assert found == ["null:", *["RevnoOutOfBounds"] * 2, *["NoSuchRevision"] * 4, "LocalRequiresBoundBranch"]
    assert users.served_tip() == users.tip("b")


def test_a_clone_has_the_history_that_another_local_branch_has(users: Users) -> None:
    """The server is not asked for revisions of the branch opened last; the clone needs these, too."""
    source = """
Branch.open(".")
made = branch.controldir.clone("../clone").open_branch()
with made.lock_read():
    print(len(made.repository.all_revision_ids()), made.revno())
"""
    assert run(users, source) == ["3", "3"]


def test_a_checkout_is_made_of_what_lies_below_commits_of_the_same_branch(users: Users) -> None:
    """Only a part of the revision on which the commit is based has been read."""
    source = """
tree = branch.create_checkout("../light", lightweight=True)
made = []
for name in ("first", "second"):
    open(f"../light/{name}", "w").write(name)
    tree.add([name])
    made.append(tree.commit(name))
whole = tree.branch.create_checkout("../whole", revision_id=made[0])
print(whole.last_revision() == made[0], whole.has_filename("first"), whole.has_filename("second"))
"""
    assert run(users, source) == ["True", "True", "False"]


def test_a_fetch_is_limited(users: Users) -> None:
    source = """
from breezy.controldir import ControlDir, format_registry
made = ControlDir.create_branch_convenience("../made", format=format_registry.make_controldir("2a"))
revisions = [branch.get_rev_id(revno) for revno in (1, 2, 3)]
found = []
for limit in (1, 1, None):
    made.fetch(Branch.open(url), limit=limit)
    found.append(len(made.repository.has_revisions(revisions)))
print(*found)
"""
    assert run(users, source) == ["1", "2", "3"]


def test_all_is_searched_where_no_revision_is_named(users: Users) -> None:
    source = """
from breezy.controldir import ControlDir, format_registry
made = ControlDir.create_branch_convenience("../made", format=format_registry.make_controldir("2a"))
made.fetch(branch, branch.get_rev_id(1))
print(len(made.repository.search_missing_revision_ids(Branch.open(url).repository).get_keys()))
"""
    assert run(users, source) == ["2"]


# -- changes


def test_hooks_of_a_pull_and_a_push_are_run_while_the_branch_is_locked(users: Users) -> None:
    source = """
said = []
for name in ("post_pull", "post_push"):
    def hook(result, name=name):
        locked = result.source_branch.is_locked() and result.master_branch.is_locked()
        said.extend([name, result.old_revno, result.new_revno, result.local_branch, locked])
    Branch.hooks.install_named_hook(name, hook, None)
here = Branch.open(".")
branch.pull(here)
branch.pull(here)
here.push(here.controldir.sprout(other).open_branch())
print(*said)
"""
    users.commit("a", "four")
    assert run(users, source) == [
        *["post_pull", "3", "4", "None", "True"],
        *["post_pull", "4", "4", "None", "True"],
        *["post_push", "4", "4", "None", "True"],
    ]


def test_what_is_copied_has_the_same_parent(users: Users) -> None:
    source = """
here = Branch.open("../b")
made = Branch.open(".").controldir.sprout(other).open_branch()
here.copy_content_into(made)
print(here.get_parent() is not None and Branch.open(other).get_parent() == here.get_parent())
"""
    assert run(users, source) == ["True"]


def test_signatures_go_from_server_to_server(users: Users) -> None:
    """Signatures that came after their revisions go, too; a server stores these apart."""
    source = """
from breezy import gpg
from breezy.repository import WriteGroup
tip = branch.last_revision()
with branch.lock_write(), WriteGroup(branch.repository):
    branch.repository.sign_revision(tip, gpg.LoopbackGPGStrategy(None))
import os
os.chdir("/")
elsewhere = url.replace("/trunk", "-elsewhere/trunk")
Branch.open(url).controldir.sprout(elsewhere)
print(Branch.open(elsewhere).repository.has_signature_for_revision_id(tip))
"""
    assert run(users, source) == ["True"]


def test_a_tree_in_memory_is_committed(users: Users) -> None:
    source = """
tree = branch.create_memorytree()
with tree.lock_write():
    tree.put_file_bytes_non_atomic("one", b"other\\n")
    revision = tree.commit("in memory", committer="m <m@example.org>")
print(Branch.open(url).last_revision() == revision)
"""
    assert run(users, source) == ["True"]
    assert users.run("b", "pull", "-q").status == 0
    assert (users.path("b") / "one").read_text() == "other\n"


# -- Loggerhead, which nobody here wrote, uses Breezy as a library


BROWSE = """
import io, re, warnings
warnings.simplefilter("ignore")
from loggerhead.apps.branch import BranchWSGIApp
from smartserver.client.call import Client

asked = []
request = Client.request
Client.request = lambda self, outgoing: (asked.append(1), request(self, outgoing))[1]

def page(location, path):
    branch = Branch.open(location)
    environment = {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "localhost",
        "SERVER_PORT": "80", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "wsgi.errors": sys.stderr,
        "wsgi.version": (1, 0), "wsgi.multithread": False, "wsgi.multiprocess": False, "wsgi.run_once": False,
    }
    said, written = [], []
    application = BranchWSGIApp(branch, "trunk", {"cache_dir": None}, {}, is_root=True)
    rest = application.app(environment, lambda status, headers, *_: (said.append(status), written.append)[1])
    body = b"".join([*written, *rest])
    assert said == ["200 OK"], (said, body)
    return re.sub(rb"\\d+ (seconds?|minutes?) ago|trunk/?|a/", b"", body.replace(location.encode(), b""))

def compare(*paths):
    for path in paths:
        del asked[:]
        theirs = page(url, path)
        count = len(asked)
        assert theirs == page(here, path), path
        assert count <= 3, (path, count)
"""


def test_loggerhead_shows_what_it_shows_of_a_local_branch(users: Users) -> None:
    """It sees what another user pushes at its next request."""
    source = """
compare("/changes", "/files", "/annotate/head:/two", "/revision/2", "/view/head:/one")
open(f"{here}/four", "w").write("four")
tree = WorkingTree.open(here)
tree.add(["four"])
tree.commit("another", committer="a <a@example.org>")
push(here, url)
compare("/changes", "/files", "/view/head:/four")
print("same")
"""
    assert program(users, "b", BROWSE + source, url=users.url(), here=str(users.path("a"))) == ["same"]
