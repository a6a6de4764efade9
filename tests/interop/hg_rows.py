"""The commands of a user of hg that `test_hg_commands.py` runs on both sides."""

from __future__ import annotations

from dataclasses import dataclass

from git_sides import CommandRow

HISTORY = r"""
hg init a
a commit one; a commit two
a hg branch -q topic; a commit topical
a hg update -q default; a commit three
a hg tag -r 1 v1
"""
"""The script that gives user a two branches and a tag, and pushes nothing."""

SHARED = (
    HISTORY
    + r"""
a hg push -q --new-branch "$URL"
as b hg clone -q "$URL" b
"""
)
"""The script that pushes everything of user a, and clones it for user b."""

STARTS = {"history": HISTORY, "shared": SHARED}


@dataclass(frozen=True)
class Row(CommandRow):
    """One command of a user of hg."""

    says: str = ""
    is_same: bool = True
    """True if it prints the same as with a folder. From a folder, a clone copies files, and `identify` looks inside."""


A_HAS_MORE = 'a commit four; a hg push -q "$URL"'
BOTH_HAVE_MORE = f"b commit other; {A_HAS_MORE}"
STRIP = "hg --config extensions.strip= strip -q --no-backup -r tip"
POOL = 'hg clone --config extensions.share= --config share.pool="$SIDE/pool"'
BARS = "--config progress.assume-tty=1 --config progress.delay=0 --config progress.refresh=0"
DEFAULT_PUSH = 'printf "[paths]\\ndefault-push = %s\\n" "$URL" > a/.hg/hgrc'
MARK = 'a hg bookmark mark; a hg push -q -B mark "$URL" || true'

