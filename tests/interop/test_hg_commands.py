"""plugins.mercurial.extension, plugins.mercurial.peer, plugins.mercurial.push, plugins.mercurial.remote,
plugins.mercurial.server, plugins.mercurial.words, vcs.hg.repository: every command of an hg user over hpss has the
effect of the same command on a folder, in the round trips of `budgets.toml`.

plugins.mercurial.credentials: each way from hg to a server, with and without the agent, and from a command server of
Mercurial's."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from access_rules import OPEN
from agents import of_its_own
from builders import MAIN, History, push
from git_sides import TIMEOUT, Served, check_rounds, fine
from hg_histories import verify
from hg_rows import ROWS, STARTS, Row
from hg_sides import BUDGETS, HgPair, HgSide, copy_hg_side, peer_bookmarks, peer_heads, server_bookmarks, server_heads
from hg_two_users import CommandServer, run
from needs import needs
from secure_sides import Secure
from sshd import Sshd

from smartserver.agent.lending import ask
from smartserver.agent.messages import Status, decode_held
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


FRESH = "1 round trip on a fresh connection"
SHOWN = "--config hpss.debug=hpss"

START = "hg init a; a commit one; a commit two"

OF_ITS_OWN = needs("hg of this environment")
"""Marks tests that start a process of ours with the Python of hg."""


def exchange(side: HgSide, **variables: str) -> list[str]:
    """Push, clone, push and pull, until both users have the same; return the output of each command."""
    side.prepare(START)
    said = []
    for step in (
        f'a hg push {SHOWN} "$URL"',
        f'as b hg clone {SHOWN} "$URL" b',
        f'a commit three; a hg push {SHOWN} "$URL"',
        f'b hg pull {SHOWN} "$URL"',
        f'b hg incoming {SHOWN} "$URL" || true',
    ):
        said.append(side.prepare(step, **variables).said)
    has = side.has()
    assert len(has["a"]) == 3
    assert has["a"] == has["b"]
    assert verify(side.folder / "b") == (0, "")
    return said


def use(side: HgSide, config: str) -> None:
    """Add to the configuration of all users."""
    with open(side.folder / ".hgrc", "a") as hgrc:
        hgrc.write(config)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    made = Secure(tmp_path / "server", OPEN)
    yield made
    made.server.close()


def test_tls_with_a_token_of_auth(secure: Secure, tmp_path: Path) -> None:
    side = HgSide(tmp_path / "ours", secure.url("project"))
    use(side, f"[auth]\ncode.prefix = {secure.above}\ncode.password = {secure.token()}\n")
    *first, a_again, b_again, b_third = exchange(side)
    for said in first:
        assert "2 round trips on a fresh connection" in said, "the server asks each user for a token once"
    for said in (a_again, b_again, b_third):
        assert FRESH in said


@OF_ITS_OWN
def test_the_second_command_has_the_connection_of_the_first(served: Served, tmp_path: Path) -> None:
    side = HgSide(tmp_path / "ours", served.url("hg-agent"), served)
    side.prepare(START)
    with of_its_own() as agent:
        first = side.run('a hg push "$URL"', **agent)
        assert (first.status, first.counts.rounds, first.counts.connections) == (0, 2, 1), first
        for step in ('as b hg clone "$URL" b', 'a commit x; a hg push "$URL"', 'b hg pull "$URL"', 'a hg id "$URL"'):
            done = side.run(step, **agent)
            assert (done.status, done.counts.rounds, done.counts.connections) == (0, 1, 0), (step, done)
        assert len(ask(Status(), decode_held, agent)[0].lines) == 1
    assert side.has()["a"] == side.has()["b"]


@OF_ITS_OWN
def test_sftp(sshd: Sshd, tmp_path: Path) -> None:
    """The host has no smartserver."""
    served = tmp_path / "served"
    served.mkdir()
    side = HgSide(tmp_path / "ours", f"hpss+sftp://127.0.0.1:{sshd.port}{served}/project")
    (side.folder / ".ssh").mkdir()
    shutil.copy(sshd.config, side.folder / ".ssh" / "config")
    for said in exchange(side):
        assert "1 round trip" in said


def test_a_command_server_keeps_nothing(served: Served, tmp_path: Path) -> None:
    """Between two commands another user pushes, and the repository is deleted and recreated."""
    side = HgSide(tmp_path / "ours", served.url("hg-cmdserver"), served)
    exchange(side)
    server = CommandServer(side, "b")
    try:
        assert server.run("pull", side.url)[0] == 0
        side.prepare('a commit four; a hg push -q "$URL"')
        served.proxy.take()
        status, said = server.run("pull", side.url)
        counts = served.proxy.take()
        assert (status, counts.rounds, counts.connections) == (0, 2, 1), said
        assert "added 1 changesets" in said
        side.prepare('smartserver delete --yes "$URL"')
        status, said = server.run("incoming", side.url)
        assert (status, said.splitlines()[-1]) == (255, f"abort: repository {side.url} not found")
        side.prepare('hg init "$URL"; a hg push -q -r 0 "$URL"')
        status, said = server.run("push", side.url)
        assert status == 0, said
        assert server_heads(served, "hg-cmdserver") == {"default": [side.run("b hg log -r tip -T '{node}'").out]}
    finally:
        server.close()


SUBREPOSITORY = """
hg init a; hg init a/sub; a commit one; echo file > a/sub/file; hg -R a/sub commit -q -A -m sub
echo sub = sub > a/.hgsub; a hg add -q .hgsub; a hg commit -q -m "a subrepository"
"""


@pytest.fixture(scope="module")
def hg_starts(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], HgPair]:
    """A function that returns one of `STARTS`, made once."""
    made: dict[str, HgPair] = {}

    def start(name: str) -> HgPair:
        if name not in made:
            folder = tmp_path_factory.mktemp(f"hg-{name}")
            hgs = HgSide(folder / "hgs", f"{folder}/hgs/peer")
            made[name] = HgPair(HgSide(folder / "ours", served.url(f"hg-start-{name}"), served), hgs)
            hgs.prepare("hg init peer")
            made[name].prepare(STARTS[name])
        return made[name]

    return start


_numbers = itertools.count(1)


@pytest.fixture
def pair(served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path) -> Callable[[str], HgPair]:
    """A function that copies a start, with a repository of its own on the server."""

    def begin(name: str) -> HgPair:
        start = hg_starts(name)
        path = f"hg-{name}-{next(_numbers)}"
        served.copy(f"hg-start-{name}", path)
        ours = copy_hg_side(start.ours, tmp_path / "ours", served.url(path))
        return HgPair(ours, copy_hg_side(start.hgs, tmp_path / "hgs", f"{tmp_path}/hgs/peer"))

    return begin


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_command_does_what_hg_does(row: Row, pair: Callable[[str], HgPair]) -> None:
    both = pair(row.start)
    if row.before:
        both.prepare(row.before)
    ours, hgs = both.run(row.run)
    report = f"--- ours: {ours.status}\n{ours.said}--- hg's: {hgs.status}\n{hgs.said}"
    assert (ours.status, hgs.status) == (row.status, row.status), report
    assert row.says in ours.said, report
    assert not row.is_same or plain(ours.said) == plain(hgs.said), report
    budget = BUDGETS[f"hg {row.name}"]
    assert ours.counts.rounds == budget + (budget > 0), (ours.counts, report)  # One is TCP's handshake.
    assert ours.counts.bytes_down <= row.most_down, (ours.counts, report)
    check_left(both)


REPORT = re.compile(r"(remote: )?(added \d+ changesets|adding (changesets|manifests|file changes)|\(?\+?\d+ heads).*\n")
"""Matches the report of a push's receiver; a repository in a folder words it differently."""


