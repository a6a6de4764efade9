"""Commands of a git user, each with what it must say and do and how many round trips it may take."""

from __future__ import annotations

from dataclasses import dataclass

from git_sides import CommandRow

SECRET = "a text only this commit has, long enough to be seen on the link " * 100


@dataclass(frozen=True)
class Row(CommandRow):
    """One command of a user of git."""

    after: str = ""
    """Run on both sides afterwards; it must say the same and succeed."""
    says: tuple[str, ...] = ()
    rounds: int = 2
    """With the handshake; each helper that git starts opens a connection of its own."""
    differs: str = ""
    """Why the words are not those of git over file://."""


SAME_MESSAGE = (
    "mkdir b/.git/hooks; printf '#!/bin/sh\necho merged >$1\n' >b/.git/hooks/commit-msg; chmod +x b/.git/hooks/*"
)
"""A merge's own message names the URL."""

DIVERGED = "a commit more; b commit other; a git push -q origin main"
UNKNOWN_TO_A = "b commit other; b git push -q origin main; a commit more"
KNOWN_TO_A = f"{UNKNOWN_TO_A}; a git fetch -q"

ROWS = [
    # -- clone
    Row("clone", 'as c git clone "$URL" c', after="c git status -sb; c git ls-files -s"),
    Row(
        "clone --progress",
        'as c git clone --progress "$URL" c 2>&1',
        says=("Receiving objects: 100%",),
        differs="the count is of revisions",
    ),
    Row("clone --single-branch", 'as c git clone --single-branch "$URL" c'),
    Row("clone --branch TAG --single-branch", 'as c git clone --branch v1 --single-branch "$URL" c'),
    Row("clone --branch", 'as c git clone -b topic "$URL" c', after="c git status -sb"),
    Row("clone --mirror", 'as c git clone --mirror "$URL" c'),
    Row("clone of a branch that is not there", 'as c git clone -b none "$URL" c', status=128, says=("none not found",)),
    Row(
        "clone of an empty repository",
        'as c git clone "$URL" c',
        start="history",
        before="a git push -q origin light; a git push -q origin :light",
        says=("You appear to have cloned an empty repository",),
    ),
    # -- fetch
    Row("fetch nothing new", "b git fetch"),
    Row("fetch one commit", "b git fetch", before="a commit four; a git push -q origin main"),
    Row(
        "fetch one branch",
        "b git fetch origin main",
        before="a commit 4; a git push -q origin main; a git checkout -q topic; a commit 5; a git push -q origin topic",
    ),
    Row(
        "fetch follows a tag on what comes",
        "b git fetch origin main",
        before="a commit four; a git tag -m v2 v2; a git tag light2; a git tag -m n2 nested2 v2; a commit five;"
        " a git tag beyond; a git checkout -q topic; a commit 6; a git tag -m x elsewhere;"
        " a git push -q origin main topic 'refs/tags/*'",
    ),
    Row(
        "fetch follows a tag on what is had",
        "b git fetch",
        before="a git tag -m late late main~1; a git tag late-light topic; a git push -q origin --tags",
    ),
    Row(
        "fetch follows a tag of a tag that is no ref",
        "b git fetch",
        before="a commit four; a git tag -m v2 v2; a git tag -m n2 nested2 v2; a git tag -m o2 outer2 nested2;"
        " a git tag -m old old main~1; a git tag -m older older old; a git tag -d v2 nested2 old;"
        " a git checkout -q topic; a commit 6; a git tag -m x inner6; a git tag -m y outer6 inner6;"
        " a git tag -d inner6; a git push -q origin main 'refs/tags/*'",
    ),
    Row(
        "fetch follows no tag beyond what comes",
        "b git fetch origin main",
        before="a commit four; a git push -q origin main; a commit five; a git tag light5; a git tag -m v5 v5;"
        " a git tag -m n5 nested5 v5; a git push -q origin --tags",
    ),
    Row(
        "fetch --tags",
        "b git fetch --tags",
        before="a commit four; a git tag -m v5 v5; a git push -q origin --tags",
    ),
    Row(
        "fetch one tag",
        "b git fetch origin tag v2",
        before="a commit 4; a git tag -m v2 v2; a git push -q origin --tags",
    ),
    Row("fetch --prune", "b git fetch --prune", before="a git push -q origin :topic"),
    Row(
        "fetch --prune --prune-tags",
        "b git fetch --prune --prune-tags",
        before="a git push -q origin :topic :refs/tags/light",
    ),
    Row(
        "fetch a commit by its id",
        "b git fetch origin $(a git rev-parse HEAD~1)",
        before="a commit four; a commit five; a git push -q origin main",
        says=("FETCH_HEAD",),
    ),
    Row(
        "fetch from a URL",
        'b git fetch "$URL"',
        before="a commit four; a git push -q origin main",
    ),
    Row("fetch a ref that is not there", "b git fetch origin none", status=128, says=("find remote ref none",)),
    Row(
        "fetch what was forced",
        "b git fetch",
        before="a git reset -q --hard HEAD~1; a commit other; a git push -q --force origin main",
        says=("(forced update)",),
    ),
    Row(
        "fetch with checks that git does not know",
        "b git -c fetch.fsckObjects -c fetch.fsck.noneSuch=error fetch 2>&1 | sed s/remote:.*//",
        before="i=$(a git cat-file tag v1 | sed '/^tagger/d; s/v1/odd/' | a git hash-object -w -t tag --stdin);"
        " a git push -q origin $i:refs/tags/odd",
        says=("warning: Skipping unknown msg id 'nonesuch'", "missingTaggerEntry: "),
    ),
    Row(
        "fetch into an empty repository",
        "as c git -C c fetch -q",
        before='git init -q c; git -C c remote add origin "$URL"',
    ),
    Row("pull", "b git pull", before="a commit four; a git push -q origin main", says=("Fast-forward",)),
    Row("pull and merge", "b git pull --no-edit", before=f"{DIVERGED}; {SAME_MESSAGE}", says=("Merge made by",)),
    Row("pull a branch of a URL", 'b git pull "$URL" topic', before=SAME_MESSAGE, says=("Merge made by",)),
    # -- push
    Row("push the first branch", "a git push origin main", start="history", says=("[new branch]      main -> main",)),
    Row("push --mirror first", "a git push --mirror origin", start="history", rounds=3),
    Row(
        "push --progress",
        "a git push --progress origin main",
        before="a commit four",
        says=("Writing objects: 100%",),
        differs="the count is of revisions",
    ),
    Row("push to a URL", 'a git push "$URL" main', before="a commit four"),
    Row("push one commit", "a git push origin main", before="a commit four", says=("main -> main",)),
    Row("push nothing", "a git push origin main", says=("Everything up-to-date",)),
    Row("push a branch at a commit that is there", "a git push origin main:refs/heads/same"),
    Row(
        "push --follow-tags",
        "a git push --follow-tags origin main",
        before="a commit 4; a git tag light4; a git tag -m v2 v2; b commit b; b git push -q origin main:b",
        rounds=3,
    ),
    Row(
        "push --follow-tags, of one that others pushed",
        "a git push --follow-tags origin main",
        before="b git tag -m theirs v2; b git push -q origin v2; a commit 4; a git tag -m v2 v2; a git tag -m v3 v3",
        says=("[new tag]         v3 -> v3",),
        rounds=3,
    ),
    Row(
        "push --follow-tags, of those that reach what others pushed",
        "a git -c push.followTags=true push origin main",
        before="b commit b; b git push -q origin main:b; a git fetch -q; a git tag -m vb vb origin/b; a commit 4",
        says=("[new tag]         vb -> vb",),
        rounds=3,
    ),
    Row(
        "push an amended commit with --force",
        "a git push --force origin main",
        before="a git commit -q --amend -m x",
        says=("(forced update)",),
    ),
    Row(
        "push diverged, known here",
        "a git push origin main",
        before=KNOWN_TO_A,
        status=1,
        says=("! [rejected]        main -> main (non-fast-forward)", "hint: Updates were rejected because the tip"),
    ),
    Row(
        "push diverged, unknown here",
        "a git push origin main",
        before=UNKNOWN_TO_A,
        status=1,
        says=(
            "! [rejected]        main -> main (fetch first)",
            "hint: Updates were rejected because the remote contains",
        ),
    ),
    Row("push what is behind", "a git push origin main~1:main", status=1, says=("(non-fast-forward)",)),
    Row(
        "push several, one refused",
        "a git push origin main topic",
        before=KNOWN_TO_A + "; a git checkout -q topic; a commit 5",
        status=1,
        says=("topic -> topic", "main -> main (non-fast-forward)"),
    ),
    Row(
        "push to refs without a folder",
        "a git push origin main main:refs/foo +main:refs/stash",
        before="a commit four",
        status=1,
        says=("main -> refs/foo (funny refname)", "main -> refs/stash (funny refname)", "main -> main"),
        differs="git's server says it once more for each",
    ),
    Row(
        "push --force-with-lease",
        "a git push --force-with-lease origin main",
        before="a git commit -q --amend -m x",
        says=("(forced update)",),
    ),
    Row(
        "push --force-with-lease, stale",
        "a git push --force-with-lease origin main",
        before="b commit other; b git push -q origin main; a git commit -q --amend -m x",
        status=1,
        says=("main -> main (stale info)",),
    ),
    Row(
        "push +REF --force-with-lease, stale",
        "a git push --force-with-lease origin +main",
        before="b commit other; b git push -q origin main; a git commit -q --amend -m x",
        says=("(forced update)",),
        differs="git shows the old id, which only the server has, by more digits",
    ),
    Row(
        "push --force-with-lease of nothing, stale",
        "a git push --force-with-lease origin main",
        before="b commit other; b git push -q origin main",
        status=1,
        says=("(stale info)",),
    ),
    Row(
        "push --force-with-lease=REF:ID that only the server has",
        "a git push --force-w=main:$(b git rev-parse HEAD) origin main",
        before="b commit other; b git push -q origin main; a git commit -q --amend -m x",
        says=("(forced update)",),
    ),
    Row(
        "push --force-with-lease without a cache",
        "a git push --force-with-lease origin main topic",
        before="forget a; a git commit -q --amend -m x; a git branch -f topic main",
        says=("main -> main (forced update)", "topic -> topic (forced update)"),
    ),
    Row(
        "push --force-with-lease of one of two",
        "a git push --force-with-lease=topic origin main topic",
        before=UNKNOWN_TO_A + "; a git branch -f topic main",
        status=1,
        says=("topic -> topic (forced update)", "main -> main (fetch first)"),
    ),
    Row(
        "push --force-with-lease --force-if-includes",
        "a git push --force-with-lease --force-if-includes origin main",
        before="b commit other; b git push -q origin main; a git fetch -q; a git commit -q --amend -m x",
        status=1,
        rounds=0,
        says=("(remote ref updated since checkout)",),
    ),
    Row(
        "push --atomic",
        "a git push --atomic origin main topic",
        before="a commit 4; a git checkout -q topic; a commit 5",
    ),
    Row(
        "push --atomic, one refused",
        "a git push --atomic origin main topic main:refs/heads/new",
        before=UNKNOWN_TO_A + "; a git checkout -q topic; a commit 5",
        status=1,
        says=("main -> main (fetch first)", "topic -> topic (atomic push failed)", "main -> new (atomic push failed)"),
        differs="git's own protocol refuses before it sends, in other words",
    ),
    Row(
        "push --atomic, one refused, one that is there",
        "a git push --atomic --porcelain origin main topic 2>/dev/null",
        before=KNOWN_TO_A,
        status=1,
        says=("[up to date]", "[rejected] (non-fast-forward)"),
    ),
    Row(
        "push --dry-run, diverged",
        "a git push --dry-run origin main",
        before=UNKNOWN_TO_A,
        status=1,
        says=("(fetch first)",),
    ),
    Row("push --delete", "a git push origin --delete topic", says=("- [deleted]         topic",)),
    Row("push :tag", "a git push origin :refs/tags/light :v1"),
    Row(
        "push --delete without a cache",
        "a git push origin --delete topic",
        before="forget a",
        rounds=3,
        says=("- [deleted]         topic",),
    ),
    Row(
        "push --delete of a branch that is not there",
        "a git push origin --delete none",
        status=1,
        says=("unable to delete 'none': remote ref does not exist",),
    ),
    Row(
        "push to a short name that others made",
        "a git push origin main~1:new",
        before="b git push -q origin light:refs/heads/new",
    ),
    Row(
        "push --delete of a name that others made ambiguous",
        "a git push origin :topic main:new",
        before="b git push -q origin light:refs/tags/topic",
        status=1,
        says=("dst refspec topic matches more than one", "error: failed to push some refs"),
        differs="git says so before it pushes",
    ),
    Row(
        "push --delete of a branch of which others made a tag",
        "a git push origin --delete topic",
        before="b git push -q origin light:refs/tags/topic :refs/heads/topic",
        says=("- [deleted]         topic",),
        rounds=3,
    ),
    Row(
        "push to a short name of which others made a tag",
        "a git push origin main:new",
        before="b git push -q origin light:refs/tags/new",
        status=1,
        says=("main -> new (already exists)",),
        rounds=3,
    ),
    Row(
        "push to a short name and another ref, which is refused",
        "a git push origin topic:new main",
        before=UNKNOWN_TO_A,
        status=1,
        says=("[new branch]      topic -> new", "main -> main (fetch first)"),
        rounds=3,
    ),
    Row("push to a short name", "a git push origin HEAD:topic -f", before="a commit 4", says=("HEAD -> topic",)),
    Row(
        "push --delete of HEAD's branch",
        "a git push origin --delete main",
        status=1,
        says=(
            "! [remote rejected] main (",
            "deletion of the current branch prohibited: first run `smartserver config URL head ANOTHER-BRANCH`",
        ),
        differs="git explains its setting besides",
    ),
    Row(
        "push --delete and move",
        "a git push origin :topic main",
        before="a commit 4",
        says=("- [deleted]         topic", "main -> main"),
    ),
    Row(
        "push --mirror deletes",
        "a git push --mirror origin",
        before="a git branch -q -D topic; a git tag -d light >/dev/null; a commit 4; a git branch new;"
        " a git for-each-ref --format='delete %(refname)' refs/remotes | a git update-ref --stdin",
        says=("- [deleted]         topic", "- [deleted]         light", "[new branch]      new -> new"),
        rounds=3,
    ),
    Row(
        "push --mirror deletes what others made, and not what they deleted",
        "a git push --mirror origin",
        before="b git push -q origin light:refs/heads/theirs :topic; a git branch -q -D topic",
        says=("- [deleted]         theirs",),
        rounds=3,
    ),
    Row(
        "push --prune of what others made and deleted",
        "a git push --prune origin 'refs/heads/*'",
        before="b git push -q origin light:refs/heads/theirs :topic; a git branch -q -D topic",
        says=("- [deleted]         theirs",),
        rounds=3,
    ),
    Row(
        "push a tag that moved",
        "a git push origin light",
        before="a git tag -f light main >/dev/null",
        status=1,
        says=("! [rejected]        light -> light (already exists)",),
    ),
    Row(
        "push tags of trees and blobs",
        "a git push origin 'refs/tags/*'",
        before="a git tag tree main^{tree}; a git tag blob main:one; a git tag -m t on-tree main^{tree};"
        " a git tag -m b on-blob main:two; a git tag -m n on-on-blob on-blob; a commit new; a git add new;"
        " a git tag -m t2 new-tree $(a git write-tree); a git reset -q --hard HEAD~1",
        after="as c git clone -q --mirror $URL c",
    ),
    Row(
        "push and clone a signed tag",
        "a git push origin signed",
        before="printf 'object %s\\ntype commit\\ntag signed\\ntagger A <a@example.org> 1 +0000\\n\\nsigned\\n"
        "-----BEGIN PGP SIGNATURE-----\\n\\niQ==\\n-----END PGP SIGNATURE-----\\n' $(a git rev-parse main) >tag;"
        " a git update-ref refs/tags/signed $(a git hash-object -t tag -w ../tag)",
        after="as c git clone -q $URL c; c git cat-file tag signed",
    ),
    Row(
        "push odd names",
        "a git push origin 'refs/heads/*'",
        before="""a git branch 'dr\u00fcck"t'; a git branch "it's"; a git branch 'a/b#c%41&d'; a git branch '$0.tip'""",
        after="as c git clone -q $URL c; c git branch -r",
    ),
    Row(
        "push odd names with leases",
        'a git push --force-with-lease=refs/heads/dr\u00fcck\\"t:$(a git rev-parse main)'
        " --force-with-lease='it\\'\\''s': origin 'refs/heads/*'".replace("'it\\'\\''s'", '"it\'s"'),
        before="""a git branch 'dr\u00fcck"t'; a git push -q origin 'dr\u00fcck"t'; a git branch "it's";"""
        """ a git branch -f 'dr\u00fcck"t' topic""",
        says=("(forced update)",),
    ),
    Row(
        "push an octopus and a root of its own",
        "a git push origin main other",
        before="a git checkout -q -b x main~1; a commit x; a git checkout -q -b y main~2; a commit y;"
        " a git checkout -q main; a git merge -q -m octopus x y topic >/dev/null 2>&1;"
        " a git checkout -q --orphan other; a commit root",
        after="as c git clone -q $URL c; c git log --graph --oneline --all",
    ),
    Row(
        "push what is no commit to a branch",
        "a git push origin main^{tree}:refs/heads/x v1:refs/heads/y main:refs/heads/z",
        status=1,
        says=("failed to update ref", "main -> z"),
        differs="git's server has more to say",
    ),
    Row("push HEAD detached", "a git push origin HEAD:refs/heads/d", before="a git checkout -q --detach; a commit 4"),
    Row(
        "push an annotated tag forward outside tags",
        "a git push origin v2:refs/x/v main:refs/x/nested",
        before="a git push -q origin v1:refs/x/v nested:refs/x/nested; a git tag -m v2 v2 main",
        says=("  v2 -> refs/x/v",),
    ),
    Row(
        "push another type of object to a ref",
        "a git push origin main:refs/x/b $(a git rev-parse main:one):refs/x/c",
        before="a git push -q origin $(a git rev-parse main:one):refs/x/b main:refs/x/c",
        status=1,
        says=("(needs force)", "without using the '--force' option"),
    ),
    Row("push a ref outside heads and tags", "a git push origin main:refs/notes/x main:refs/meta/config"),
    Row("push --porcelain", "a git push --porcelain origin main topic", before="a commit 4"),
    Row(
        "push to a remote that mirrors",
        "a git push origin",
        before="a git config remote.origin.mirror true; forget a; a git branch -q -D topic; a commit 4; a git fetch -q;"
        " a git for-each-ref --format='delete %(refname)' refs/remotes | a git update-ref --stdin; forget a",
        rounds=3,
        says=("- [deleted]         topic",),
    ),
    Row("push matching", "a git push origin :", before="forget a; a commit 4; a git branch -q new", rounds=3),
    Row(
        "push matching what others made and deleted",
        "a git push origin :",
        before="b git push -q origin main:new :topic; a commit 4; a git branch -q new",
        says=("new -> new",),
        rounds=3,
    ),
    Row(
        "push what the remote's settings say",
        "a git push",
        before="a commit 4; a git config remote.origin.push main:other; a git config --add remote.origin.push :topic",
        says=("main -> other", "- [deleted]         topic"),
    ),
    # -- the rest
    Row("ls-remote", "a git ls-remote origin", says=("refs/tags/v1^{}",)),
    Row("ls-remote in no repository, with tags", 'as c git ls-remote --tags "$URL"', says=("refs/tags/v1^{}",)),
    Row(
        "request-pull of a tag",
        'a git request-pull v1~1 "$URL" v1',
        says=("tags/v1",),
    ),
    Row("ls-remote --symref", "a git ls-remote --symref --heads origin"),
    Row("ls-remote --exit-code", "a git ls-remote --exit-code origin none", status=2),
    Row(
        "ls-remote in no repository",
        'as c git ls-remote --heads "$URL"',
        before=f"printf '{SECRET}' >a/big; a commit big; a git push -q origin main",
        most_down=1000,
    ),
    Row("remote show", "b git remote show origin", before="a commit 4; a git push -q origin main :topic"),
    Row(
        "remote set-head -a",
        "b git remote set-head origin -a",
        before="b git remote set-head origin topic",
        says=("origin/HEAD set to main",),
    ),
]
