"""plugins.mercurial.extension, plugins.mercurial.peer, plugins.mercurial.push, plugins.mercurial.remote,
plugins.mercurial.server, plugins.mercurial.words: every command of an hg user over hpss, beside the same command on a
folder: what it does, in the round trips of `budgets.toml`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from git_sides import Served, fine
from hg_histories import verify
from hg_sides import BUDGETS, HgPair, HgSide, copy_hg_side, peer_bookmarks, peer_heads, server_bookmarks, server_heads

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

HISTORY = r"""
hg init a
a commit one; a commit two
a hg branch -q topic; a commit topical
a hg update -q default; a commit three
a hg tag -r 1 v1
"""
"""User a has two branches and a tag, and has pushed nothing."""

SHARED = (
    HISTORY
    + r"""
a hg push -q --new-branch "$URL"
as b hg clone -q "$URL" b
"""
)
"""What user a has is pushed, and user b has cloned it."""

STARTS = {"history": HISTORY, "shared": SHARED}


@dataclass(frozen=True)
class Row:
    """One command of a user."""

    name: str
    run: str
    """What is counted and compared: sh, see hg_sides."""
    start: str = "shared"
    before: str = ""
    status: int = 0
    says: str = ""
    most_down: int = 1 << 20
    """Bytes from the server."""


A_HAS_MORE = 'a commit four; a hg push -q "$URL"'
BOTH_HAVE_MORE = f"b commit other; {A_HAS_MORE}"

ROWS = [
    # -- clone
    Row("clone", 'as c hg clone "$URL" c', says="added 5 changesets with 5 changes to 5 files (+1 heads)"),
    Row("clone -U", 'as c hg clone -U "$URL" c'),
    Row("clone -r", 'as c hg clone -r v1 "$URL" c'),
    Row("clone -b", 'as c hg clone -b topic "$URL" c'),
    Row("clone URL#branch", 'as c hg clone "$URL#topic" c'),
    Row("clone URL#tag", 'as c hg clone "$URL#v1" c'),
    Row("pull URL#id", 'b hg pull "$URL#$(a hg log -r tip -T "{node}")"', before=A_HAS_MORE),
    # -- pull
    Row("pull nothing", 'b hg pull "$URL"', says="no changes found", most_down=400),
    Row("pull one", 'b hg pull "$URL"', before=A_HAS_MORE, says="added 1 changesets", most_down=1000),
    Row("pull -u", 'b hg pull -u "$URL"', before=A_HAS_MORE, says="1 files updated"),
    Row("pull of what diverged", 'b hg pull "$URL"', before=BOTH_HAVE_MORE, says="(+1 heads)"),
    Row(
        "pull -r of a branch",
        'b hg pull -r topic "$URL"',
        before='a hg update -q topic; a commit x; a hg push -q "$URL"',
    ),
    Row("pull -r of an id", 'b hg pull -r "$(a hg id -i -r tip)" "$URL"', before=A_HAS_MORE),
    Row(
        "pull -r leaves the rest",
        'b hg pull -r default "$URL"',
        before=f'{A_HAS_MORE}; a hg update -q topic; a commit x; a hg push -q "$URL"',
        says="added 1 changesets",
    ),
    Row("pull -b", 'b hg pull -b topic "$URL"', before='a hg update -q topic; a commit x; a hg push -q "$URL"'),
    Row("pull -r of nothing", 'b hg pull -r none "$URL"', status=255, says="unknown revision 'none'"),
    Row(
        "pull -B",
        'b hg pull -B mark "$URL"',
        before='a commit four; a hg bookmark mark; a hg push -q -B mark "$URL"',
        says="adding remote bookmark mark",
    ),
    # -- push
    Row("push of all", 'a hg push --new-branch "$URL"', start="history", says="added 5 changesets"),
    Row("push of a part", 'a hg push -r 1 "$URL"', start="history"),
    Row("push of one", 'a hg push "$URL"', before="a commit four", says="added 1 changesets"),
    Row("push of nothing", 'a hg push "$URL"', status=1, says="no changes found", most_down=400),
    Row("push -r", 'a hg push -r 3 "$URL"', before="a commit four; a hg update -q 3; a commit five", status=1),
    Row(
        "push of a new branch without --new-branch",
        'a hg push "$URL"',
        before="a hg branch -q new; a commit new",
        status=255,
        says="push creates new remote branches: new",
    ),
    Row(
        "push -f of a new branch",
        'a hg push -f "$URL"',
        before="a hg branch -q other; a commit four",
    ),
    Row(
        "push of a new branch",
        'a hg push --new-branch "$URL"',
        before="a hg branch -q new; a commit new",
        says="added 1 changesets",
    ),
    Row(
        "push of a new head",
        'a hg push "$URL"',
        before="a hg update -q 1; a commit side",
        status=255,
        says="push creates new remote head",
    ),
    Row("push -f of a new head", 'a hg push -f "$URL"', before="a hg update -q 1; a commit side"),
    Row(
        "push of what diverged",
        'b hg push "$URL"',
        before=BOTH_HAVE_MORE,
        status=255,
        says="push creates new remote head",
    ),
    Row(
        "push of a merge",
        'b hg push "$URL"',
        before=f'{BOTH_HAVE_MORE}; b hg pull -q "$URL"; b hg merge -q; b hg commit -m m',
    ),
    Row(
        "push beside another branch's",
        'b hg push "$URL"',
        before=f"b hg update -q topic; b commit other; {A_HAS_MORE}",
        says="added 1 changesets",
    ),
    Row(
        "push of a closed branch", 'a hg push "$URL"', before="a hg update -q topic; a hg commit -q --close-branch -m x"
    ),
    Row("push by one who knows nothing", 'a hg push "$URL"', before="a commit four; forget a"),
    Row(
        "push of nothing by one who knows nothing",
        'a hg push "$URL"',
        before="forget a",
        status=1,
        says="no changes found",
    ),
    # -- bookmarks
    Row("push -B", 'a hg push -B mark "$URL"', before="a hg bookmark mark", status=1, says="exporting bookmark mark"),
    Row(
        "push of a bookmark that moved",
        'a hg push "$URL"',
        before='a hg bookmark mark; a hg push -q -B mark "$URL" || true; a commit four',
        says="updating bookmark mark",
    ),
    Row(
        "push -B of one that is gone here",
        'a hg push -B mark "$URL"',
        before='a hg bookmark mark; a hg push -q -B mark "$URL" || true; a hg bookmark -d mark',
        status=1,
        says="deleting remote bookmark mark",
    ),
    Row(
        "push with a bookmark on a secret changeset",
        'a hg push "$URL"',
        before='a hg bookmark mark; a hg push -q -B mark "$URL" || true; a commit four; a hg phase -q -s -f .;'
        " a hg update -q 4; a commit five",
        status=255,
        says="cannot push bookmark mark as it points to a secret changeset",
    ),
    Row(
        "push that a hook refuses",
        'a hg push --config hooks.preoutgoing=false "$URL"',
        before="a commit four",
        status=255,
        says="preoutgoing hook exited with status 1",
    ),
    Row(
        "push with a hook after it",
        'a hg push --config hooks.outgoing="echo sent \\$HG_NODE \\$HG_SOURCE" "$URL"',
        before="a commit four",
        says="sent ",
    ),
    Row(
        "push of names in another encoding",
        'HGENCODING=utf-8 a hg push --new-branch -B bü "$URL"',
        before="a hg branch -q é; a commit four; a hg bookmark bü",
        says="exporting bookmark b",
    ),
    # -- what is asked
    Row("incoming", 'b hg incoming "$URL"', before=A_HAS_MORE, says="four"),
    Row("incoming, nothing", 'b hg incoming "$URL"', status=1, says="no changes found"),
    Row("incoming -p", 'b hg incoming -p "$URL"', before=A_HAS_MORE, says="+four"),
    Row("incoming -G", 'b hg incoming -G "$URL"', before=A_HAS_MORE, says="four"),
    Row("outgoing", 'a hg outgoing "$URL"', before="a commit four", says="four", most_down=400),
    Row(
        "outgoing, nothing", 'b hg outgoing "$URL"', before=A_HAS_MORE, status=1, says="no changes found", most_down=600
    ),
    Row("outgoing of what diverged", 'b hg outgoing -r . "$URL"', before=BOTH_HAVE_MORE, says="other", most_down=600),
    Row("identify", 'b hg identify "$URL"', most_down=600),
    Row("identify -r", 'b hg identify -r v1 "$URL"', most_down=600),
    Row("identify -r of a branch", 'b hg identify -r topic "$URL"', most_down=600),
    Row(
        "incoming -B",
        'b hg incoming -B "$URL"',
        before='a hg bookmark mark; a hg push -q -B mark "$URL" || true',
        says="mark",
    ),
]


@pytest.fixture(scope="module")
def hg_starts(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], HgPair]:
    """Each of `STARTS`, made once."""
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
    """A copy of a start, with a repository of its own on the server."""

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
    budget = BUDGETS[f"hg {row.name}"]
    assert ours.counts.rounds == budget + (budget > 0), (ours.counts, report)  # One is TCP's handshake.
    assert ours.counts.bytes_down <= row.most_down, (ours.counts, report)
    check_left(both)


def check_left(both: HgPair) -> None:
    """Users and server have what they have with hg."""
    assert both.ours.has() == both.hgs.has()
    assert both.ours.served is not None
    path = both.ours.url.rpartition("/")[2]
    assert server_heads(both.ours.served, path) == peer_heads(both.hgs)
    assert server_bookmarks(both.ours.served, path) == peer_bookmarks(both.hgs)
    for name in both.ours.has():
        assert verify(both.ours.folder / name) == (0, "")


def test_a_clone_to_a_server(served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path) -> None:
    """The repository is made, then pushed to."""
    side = copy_hg_side(hg_starts("history").ours, tmp_path / "ours", served.url("hg-cloned"))
    assert fine(side.run('hg clone a "$URL"'), 3).out.endswith("added 5 changesets\n")
    assert len(server_heads(served, "hg-cloned")) == 2
    again = side.run('hg clone a "$URL"')
    assert (again.status, again.err) == (255, "abort: repository URL already exists\n")


def test_a_repository_is_made_at_once(served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path) -> None:
    side = copy_hg_side(hg_starts("history").ours, tmp_path / "ours", served.url("hg-made"))
    fine(side.run('hg init "$URL"'))
    assert server_heads(served, "hg-made") == {}
    assert side.run('hg init "$URL"').err == "abort: repository URL already exists\n"
    fine(side.run('as c hg clone -q "$URL" c'))
    assert fine(side.run('a hg push "$URL"')).out.endswith("added 5 changesets\n")


def test_where_nothing_is(served: Served, hg_starts: Callable[[str], HgPair], tmp_path: Path) -> None:
    side = copy_hg_side(hg_starts("history").ours, tmp_path / "ours", served.url("hg-nowhere"))
    for command in ("a hg pull", "a hg incoming", "as c hg clone", "a hg identify", "a hg outgoing"):
        done = side.run(f'{command} "$URL"')
        assert (done.status, done.err) == (255, "abort: repository URL not found\n"), command
