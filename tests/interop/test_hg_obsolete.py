"""plugins.mercurial.evolution: obsolescence markers between users, compared with the same over a path.

Each row of ROWS runs on a server and on a folder, and must end the same way on both, in its number of round trips.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from git_sides import Served, fine
from hg_histories import open_repository
from hg_rows import POOL
from hg_sides import HgPair, HgSide, copy_hg_side, peer_heads, peer_markers, server_heads, server_markers

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

SERVER = """
hg init "$URL"
smartserver config "$URL" publishing no >/dev/null
smartserver config "$URL" evolution yes >/dev/null
"""

FOLDER = """
hg init peer
printf '[phases]\\npublish = no\\n' > peer/.hg/hgrc
"""

START = """
prune() { hg update -q "$1^"; hg debugobsolete --record-parents "$(hg log -r "$1" -T '{node}')"; }
amend() { echo "$1" >> amended; hg add -q amended; hg commit -q --amend -m "$1"; }
"""

HISTORY = """
hg init a
a commit one; a commit two; a commit three
a hg push -q "$URL"
as b hg clone -q "$URL" b
"""

ROWS = {
    "an amended revision": ("a amend new", 'a hg push "$URL"', 1),
    "an amended revision, pulled": ('a amend new; a hg push -q "$URL"', 'b hg pull "$URL"', 1),
    "what is pulled twice": ('a amend new; a hg push -q "$URL"; b hg pull -q "$URL"', 'b hg pull "$URL"', 1),
    "a clone": ('a amend new; a hg push -q "$URL"', 'as c hg clone -q "$URL" c', 1),
    "a marker alone": ("a prune tip", 'a hg push "$URL"', 1),
    "a marker alone, pulled": ('a prune tip; a hg push -q "$URL" || :', 'b hg pull "$URL"', 1),
    "a marker alone, into a pool": (
        f'as b {POOL} "$URL" d; a prune tip; a hg push -q "$URL" || :', f'as c {POOL} "$URL" c', 2,
    ),
    "a part": ("a prune tip; a hg update -q 0; a commit other", 'a hg push -f -r . "$URL"', 1),
    "a bookmark goes along": ('a hg bookmark m; a hg push -q -B m "$URL" || :; a amend new', 'a hg push "$URL"', 1),
    "an old head is built upon": (
        'b commit onto; b hg push -q "$URL"; a amend new', 'a hg push "$URL"', 2,
    ),
    "an orphan is refused": ('a amend new; a hg push -q "$URL"; b commit onto', 'b hg push "$URL"', 2),
    "an obsolete revision is refused": (
        "a hg update -q 1; a commit old; a prune tip; a hg update -q --hidden 'max(desc(old))'; a commit onto",
        'a hg push "$URL"', 0,
    ),
    "a branch is gone": (
        'a hg branch -q other; a commit new; a hg push -q --new-branch "$URL"; a prune tip', 'a hg push "$URL"', 1,
    ),
    "two amend the same": ('b amend one; b hg push -q "$URL"; a amend other', 'a hg push "$URL"', 2),
    "an incoming one": ('a amend new; a hg push -q "$URL"', 'b hg incoming "$URL"', 1),
    "stripped and pulled": (
        'a amend new; a hg push -q "$URL"; b hg pull -q "$URL"; b hg --config extensions.strip= strip -q -r tip',
        'b hg pull "$URL"', 1,
    ),
    "publishing a hidden head is refused": (
        'a amend new; a hg push -q "$URL"; b hg phase --public -r tip', 'b hg push "$URL"', 2,
    ),
    "a hidden head is published with another": (
        'a amend new; a hg push -q "$URL"; b hg phase --public -r tip; b hg pull -q "$URL"; b hg update -q 0;'
        " b commit beside", 'b hg push -f "$URL"', 1,
    ),
    "what others have published": (
        'b hg phase --public -r tip; b hg push -q "$URL" || :; a amend new', 'a hg push "$URL"', 2,
    ),
}  # fmt: skip
"""By name: the script that prepares, the command to compare, and its round trips besides the handshake."""


LATER = {
    "a head that goes and comes back": (
        'a amend new; a hg push -q "$URL"; obsolete "$(node .)"; a hg push -q "$URL" || :',
        'a commit four; a hg push -q -f "$URL"',
    ),
    "a marker that comes before its changeset": (
        'old=$(node .); a hg update -q "$old^"; a commit one-part; part=$(node .); a commit the-other;'
        ' obsolete "$old" "$part" "$(node .)"; a hg push -q -r "$part" "$URL"; obsolete "$part";'
        ' a hg push -q -r "$part" --hidden "$URL" || :',
        'a hg push -q -f -r tip "$URL"',
    ),
}  # fmt: skip
"""By name: the script after which a marker concerns no head on the server, and the one after which it does again."""

MARKERS = """
node() { a hg log -r "$1" -T '{node}'; }
obsolete() { a hg debugobsolete "$@"; }
"""


def evolve(side: HgSide) -> None:
    """Turn on obsolescence markers for the users of a side."""
    with open(side.folder / ".hgrc", "a") as file:
        file.write("[experimental]\nevolution = all\n")


@pytest.fixture(scope="module")
def start(served: Served, tmp_path_factory: pytest.TempPathFactory) -> HgPair:
    """Two users on each side who have exchanged three changesets."""
    folder = tmp_path_factory.mktemp("hg-obsolete")
    ours = HgSide(folder / "ours", served.url("hg-obsolete"), served)
    hgs = HgSide(folder / "hgs", f"{folder}/hgs/peer")
    for side, first in ((ours, SERVER), (hgs, FOLDER)):
        evolve(side)
        side.prepare(first + START + HISTORY)
    return HgPair(ours, hgs)


@pytest.fixture
def pair(start: HgPair, served: Served, tmp_path: Path) -> HgPair:
    """A copy of the start, with a repository of its own on the server."""
    path = f"hg-obsolete-{tmp_path.name}"
    served.copy("hg-obsolete", path)
    ours = copy_hg_side(start.ours, tmp_path / "ours", served.url(path))
    hgs = copy_hg_side(start.hgs, tmp_path / "hgs", f"{tmp_path}/hgs/peer")
    evolve(ours)
    evolve(hgs)
    return HgPair(ours, hgs)


def compared(pair: HgPair, served: Served) -> None:
    ours, hgs = pair.ours, pair.hgs
    assert ours.has() == hgs.has()
    path = ours.path
    assert server_heads(served, path) == peer_heads(hgs)
    assert server_markers(served, path) == peer_markers(hgs)


@pytest.mark.parametrize("name", ROWS)
def test_it_is_as_over_a_path(pair: HgPair, served: Served, name: str) -> None:
    before, command, rounds = ROWS[name]
    pair.prepare(START + before)
    compared(pair, served)
    done, expected = pair.run(START + command)
    assert done.status == expected.status, (done.said, expected.said)
    assert done.counts.rounds == rounds + (rounds > 0), (done.said, expected.said)
    compared(pair, served)


@pytest.mark.parametrize("name", LATER)
def test_a_marker_that_begins_to_matter_later(pair: HgPair, served: Served, name: str) -> None:
    """A user who pulled in between, and has the replaced changeset, receives the marker later."""
    before, after = LATER[name]
    pair.prepare(f'{START}{MARKERS}{before}; b hg pull -q "$URL"')
    assert server_markers(served, pair.ours.path) == peer_markers(pair.hgs) != set()
    pair.prepare(START + MARKERS + after)
    done, expected = pair.run('b hg pull "$URL"')
    assert done.status == expected.status == 0, (done.said, expected.said)
    compared(pair, served)


PUBLISHED = {
    "head": ('a amend new; a hg push -q "$URL"', "-f"),
    "branch": (
        'a hg branch -q other; a commit new; a hg push -q --new-branch "$URL"; b hg pull -q "$URL"; a prune tip;'
        ' a hg push -q "$URL" || :',
        "--new-branch",
    ),
}
"""By name: the script that hides a head on the server, and Mercurial's option that lets it come back."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_hidden_head_is_published_alone(pair: HgPair, served: Served, name: str) -> None:
    """The head comes back in one request. Mercurial counts a pushed changeset and exits with 0; we count none."""
    before, option = PUBLISHED[name]
    pair.prepare(f'{START}{before}; b hg phase --public -r tip; b hg pull -q "$URL"')
    done, expected = pair.run(f'b hg push {option} "$URL"')
    assert (done.status, expected.status) == (1, 0), (done.said, expected.said)
    assert done.counts.rounds == 2, done.said
    compared(pair, served)


