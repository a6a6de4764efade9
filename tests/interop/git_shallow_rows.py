"""Commands of shallow and partial clones; `budgets.toml` has their round trips."""

from __future__ import annotations

from git_rows import Row

LEFT = "c sort .git/shallow 2>/dev/null || echo whole; c git cat-file --batch-all-objects --batch-check"
"""The script that prints where history is cut, and every object."""

DATED = 'day() { GIT_COMMITTER_DATE="$((1700000000 + 86400 * $1)) +0000"; export GIT_COMMITTER_DATE; shift; "$@"; };'
DAYS = f"{DATED} day 10 a commit ten; day 20 a commit twenty; a git push -q origin main;"
SINCE = "--shallow-since='2023-11-29 00:00:00 +0000'"

SHALLOW = 'as c git clone -q --depth 1 "$URL" c;'
MORE = "a commit four; a commit five; a git push -q origin main;"

PARTIAL = "printf changed >a/one; a git commit -qam changed; a git push -q origin main;"

RENAMED = "a mkdir d; a git mv one two d; a commit d/four; a commit d/five; a git push -q origin main;"

SHALLOW_ROWS = [
    # -- clone
    Row("clone --depth 1", 'as c git clone --depth 1 "$URL" c', after=f"{LEFT}; c git status -sb"),
    Row("clone --depth 2", 'as c git clone --depth 2 "$URL" c', after=LEFT),
    Row("clone --depth, more than there is", 'as c git clone --depth 30 "$URL" c', after=LEFT),
    Row("clone --depth of all branches", 'as c git clone --depth 1 --no-single-branch "$URL" c', after=LEFT),
    Row(
        "clone --depth, a tag of a file",
        'as c git clone --depth 1 --no-single-branch "$URL" c',
        before="a git tag -am file file HEAD:one; a git push -q origin file;",
        after=f"{LEFT}; c git fsck",
    ),
    Row("clone --depth of a tag", 'as c git clone --depth 1 -b nested "$URL" c', after=LEFT),
    Row("clone --depth --mirror", 'as c git clone --depth 1 --mirror "$URL" c', after="c git log --all --format=%s"),
    Row("clone --shallow-since", f'as c git clone {SINCE} "$URL" c', before=DAYS, after=LEFT),
    Row("clone --shallow-exclude", 'as c git clone --shallow-exclude=v1 "$URL" c', after=LEFT),
    Row(
        "clone --shallow-since of the future",
        'as c git clone --shallow-since=2038-01-01 "$URL" c',
        status=128,
        says=("no commits selected for shallow requests",),
        differs="the words of the error",
    ),
    Row(
        "clone --shallow-exclude of no ref",
        'as c git clone --shallow-exclude=none "$URL" c',
        status=128,
        says=("no ref none whose history could be left out",),
        differs="the words of the error",
    ),
    # -- fetch
    Row("fetch nothing new, shallow", "c git fetch", before=SHALLOW, after=LEFT),
    Row("fetch two commits, shallow", "c git fetch", before=SHALLOW + MORE, after=LEFT),
    Row("fetch what was moved, shallow", "c git fetch", before=SHALLOW + RENAMED, after=LEFT),
    Row(
        "fetch another branch, shallow",
        "c git fetch origin topic:refs/remotes/origin/topic",
        before=SHALLOW,
        after=LEFT,
    ),
    Row("fetch --depth 1 of what is new", "c git fetch --depth 1", before=SHALLOW + MORE, after=LEFT),
    Row("fetch --depth 2", "c git fetch --no-tags --depth 2", before=SHALLOW, after=LEFT),
    Row("fetch --deepen", "c git fetch --no-tags --deepen 1", before=SHALLOW + MORE, after=LEFT),
    Row("fetch --unshallow", "c git fetch --no-tags --unshallow", before=SHALLOW + MORE, after=LEFT),
    Row("fetch --shallow-since", f"c git fetch {SINCE}", before=SHALLOW + DAYS, after=LEFT),
    Row("fetch --shallow-exclude", "c git fetch --shallow-exclude=v1", before=SHALLOW + MORE, after=LEFT),
    Row("pull, shallow", "c git pull -q", before=SHALLOW + MORE, after=LEFT),
    Row(
        "fetch --depth=1 of an id, into a new repository",
        'c git fetch --no-tags --depth=1 "$URL" +$(a git rev-parse main~1):refs/remotes/origin/x',
        before="git init -q c;",
        after=LEFT,
    ),
    Row(
        "fetch --depth=1 of an id",
        "c git fetch --no-tags --depth=1 origin +$(a git rev-parse topic):refs/remotes/origin/x",
        before=SHALLOW,
        after=LEFT,
    ),
    Row(
        "fetch with checks, shallow",
        "c git -c fetch.fsckObjects=true -c fetch.unpackLimit=1 fetch --depth 1",
        before=SHALLOW + MORE,
        after=LEFT,
    ),
    Row(
        "submodule update --depth 1",
        "c git submodule update -q --init --depth 1",
        before='git init -q c; c git submodule -q add "$URL" s; rm -rf c/s c/.git/modules;',
        after="cat c/.git/modules/s/shallow; c git -C s log --format=%s",
    ),
    # -- push
    Row("push, shallow", "c commit six; c git push -q origin main", before=SHALLOW, after=LEFT),
    Row("push the commit where history is cut", "c git push -q origin main:cut", before=SHALLOW),
    Row(
        "push what the remote has below what others pushed",
        "c git push -q origin main:old",
        before=SHALLOW + MORE + "forget c;",
    ),
    # -- partial
    Row("clone --filter=blob:none", 'as c git clone --filter=blob:none "$URL" c', before=PARTIAL, after=LEFT),
    Row(
        "clone --filter=blob:none --no-checkout",
        'as c git clone -n --filter=blob:none "$URL" c',
        after="c git rev-list --objects --all --missing=print",
    ),
    Row("clone --filter=blob:limit", 'as c git clone -n --filter=blob:limit=5 "$URL" c', before=PARTIAL, after=LEFT),
    Row("clone --filter=tree:0", 'as c git clone -n --filter=tree:0 "$URL" c', before=PARTIAL, after=LEFT),
    Row("clone --filter=tree:0, checked out", 'as c git clone --filter=tree:0 "$URL" c', after=LEFT),
    Row(
        "clone --filter=combine",
        'as c git clone -n --filter=tree:1 --filter=blob:none "$URL" c',
        before=PARTIAL,
        after=LEFT,
    ),
    Row("clone --filter --depth", 'as c git clone -n --depth 1 --filter=blob:none "$URL" c', after=LEFT),
    Row(
        "fetch, partial",
        "c git fetch",
        before=f'{PARTIAL} as c git clone -q --filter=blob:none "$URL" c;{MORE}',
        after=LEFT,
    ),
    Row(
        "checkout of an old commit, partial",
        "c git checkout -q HEAD~2",
        before=f'{PARTIAL} as c git clone -q --filter=blob:none "$URL" c;',
        after=LEFT,
    ),
    Row(
        "diff, partial",
        "c git diff HEAD~2 HEAD",
        before=f'{PARTIAL} as c git clone -nq --filter=blob:none "$URL" c;',
        after=LEFT,
    ),
    Row(
        "sparse-checkout, partial",
        "c git sparse-checkout set d; c git checkout -q main",
        before=f'{RENAMED} as c git clone -nq --filter=blob:none "$URL" c;',
        after=LEFT,
    ),
    Row(
        "fetch --refetch, partial",
        "c git fetch -q --refetch --filter=blob:limit=1m",
        before=f'{PARTIAL} as c git clone -nq --filter=blob:none "$URL" c;',
        after=LEFT,
    ),
    Row(
        "push, partial",
        "c git push -q origin main",
        before=f'{PARTIAL} as c git clone -q --filter=blob:none "$URL" c; printf more >>c/two; c git commit -qam more;',
        after=LEFT,
    ),
    Row(
        "push, without trees",
        "c git push -q origin main",
        before='as c git clone -q --filter=tree:0 "$URL" c; printf more >>c/two; c git commit -qam more;',
        after="c git log --format=%s",
    ),
]
