"""plugins.breezy.tracer, plugins.breezy_shim: Breezy finds the plugin and loads few modules; and the output of the
plugin in the log, on a refusal by the server, and on an interrupt.

plugins.breezy.server, plugins.breezy.remote, plugins.breezy.remotes: the plugin takes a command's options from
Breezy's parser. A program that uses Breezy as a library, or runs several commands, gets the current state each time.

plugins.breezy.credentials: brz with a token of authentication.conf, or of the environment."""

from __future__ import annotations

import functools
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from access_rules import ADMIN
from agents import of_its_own
from breezy.errors import CommandError
from brz_sides import ROOT, SHIM, Users
from git_sides import Served, Side, environment

from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy import tracer
from smartserver.plugins.breezy.words import BOUND, RECONFIGURED
from smartserver.server.tokens import TokenChanges
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


PATIENCE = 60.0


@pytest.fixture
def access(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(ADMIN)
    return path


@pytest.fixture
def team(tmp_path: Path, access: Path) -> Iterator[Users]:
    """User a has a branch; the server knows users by tokens."""
    (tmp_path / "server").mkdir()
    server = Served(tmp_path / "server", "--access", str(access))
    made = Users(tmp_path / "users", server, "team")
    made.make("a")
    made.commit("a", "one")
    yield made
    server.close()


@pytest.fixture
def token(access: Path) -> str:
    return TokenChanges(access).create("anna", int(time.time()), None, None, read_only=False)[0]


def test_one_that_the_environment_has(team: Users, token: str) -> None:
    given = f"{team.url().split('/')[2]}={token}"
    team.fine("a", "push", team.url(), SMARTSERVER_TOKEN=given)
    second = team.run("a", "revno", team.url(), SMARTSERVER_TOKEN=given)
    assert (second.status, second.out) == (0, "1\n"), second.said
    assert second.counts.rounds == 2, "one to connect, and one that has the token"


def test_one_that_breezy_keeps(team: Users, token: str) -> None:
    home = team.folder / "breezys"
    (home / "breezy").mkdir(parents=True)
    kept = home / "breezy" / "authentication.conf"
    kept.write_text(f"[ours]\nscheme = hpss\nhost = 127.0.0.1\nuser = anna\npassword = {token}\n")
    kept.chmod(0o600)
    team.fine("a", "push", team.url(), BRZ_HOME=str(home))
    assert team.run("a", "revno", team.url(), BRZ_HOME=str(home)).counts.rounds == 2


def test_one_that_the_user_types(team: Users, token: str) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "breezy", "push", team.url()],
        cwd=team.path("a"), env=team._environment("a", f"hpss@{SHIM}", {}), input=f"{token}\n", text=True,
        capture_output=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    assert f"Token for hpss://127.0.0.1:{team.served.proxy.port}: " in asked.stderr
    assert token not in asked.stderr + team.log.read_text()


def test_each_call_is_logged(users: Users) -> None:
    assert users.run("b", "pull", "-Dhpss").status == 0
    assert "HPSS calls: 1 (0 vfs) hpss://" in users.log.read_text()
    (line,) = re.findall(r"hpss: Repository\.open\(\); Repository\.pull\(.*", users.log.read_text())
    assert re.search(r" on \S+/trunk: ok, \d+ B up, \d+ B down, \d+ ms \(\d+\.\d ms in the server\)", line)
    users.log.unlink()
    quiet = users.run("b", "pull")
    assert "HPSS" not in quiet.said
    assert "hpss: Repository" not in users.log.read_text()


def test_other_commands_load_nothing_of_it(users: Users) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "breezy", "rocks"],
        env={**environment(users.folder), "BRZ_PLUGINS_AT": f"hpss@{SHIM}"},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(re.findall(r"^import time:.*\|\s*(\S+)$", done.stderr, re.MULTILINE))
    assert "breezy.plugins.hpss" in loaded
    assert not [name for name in loaded if name.partition(".")[0] in ("smartserver", "msgspec", "zstandard")]
    assert hpss.SCHEMES[0] == "hpss://"