def plain(said: str) -> str:
    return REPORT.sub("", said) if "pushing to" in said else said


def check_left(both: HgPair) -> None:
    """Check that users and server have the same as with Mercurial alone."""
    assert both.ours.has() == both.hgs.has()
    assert both.ours.served is not None
    path = both.ours.path
    assert server_heads(both.ours.served, path) == peer_heads(both.hgs)
    assert server_bookmarks(both.ours.served, path) == peer_bookmarks(both.hgs)
    for name in both.ours.has():
        assert verify(both.ours.folder / name) == (0, "")


@pytest.mark.parametrize("before", ["", 'hg init "$URL"', 'a hg push -q -r 1 "$URL"'])
def test_a_clone_to_a_server(served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path, before: str) -> None:
    path = f"hg-cloned-{next(_numbers)}"
    side = copy_hg_side(hg_starts("history").ours, tmp_path / "ours", served.url(path))
    side.prepare(before)
    heads = server_heads(served, path)
    done = side.run('hg clone a "$URL"')
    assert done.counts.rounds == 2
    if before:
        assert (done.status, done.err) == (255, "abort: repository URL already exists\n")
        assert server_heads(served, path) == heads
    else:
        assert fine(done).out.endswith("added 5 changesets\n")
        assert len(server_heads(served, path)) == 2