ROWS = [
    # -- clone
    Row(
        "clone", 'as c hg clone "$URL" c', says="added 5 changesets with 5 changes to 5 files (+1 heads)", is_same=False
    ),
    Row("clone -r", 'as c hg clone -r v1 "$URL" c'),
    Row(
        "clone -r of a branch",
        'as c hg clone -r topic "$URL" c',
        before="a hg update -q topic; a commit open; a hg update -q 2; a commit y; a hg commit -q --close-branch -m z;"
        ' a hg push -q -f "$URL"; a hg bookmark -r tip mark; a hg push -q -B mark "$URL" || true',
    ),
    Row("clone -r of a number", 'as c hg clone -r 1 "$URL" c'),
    Row(
        "clone -b",
        'as c hg clone -b topic "$URL" c; c hg log -r . -T "at {desc}"',
        before='for name in 1 2 3 4 5; do a hg update -q "desc(topical)"; a commit $name; done; a hg push -q -f "$URL"',
        says="at 5",
    ),
    Row("clone URL#tag", 'as c hg clone "$URL#v1" c'),
    # -- pull
    Row("pull nothing", 'b hg pull "$URL"', says="no changes found", most_down=400),
    Row("pull one", 'b hg pull "$URL"', before=A_HAS_MORE, says="added 1 changesets", most_down=1000),
    Row("pull of what diverged", 'b hg pull "$URL"', before=BOTH_HAVE_MORE, says="(+1 heads)"),
    Row(
        "pull -r of a branch",
        'b hg pull -r topic "$URL"',
        before='a hg update -q topic; a commit x; a hg push -q "$URL"',
    ),
    Row(
        "pull -r leaves the rest",
        'b hg pull -r default "$URL"',
        before=f'{A_HAS_MORE}; a hg update -q topic; a commit x; a hg push -q "$URL"',
        says="added 1 changesets",
    ),
    Row(
        "pull -r beside what is here",
        'c hg pull -r topic "$URL"',
        before='b hg update -q null; b commit root; b commit above; b hg push -q -f "$URL";'
        ' as c hg clone -q -r "$(b hg id -i -r "tip^")" "$URL" c',
        says="added 3 changesets",
    ),
    Row("pull -r of nothing", 'b hg pull -r none "$URL"', status=255, says="unknown revision 'none'"),
    Row(
        "pull -B",
        'b hg pull -B mark "$URL"',
        before='a commit four; a hg bookmark mark; a hg push -q -B mark "$URL"',
        says="adding remote bookmark mark",
    ),
    Row("pull -B of nothing", 'b hg pull -B none "$URL"', status=255, says="abort: remote bookmark none not found!"),
    # -- push
    Row("push of all", 'a hg push --new-branch "$URL"', start="history", says="added 5 changesets"),
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
        "push of a closed branch", 'a hg push "$URL"', before="a hg update -q topic; a hg commit -q --close-branch -m x"
    ),
    Row("push by one who knows nothing", 'a hg push "$URL"', before="a commit four; forget a"),
    Row(
        "push of nothing by one who knows nothing",
        'b hg push "$URL"',
        before="forget b",
        status=1,
        says="no changes found",
    ),
    Row(
        "push of nothing by one who takes it for new",
        'a hg push "$URL"',
        before="a hg phase -q -f --draft 'all()'; forget a",  # They are public there, and so here afterwards.
        status=1,
        says="no changes found",
    ),
    # -- bookmarks
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
        "push -B of nothing", 'a hg push -B none "$URL"', status=2, says="bookmark none does not exist on the local or"
    ),
    Row(
        "push -B of one that another removed",
        'b hg push -B mark "$URL"',
        before=f'{MARK}; b hg pull -q "$URL"; b hg bookmark -d mark; a hg bookmark -d mark;'
        ' a hg push -q -B mark "$URL" || true',
        status=2,
        says="bookmark mark does not exist on the local or",
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
        "push of names in another encoding",
        'HGENCODING=utf-8 a hg push --new-branch -B bü "$URL"',
        before="a hg branch -q é; a commit four; a hg bookmark bü",
        says="exporting bookmark b",
    ),
    # -- what is asked
    Row("incoming", 'b hg incoming "$URL"', before=A_HAS_MORE, says="four"),
    Row(
        "incoming -r -b",
        'b hg incoming -r default -b topic "$URL"',
        before=f'{A_HAS_MORE}; a hg update -q topic; a commit x; a hg push -q "$URL"; a hg update -q 0;'
        ' a hg branch -q z; a commit z; a hg push -q --new-branch "$URL"',
        says="four",
        is_same=False,  # Which of the changesets is the tip.
    ),
    Row("outgoing", 'a hg outgoing "$URL"', before="a commit four", says="four", most_down=400),
    Row("identify", 'b hg identify "$URL"', most_down=600, is_same=False),
    Row("identify -r of a branch", 'b hg identify -r topic "$URL"', most_down=600, is_same=False),
    Row("identify -B", 'b hg identify -B "$URL"', before=MARK, says="mark", most_down=600, is_same=False),
    Row(
        "incoming -B",
        'b hg incoming -B "$URL"',
        before='a hg bookmark mark; a hg push -q -B mark "$URL" || true',
        says="mark",
    ),
    # -- as users set it up
    Row("push to default-push", "a hg push", before=f"a commit four; {DEFAULT_PUSH}", says="pushing to URL"),
    Row("push --publish", 'a hg push --publish "$URL"', before="a commit four", says="added 1 changesets"),
    Row(
        "pull --rebase",
        'b hg --config extensions.rebase= pull --rebase "$URL"',
        before=BOTH_HAVE_MORE,
        says="rebasing 5:",
    ),
    Row("pull after a strip", 'b hg pull "$URL"', before=f"b {STRIP}", says="added 1 changesets"),
    Row(
        "push after a strip",
        'b hg push "$URL"',
        before=f'b commit other; b hg push -q "$URL"; b {STRIP}; b commit again',
        status=255,
        says="push creates new remote head",
    ),
    Row("clone from a pool", f'as c {POOL} "$URL" c', before=f'as b {POOL} "$URL" d', says="from existing pooled"),
    Row(
        "clone from an old pool",
        f'as c {POOL} "$URL" c',
        before=f'as b {POOL} "$URL" d; {A_HAS_MORE}',
        says="from existing pooled",
    ),
    Row(
        "push with a progress bar", f'a hg {BARS} push "$URL"', before="a commit four", says="sending [", is_same=False
    ),
    Row("debugdiscovery", 'b hg debugdiscovery "$URL"', before=BOTH_HAVE_MORE, says="round-trips:", is_same=False),
]