def test_an_ordinary_install_is_found(users: Users, tmp_path: Path) -> None:
    """The files are those that pip installs from a wheel; then `smartserver setup brz` is run from there."""
    place = tmp_path / "site-packages"
    words = f"setup.py -q build --build-base {tmp_path} build_py --build-lib {place}"
    built = subprocess.run(
        [sys.executable, *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert sorted(path.name for path in place.iterdir()) == ["hgext3rd", "smartserver", "transports"]
    setup = "import sys; sys.argv = ['smartserver', 'setup', 'brz']; from smartserver.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", setup],
        env={**environment(users.folder / ".home"), "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    done_there = users.run("b", "pull", plugin="")
    assert "No revisions or tags to pull" in done_there.out, done_there.said


def test_a_mistake_is_one_line_and_changes_nothing(users: Users) -> None:
    """Breezy itself would show a traceback or two lines for some of these errors, or find that nothing can replace a
    branch only after it has removed it."""
    url, other, there = users.url(), users.url("other"), users.url("there")
    assert users.run("a", "push", other).status == 0
    repository = PackRepository(LocalTransport(users.served.root), users.place)
    before = dict(repository.snapshot().state.refs())
    no_trees = "there are no working trees on an hpss:// server: URL/there/"
    no_tree = 'No WorkingTree exists for "URL/trunk/".'
    for words, said in {
        "log hpss://localhost:abc/x": 'Invalid url supplied to transport: "hpss://localhost:abc/x": '
        "'hpss://localhost:abc/x' is not a URL of a repository: 'abc' is not a port of 1 to 65535",
        "log hpss://me:secret@h/x": 'Invalid url supplied to transport: "hpss://me:***@h/x": '
        "'hpss://me:***@h/x' is not a URL of a repository: a user or password has no meaning for plain hpss",
        f"cat -r revid:none {url}/one": "URL/ has no revision none",
        f"export -r revid:none e {url}": "URL/ has no revision none",
        f"unbind -d {url}": "Local branch is not bound",
        f"diff -r1..2 {url} {other}": "Path(s) are not versioned: URL/other",
        f"remove-branch {there}": 'Not a branch: "URL/there/".',
        f"push --lossy -d ../a {there}": "a push to hpss:// loses nothing: leave out --lossy",
        "log :submit/one": "No submit/one location assigned.",
        f"branch {url} ../b": 'Already a branch: "../b".',
        f"branch {url} ../none/new": 'Parent of "../none/new" does not exist.',
        f"checkout {url} ../b": 'A control directory already exists: "file://HERE/b/".',
        f"reconfigure --lightweight-checkout --bind-to={users.path('a')} {url}": RECONFIGURED,
        f"reconfigure --tree {url}": RECONFIGURED,
        f"reconfigure --use-shared {url}": RECONFIGURED,
        f"reconfigure --unstacked {url}": RECONFIGURED,
        f"branch --bind ../a {there}": BOUND,
        f"checkout ../a {there}": no_trees,
        f"checkout --lightweight ../a {there}": no_trees,
        f"checkout --lightweight {url} {there}": no_trees,
        f"switch -d {url} {there}": no_tree,
        f"switch -d {url} -b there": no_tree,
        f"switch -d {url} --force ../a": no_tree,
    }.items():
        assert users.refused("b", *words.split()) == f"brz: ERROR: {said}\n", words
    assert dict(repository.snapshot().state.refs()) == before


def test_a_command_that_writes_files_is_told_that_there_are_none(users: Users) -> None:
    done = users.run("", "upload", "-d", "a", users.url("up"))
    there = "there are no files on an hpss:// server: URL/up/one"
    assert (done.status, done.err) == (3, f"brz: ERROR: Transport operation not possible: {there} \n")


def test_a_tag_that_is_not_utf_8(users: Users) -> None:
    refused = users.run("", "tag", "-d", users.url(), "v\udcff", BRZ_LOG="/dev/null")
    assert (refused.status, refused.err) == (3, "brz: ERROR: the tag v : its name is not UTF-8\n")


def test_a_disk_that_takes_no_more_is_named(users: Users) -> None:
    users.commit("a", "large", bytes(400_000))
    assert users.run("a", "push").status == 0
    users.as_whom = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        done = users.run("", "branch", users.url(), "full")
    finally:
        users.as_whom = None
    assert (done.status, done.err) == (3, "brz: ERROR: [Errno 27] File too large: 'HERE/full/'\n")


def test_who_may_only_read_is_told(users: Users, tmp_path: Path) -> None:
    readers = Served(tmp_path, "--anonymous", "read", root=users.served.root)
    try:
        users.commit("a", "four")
        refused = users.run("a", "push", readers.url(f"{users.place}/trunk"))
        assert refused.status == 3
        assert re.fullmatch(r'brz: ERROR: Permission denied: "hpss://\S+/trunk/": .+\n', refused.err)
        # A branch there remembers nothing, and that is no error of a push from it.
        pushed = users.run("", "push", "-d", readers.url(f"{users.place}/trunk"), users.url("copied"))
        assert (pushed.status, pushed.err.count("does not remember where it was pushed")) == (0, 1), pushed.said
        assert users.served_tip("copied") == users.served_tip()
    finally:
        readers.close()


def test_a_repository_of_git_is_none_of_breezys(users: Users, ours: Callable[[str], Side]) -> None:
    url = ours("shared").url
    said = f'brz: ERROR: Not a branch: "{url}/": there is a repository of git sha1, which git clones and pushes to.\n'
    for command in ("branch", "ls", "log", "push -d a", "config -d", "config nickname -d", "config nickname=x -d"):
        refused = users.run("", *command.split(), url)
        assert (refused.status, refused.out, refused.err) == (3, "", said), command


def test_a_local_branch_of_git_is_pushed_by_git(users: Users) -> None:
    users.path("g").mkdir()
    for words in (["init", "--git"], ["commit", "--unchanged", "-m", "one"]):
        assert users.run("g", *words).status == 0
    refused = users.run("g", "push", users.url("g"))
    assert refused.status == 3
    assert refused.err == (
        "brz: ERROR: the repository is one of git, expected one of Breezy's (2a): git itself pushes it "
        "(`git push hpss://...`)\n"
    )
    assert refused.counts.rounds == 0
    assert users.served_tip("g") is None


def test_what_lies_in_the_served_folder_as_its_own_tool_made_it(users: Users) -> None:
    """A repository of another tool, such as a push by SFTP leaves, is named, with the command that gets it served."""
    (users.served.root / f"{users.place}-bzr" / ".bzr").mkdir(parents=True)
    done = users.run("", "branch", users.served.url(f"{users.place}-bzr"), "b2")
    there = users.served.url("ANOTHER-PATH")
    assert done.err == (
        'brz: ERROR: Not a branch: "URL-bzr/": there is a Bazaar repository, which is not served: '
        f"to have it served, run `brz push {there}` in it.\n"
    )
    assert done.status == 3


def test_what_follows_the_path_has_no_meaning(users: Users) -> None:
    for tail in ("?q=1", "#f", "/one?q"):
        refused = users.run("", "log", users.url() + tail)
        assert refused.status == 3
        assert refused.err.endswith(": a query or fragment has no meaning; write ? as %3F and # as %23\n"), refused.err
    users.commit("a", "what?")
    assert users.run("a", "push").status == 0
    assert users.run("", "cat", users.url("trunk/what%3F")).out == "what?\n"


def test_the_ssh_of_breezys_user(users: Users, tmp_path: Path) -> None:
    """A path in BRZ_SSH is obeyed; a name of Breezy's is not."""
    said = tmp_path / "said"
    for name, variables in {"mine": {"BRZ_SSH": f"{tmp_path}/mine"}, "ssh": {"BRZ_SSH": "paramiko"}}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {name} >> {said}\n")
        program.chmod(0o755)
        assert users.run("", "log", "hpss+ssh://h/~/x", PATH=f"{tmp_path}:/usr/bin:/bin", **variables).status == 3
    assert set(said.read_text().split()) == {"mine", "ssh"}


def test_a_banned_call_is_not_sent(users: Users) -> None:
    for words, variables in (
        (("-Dhpss-ban=rpc:Repository.pull",), {"SMARTSERVER_DEBUG": ""}),
        ((), {"SMARTSERVER_DEBUG": "hpssdetail,hpss-ban=vfs:*,rpc:Repository.pull"}),
    ):
        done = users.run("b", "pull", *words, **variables)
        assert done.status == 3, done.said
        assert "brz: ERROR: Repository.pull is banned by the rule rpc:Repository.pull; called from " in done.err
        assert "smartserver/plugins/breezy/" in done.err
        assert done.counts.bytes_up == 0
    assert users.run("b", "pull", "-Dhpss-ban=silly", "-Dhpss-ban=vfs:*").status == 0


def test_a_flag_that_is_none_is_refused(users: Users) -> None:
    """Breezy's own `-D` accepts any flag."""
    refused = users.run("b", "pull", SMARTSERVER_DEBUG="nonsense")
    there_are = "hpss, hpssdetail, hpssvfs, hpssbytes, hpss-json=FILE and hpss-ban=RULE[,RULE]"
    why = f"no such debug flag in SMARTSERVER_DEBUG or hpss.debug: 'nonsense' (there are {there_are})"
    assert (refused.status, refused.err) == (3, f"brz: ERROR: {why}\n")
    with pytest.raises(CommandError, match="'nonsense'"):
        tracer.flags_of("nonsense")


BEGIN = """
import subprocess, sys
import breezy, breezy.bzr
from breezy import commands
from breezy.branch import Branch
from breezy.plugin import load_plugins

breezy.initialize().__enter__()
load_plugins()
commands._register_builtin_commands()
commands.install_bzr_command_hooks()

from smartserver.plugins import breezy_shim as hpss
from breezy.workingtree import WorkingTree

def brz(*words):
    assert commands.run_bzr(list(words)) == 0

def push(here, there):
    subprocess.check_call([sys.executable, "-m", "breezy", "push", "-q", "-d", here, there])

"""


def program(users: Users, where: str, source: str, **named: str) -> list[str]:
    """Run a program that uses Breezy in one process, and return the last words that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + "".join(f"{name} = {value!r}\n" for name, value in named.items()) + source],
        cwd=users.folder / where,
        env=users._environment(where, f"hpss@{SHIM}", {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1].split()


def alias(users: Users, words: str) -> None:
    folder = users.folder / ".home" / ".config" / "breezy"
    folder.mkdir(parents=True)
    (folder / "breezy.conf").write_text(f"[ALIASES]\nshort = {words}\n")


# -- what a command was given


@pytest.mark.parametrize("way", ["abbreviated", "alias"])
def test_tags_that_are_to_be_kept_are_kept(users: Users, way: str) -> None:
    users.tag("a", "v3")
    assert users.run("a", "push").status == 0
    alias(users, "uncommit --force --keep-tags")
    words = ["short"] if way == "alias" else ["uncommit", "--force", "--keep-t"]
    assert users.run("a", *words, users.url()).status == 0
    assert users.served_entries("tags").keys() == {"v1", "v3"}
    tip = users.served_tip()
    assert tip is not None
    assert tip[0] == 2


# -- several commands, or none


def test_the_next_command_asks_anew(users: Users) -> None:
    assert users.run("", "checkout", "--lightweight", "-q", users.url(), "light").status == 0
    assert users.run("a", "push", users.url("topic")).status == 0
    users.commit("a", "four")
    said = program(
        users,
        "light",
        """
brz("switch", topic)
push(here, topic)
brz("revno", topic)
brz("switch", trunk)
brz("switch", topic)
tree = WorkingTree.open(".")
print(tree.branch.revno(), tree.branch.revision_id_to_revno(tree.last_revision()), len(hpss.running))
""",
        here=str(users.path("a")),
        topic=users.url("topic"),
        trunk=users.url(),
    )
    assert said == ["4", "4", "0"]


def test_a_command_that_a_program_runs_by_itself(users: Users) -> None:
    source = (
        'from breezy.builtins import cmd_cat\ncmd = cmd_cat()\ncmd.outf = sys.stdout.buffer\ncmd.run(url + "/two")\n'
    )
    assert program(users, "b", source, url=users.url()) == ["two"]


def test_branches_that_were_dropped_are_forgotten(users: Users) -> None:
    source = """
import gc
for _ in range(9):
    Branch.open(".")
gc.collect()
kept = Branch.open(".")
print(len(hpss.opened), hpss.opened[0]() is kept)
"""
    assert program(users, "b", source) == ["1", "True"]


def test_a_pull_into_another_repository_than_was_thought(users: Users) -> None:
    """The tip of the branch is asked before it is known to which repository its history will go."""
    users.make("c")
    users.commit("a", "four")
    assert users.run("a", "push").status == 0
    source = """
there = Branch.open(url)
assert there.revno() == 4
mine = Branch.open(path)
mine.pull(there)
print(mine.revno(), len(mine.repository.all_revision_ids()))
"""
    assert program(users, "b", source, url=users.url(), path=str(users.path("c"))) == ["4", "4"]
    users.check("c")


def test_a_commit_in_a_bound_branch_is_no_push(users: Users) -> None:
    assert users.run("", "checkout", "-q", users.url(), "c").status == 0
    users.add("c", "new")
    source = """
told = []
for name in ("post_push", "post_commit"):
    Branch.hooks.install_named_hook(name, lambda *given, name=name: told.append(name), None)
WorkingTree.open(".").commit("bound")
print(*told)
"""
    assert program(users, "c", source) == ["post_commit"]
    assert users.served_tip() == users.tip("c")


def test_a_branch_is_unlocked_where_its_options_could_not_be_written(users: Users) -> None:
    source = """
import shutil
branch = Branch.open(url)
branch.lock_write()
branch.get_config_stack().set("answer", "42")
shutil.rmtree(served)
try:
    branch.unlock()
except breezy.errors.NotBranchError:
    print(branch.is_locked(), branch.repository.is_locked(), branch.peek_lock_mode())
"""
    served = Path(users.served.root) / users.place
    assert program(users, "b", source, url=users.url(), served=str(served)) == ["False", "False", "None"]


# -- with an agent that outlives its commands


@pytest.fixture
def agent() -> Iterator[dict[str, str]]:
    with of_its_own() as its:
        yield its


def connections(users: Users, *words: str, **variables: str) -> int:
    """Return the number of connections that a command of user b makes."""
    return users.fine("b", *words, **variables).counts.connections


def test_the_next_command_has_the_connection_of_the_last(users: Users, agent: dict[str, str]) -> None:
    assert connections(users, "pull", **agent) == 1
    for words in (["pull"], ["missing"], ["tags", "-d", users.url()], ["push", users.url("another")]):
        assert connections(users, *words, **agent) == 0
    assert connections(users, "pull", **{**agent, "SMARTSERVER_AGENT": "0"}) == 1