def test_messages(pair: HgPair) -> None:
    """A pull prints Mercurial's own messages; a push prints those of its server."""
    done, _ = pair.run(START + 'a amend new; a hg push "$URL"')
    assert "remote: 1 new obsolescence markers\nremote: obsoleted 1 changesets\n" in done.out
    done, expected = pair.run('b hg pull "$URL"')
    assert "1 new obsolescence markers\nobsoleted 1 changesets\n" in done.out
    # Over a path the file comes again that the obsolete changeset has, too.
    other = expected.out.replace("1 changes to 2 files", "1 changes to 1 files")
    assert done.out.partition("\n")[2] == other.partition("\n")[2]


@pytest.mark.parametrize(
    ("others", "status", "rounds"),
    [
        ("", 0, 1),
        ('b commit onto; b hg push -q "$URL"', 255, 1),
        ('b hg update -q 0; b commit beside; b hg push -q -f "$URL"', 0, 2),
    ],
)
def test_an_obsolete_head_stays(pair: HgPair, served: Served, others: str, status: int, rounds: int) -> None:
    """A server without markers keeps the head. Mercurial does not count it, but counts a new head of another user."""
    pair.ours.prepare('smartserver config "$URL" evolution no')
    pair.hgs.prepare("printf '[experimental]\\nevolution = createmarkers, allowunstable\\n' >> peer/.hg/hgrc")
    pair.prepare(f'{START} a hg pull -q "$URL"; b hg pull -q "$URL"; a amend new; {others}')
    done, expected = pair.run('a hg push "$URL"')
    assert (done.status, expected.status) == (status, status), (done.said, expected.said)
    assert done.counts.rounds == rounds + 1, done
    compared(pair, served)


