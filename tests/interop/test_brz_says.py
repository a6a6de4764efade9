"""plugins.breezy.tracer, plugins.breezy_shim: Breezy finds the plugin and loads few modules; and the output of the
plugin in the log, on a refusal by the server, and on an interrupt."""

from __future__ import annotations

import functools
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from breezy.errors import CommandError
from brz_sides import ROOT, SHIM, Users
from git_sides import Served, Side, environment

from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy import tracer
from smartserver.plugins.breezy.words import BOUND, RECONFIGURED
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


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