def test_what_only_a_folder_shows(served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path) -> None:
    side = copy_hg_side(hg_starts("shared").ours, tmp_path / "ours", served.url("hg-nowhere"))
    done = side.run('b hg identify -b "$URL"')
    assert (done.status, done.counts.rounds) == (255, 0)
    assert done.err == "abort: can't query remote revision number, branch, or tags\n"


@pytest.mark.parametrize("command", ['hg init "$URL"', 'hg init empty; hg clone empty "$URL"'])
def test_a_repository_is_made_at_once(
    served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path, command: str
) -> None:
    path = f"hg-made-{next(_numbers)}"
    side = copy_hg_side(hg_starts("history").ours, tmp_path / "ours", served.url(path))
    fine(side.run(command))
    assert server_heads(served, path) == {}
    assert side.run('hg init "$URL"').err == "abort: repository URL already exists\n"
    fine(side.run('as c hg clone -q "$URL" c'))
    assert fine(side.run('a hg push "$URL"')).out.endswith("added 5 changesets\n")


def test_where_nothing_or_a_repository_of_git_is(
    served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path
) -> None:
    history = History()
    (first,) = history.line(1)
    push(PackRepository(LocalTransport(served.root), "hg-git"), history, [first], {MAIN: first})
    for path, said in (
        ("hg-nowhere", "repository URL not found"),
        ("hg-git", "hg-git is a repository of git sha1, not of Mercurial"),
    ):
        side = copy_hg_side(hg_starts("history").ours, tmp_path / path, served.url(path))
        for command in ("a hg pull", "a hg incoming", "as c hg clone", "a hg identify", "a hg outgoing"):
            done = side.run(f'{command} "$URL"')
            assert (done.status, done.err) == (255, f"abort: {said}\n"), command
    assert side.run('a hg push "$URL"').err == f"abort: {said}\n"


def test_a_branch_with_a_long_name(served: Served, tmp_path: Path) -> None:
    """The branch is refused before anything is sent, also for a repository that does not exist yet."""
    side = HgSide(tmp_path / "ours", served.url("hg-long-name"), served)
    side.prepare("hg init a; a hg branch -q $(printf long%01021d 0); a commit one")
    done = side.run('a hg push --new-branch "$URL"')
    assert (done.status, done.counts.rounds) == (255, 0)
    assert done.err.startswith("abort: the branch long000"), done.err
    assert done.err.endswith(" has a name of 1025 bytes: a server takes at most 1024\n"), done.err