def test_a_user_without_markers(pair: HgPair) -> None:
    """The amended revision is a new head; the user does not receive markers of others."""
    ours = pair.ours
    ours.prepare(START + 'a amend new; a hg push -q "$URL"')
    off = "--config experimental.evolution="
    assert "markers" not in fine(ours.run(f'b hg pull -q {off} "$URL"')).said.replace('"obsolete" feature', "")
    ours.prepare(f"b hg update -q 'desc(three)'; b hg commit -q --amend -m x {off}")
    done = ours.run(f'b hg push {off} "$URL"')
    assert done.status == 255
    assert "push creates new remote head" in done.err
    # They come as soon as they are wanted.
    assert "1 new obsolescence markers" in fine(ours.run('b hg pull "$URL"')).out


EVOLVE = "def reposetup(ui, repo): repo.ui.setconfig(b'experimental', b'evolution', [b'all'], b'evolve')\n"
"""An extension that configures each repository as evolve does."""


@pytest.mark.parametrize("way", ["repository", "extension"])
def test_the_repository_says_whether_markers_are_wanted(pair: HgPair, way: str) -> None:
    """The repository's configuration decides. That of the peer lacks the repository's file and evolve's changes."""
    ours = pair.ours
    ours.prepare(START + 'a amend new; a hg push -q "$URL"')
    config, module = ours.folder / ".hgrc", ours.folder / "evolve.py"
    config.write_text(config.read_text().replace("evolution = all\n", ""))
    module.write_text(EVOLVE)
    said = {"extension": f"[extensions]\nevolve = {module}\n", "repository": "[experimental]\nevolution = all\n"}[way]
    with open(config if way == "extension" else ours.folder / "b" / ".hg" / "hgrc", "a") as file:
        file.write(said)
    assert "1 new obsolescence markers" in fine(ours.run('b hg pull "$URL"')).out
    fine(ours.run('as c hg clone -q -r tip "$URL" c'))
    assert fine(ours.run("c hg debugobsolete"), 0).out.count("\n") == (way == "extension")


def make_markers(side: HgSide, count: int, user: bytes) -> None:
    """Make so many markers that name user a's tip as a successor."""
    repository = open_repository(side.folder / "a")
    repository.ui.setconfig(b"experimental", b"evolution", b"all", b"test")
    tip = repository[b"tip"].node()
    with repository.lock(), repository.transaction(b"test") as transaction:
        for number in range(1, count + 1):
            repository.obsstore.create(transaction, number.to_bytes(20, "big"), (tip,), metadata={b"user": user})


def test_a_pull_of_one_changeset_brings_few_markers(pair: HgPair) -> None:
    """The repository has hundreds of markers. A user who has them does not get them again, and a new user gets few."""
    ours = pair.ours
    make_markers(ours, 300, b"u")
    fine(ours.run('a hg push -q "$URL" || :'))
    done = ours.run('a hg update -q 0; a commit beside; a hg push -q -f "$URL"')
    assert done.counts.bytes_up < 2000, done
    ours.prepare('b hg pull -q "$URL"; a commit another; a hg push -q "$URL"')
    done = fine(ours.run('b hg pull "$URL"'))
    assert done.counts.bytes_down < 2000, done
    done = fine(ours.run('as c hg clone -q -r tip "$URL" c'))
    assert done.counts.bytes_down < 2500, done
    done = fine(ours.run('c hg pull -q "$URL"'))
    assert done.counts.bytes_down > 300 * 60, done


NARROW = """
import sys
from smartserver.cli.main import main
from smartserver.server import context
from smartserver.vcs.hg import reading
context.MAX_RESULTS, reading.PAGE = 16 << 10, 15 << 10
sys.exit(main())
"""
"""A server whose answers have at most 16 KiB of results."""


def test_more_markers_than_fit_into_an_answer(pair: HgPair, served: Served, tmp_path: Path) -> None:
    """The markers come in parts, after the history, and are remembered as others are."""
    ours = pair.ours
    make_markers(ours, 90, b"u" * 200)
    ours.prepare(START + 'a hg push -q "$URL" || :; a commit four; a hg push -q "$URL"')
    with closing(Served(tmp_path, "--anonymous", "write", root=served.root, program=("-c", NARROW))) as narrow:
        through = HgSide(ours.folder, narrow.url(ours.path), narrow)
        evolve(through)
        for command in ('b hg pull -r tip "$URL"', 'as c hg clone "$URL" c'):
            assert "90 new obsolescence markers" in fine(through.run(command), 5).out
        assert fine(through.run('c hg pull "$URL"')).counts.bytes_down < 2000
    assert ours.has()["a"] == ours.has()["b"] == ours.has()["c"]