def test_an_unrelated_history_by_force(served: Served, tmp_path: Path) -> None:
    """A client's first push learns of it from the answer, and warns as Mercurial does; a related one does not warn."""
    ours = HgSide(tmp_path / "ours", served.url("hg-unrelated"), served)
    hgs = HgSide(tmp_path / "hgs", f"{tmp_path}/hgs/peer")
    pair = HgPair(ours, hgs)
    pair.prepare(
        'hg init "$URL"; hg init a; a commit one; hg init b; b commit other; b commit third; a hg push -q "$URL"'
    )
    done, expected = pair.run('b hg push -r 0 -f "$URL"')
    assert done.err == expected.err == "warning: repository is unrelated\n"
    assert (done.status, done.counts.rounds) == (expected.status, 2)
    done, expected = pair.run('b hg push -f "$URL"')
    assert done.err == expected.err == ""
    pair.prepare(
        'as c hg clone -q "$URL" c; c commit fourth; c hg push -q "$URL"; forget b; b hg update -q 0; b commit fifth'
    )
    done, expected = pair.run('b hg push -f "$URL"')
    assert done.err == expected.err == ""


def test_one_key(served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path) -> None:
    """Plumbing commands change a bookmark or a phase without a push."""
    side = copy_hg_side(hg_starts("shared").ours, tmp_path / "ours", served.url("hg-keys"))
    side.prepare('hg init "$URL"; a hg push -q --new-branch "$URL"')
    side.prepare('smartserver config "$URL" publishing no >/dev/null')
    side.prepare('a commit four; a hg push -q "$URL"')
    tip = side.run("a hg log -r tip -T '{node}'").out
    for key, said in (
        (f"bookmarks mark '' {tip}", "True\n"),
        (f"bookmarks mark '' {tip}", "True\n"),
        (f"bookmarks mark '' {'0' * 40}", "False\n"),
        (f"phases {tip} 1 0", "True\n"),
        (f"phases {tip} 0 1", "False\n"),
    ):
        assert side.run(f'a hg debugpushkey "$URL" {key}').out == said, key
    assert server_bookmarks(served, "hg-keys") == {"mark": tip}
    assert side.run('a hg debugpushkey "$URL" phases').out == ""
    done = side.run(f"a hg debugpushkey \"$URL-none\" bookmarks mark '' {tip}")
    assert done.err == "abort: repository URL-none not found\n"


def test_a_subrepository_below_its_parent(served: Served, tmp_path: Path) -> None:
    """A subrepository below its parent is refused before anything is sent; one beside its parent is pushed."""
    ours = HgSide(tmp_path / "ours", served.url(f"parent-{tmp_path.name}"), served)
    ours.prepare(SUBREPOSITORY)
    done = ours.run('a hg push "$URL"')
    assert done.status == 255
    assert done.err.startswith("abort: a subrepository below its parent's URL cannot be pushed over hpss://: "), (
        done.err
    )
    assert (done.err.count("\n"), done.counts.rounds) == (1, 0), done
    ours.prepare("echo sub = ../beside-${URL##*/} > a/.hgsub; a hg commit -q -m beside")
    out = fine(ours.run('a hg push "$URL"'), 3).out
    assert "added 1 changesets" in out
    assert out.endswith("added 3 changesets\n")


def test_an_id_that_begins_with_zero(served: Served, tmp_path: Path) -> None:
    """Mercurial does not take the first digits of the id for a number."""
    side = HgSide(tmp_path / "ours", served.url("begins-with-zero"), served)
    side.prepare('hg init a; a hg debugbuilddag +200 >/dev/null; a hg push -q "$URL"')
    nodes = fine(side.run("a hg log -T '{node}\\n'"), 0).out.split()
    starts = Counter(node[:3] for node in nodes)
    start = next(each for each, times in starts.items() if times == 1 and each[0] == "0" and each.isdigit())
    assert fine(side.run(f'hg id -i -r {start} "$URL"')).out == fine(side.run(f"a hg id -i -r {start}"), 0).out


def test_debuggetbundle(served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path) -> None:
    side = HgSide(tmp_path / "ours", hg_starts("shared").ours.url, served)
    side.prepare('hg debuggetbundle -t bundle2 "$URL" all.hg; hg init a; a hg unbundle -q ../all.hg')
    drafts = [row.replace("'public'", "'draft'") for row in hg_starts("shared").ours.has()["b"]]
    assert side.has()["a"] == drafts
    done = side.run('hg debuggetbundle "$URL" old.hg')
    assert (done.status, done.err) == (255, "abort: old bundle types only supports v1 changegroups\n")


def test_the_settings_of_a_repository_are_used(
    served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path
) -> None:
    side = copy_hg_side(hg_starts("shared").ours, tmp_path / "ours", hg_starts("shared").ours.url)
    side.prepare("printf '[hpss]\\ndebug = hpss\\n' >> b/.hg/hgrc")
    assert "hpss" in fine(side.run("b hg pull")).err


# -- a long history that the server has, pushed by a user who knows nothing of the server


LONG = """
hg init a
for n in 1 2 3; do head -c 60000 /dev/urandom > a/noise; a hg commit -q -A -m "noise $n"; done
a hg push -q "$URL"
a commit one; forget a
"""


def test_what_is_there_is_asked_before_it_is_sent(served: Served, tmp_path: Path) -> None:
    side = HgSide(tmp_path / "ours", served.url("hg-first-contact"), served)
    side.prepare(LONG)
    done = fine(side.run('a hg push "$URL"'), 1 + BUDGETS["hg push by one who knows nothing, long"])
    assert done.out.endswith("added 1 changesets\n")
    assert done.counts.bytes_up < 2000
    # Where all is public, it may be another server: it is sent at once.
    side.prepare("a hg init ../other; a hg push -q ../other")
    elsewhere = served.url("hg-first-contact-2")
    fine(side.run(f'a hg push "{elsewhere}"'), 2)
    # But not where it was cloned from.
    side.prepare(f'as b hg clone -q "{elsewhere}" b; forget b')
    done = side.run("b hg push")
    check_rounds(done.counts, 1 + BUDGETS["hg push of nothing by one who knows nothing, long"])
    assert (done.status, done.out.splitlines()[-1]) == (1, "no changes found")
    assert done.counts.bytes_up < 2000


# -- two pulls at once into one repository


TWO_PULLS = """
hg init a; a commit one; a commit two; a hg bookmark mark; a hg push -q -B mark "$URL"
hg init b; mkfifo held gate
"""


def start(side: HgSide, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["hg", "-R", "b", *words],
        cwd=side.folder,
        env=side.environment(),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("words", [[], ["-B", "mark"]], ids=lambda words: " ".join(words) or "all")
def test_two_pulls_at_once(served: Served, tmp_path: Path, words: list[str]) -> None:
    """The second waits for the lock, and what the first one has added is there."""
    side = HgSide(tmp_path / "ours", served.url(f"hg-{tmp_path.name}"), served)
    side.prepare(TWO_PULLS)
    held, gate = side.folder / "held", side.folder / "gate"
    first = start(side, "--config", f"hooks.prechangegroup=echo x >{held}; cat {gate}", "pull", side.url)
    held.read_text()
    second = start(side, "--config", "ui.timeout.warn=0", "pull", *words, side.url)
    assert second.stderr is not None
    assert second.stderr.readline().startswith("waiting for lock on ")
    gate.write_text("")
    for process in (first, second):
        out, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, out + err
    assert "no changes found\n" in out
    assert side.has()["b"] == side.has()["a"]
    assert verify(side.folder / "b") == (0, "")


def test_two_users(served: Served, tmp_path: Path) -> None:
    """A few of the steps of `hg_two_users`, which runs as many as it is asked for."""
    assert run(tmp_path, served, 36, 60) > 0
