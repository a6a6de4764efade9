"""Repositories of every shape: submodules, linked work trees, borrowed objects, SHA-256, and large enough for packs.

The knowledge of a remote that the helper keeps may be missing, old, wrong or garbage: commands still do their work,
in one more round trip at most."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Pair, Side, check_rounds, fine, knowledge_file, missing_objects
from scripts import script

from smartserver.client.knowledge import decode, encode
from smartserver.client.url import parse
from smartserver.records.model import Tip

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]
BeginPair = Callable[[str], Pair]


# -- submodules


def test_clone_sides_needs_a_setting(ours: Begin) -> None:
    """The submodule is another repository on the server."""
    side = ours("shared")
    side.prepare(
        'git init -q super; user super git submodule --quiet add "$URL" lib; user super git commit -qm sub;'
        ' user super git push -q "$URL-super" main; git config --global --unset protocol.hpss.allow'
    )
    result = side.run('as c git clone --recurse-submodules "$URL-super" c')
    assert result.status != 0
    assert "transport 'hpss' not allowed" in result.err
    side.prepare("rm -rf c; smartserver setup git")
    result = side.prepare('as c git clone -q --recurse-submodules "$URL-super" c')
    assert result.counts.connections == 2
    assert (side.folder / "c" / "lib" / "three").exists()
    assert side.git("c/lib", "fsck", "--strict", "--no-dangling") == ""


# -- work trees and borrowed objects


def test_a_linked_work_tree_pushes_and_fetches(ours: Begin) -> None:
    side = ours("shared")
    side.prepare("a git worktree add -q ../c topic")
    fine(side.run("c commit more; c git push origin topic"))
    assert side.refs["refs/heads/topic"] == side.git("a", "rev-parse", "topic")
    side.prepare("b git checkout -q topic; b git pull -q; b commit yet; b git push -q origin topic")
    fine(side.run("c git pull --no-rebase"))
    assert (side.folder / "c" / "yet").exists()
    assert side.git("a", "fsck", "--strict", "--no-dangling") == ""


def test_a_clone_that_borrows_receives_only_the_rest(ours: Begin) -> None:
    """Also where nothing is remembered of the server (c), and where the borrowed repository is ahead of it."""
    side = ours("shared")
    noise = "dd if=/dev/urandom bs=1000 count=100 of=a/noise 2>/dev/null; a commit noisy"
    side.prepare(
        f"{noise}; a git push -q origin main; b git pull -q; a commit ahead; b commit more; b git push -q origin main"
    )
    for user in ("c", "b"):
        done = fine(side.run(f'as {user} git clone -q --reference a "$URL" {user}-2'))
        assert done.counts.bytes_down < 10_000, done.counts
        assert side.git(f"{user}-2", "fsck", "--strict", "--no-dangling") == ""
        assert side.git(f"{user}-2", "rev-parse", "main") == side.git("b", "rev-parse", "main")


def test_from_a_bare_repository_by_git_dir_and_in_a_folder_below(ours: Begin) -> None:
    side = ours("shared")
    side.prepare('as c git clone -q --mirror "$URL" c; a commit four; a git push -q origin main')
    fine(side.run("c git fetch"))
    assert side.git("c", "rev-parse", "main") == side.git("a", "rev-parse", "main")
    fine(side.run("c git update-ref refs/heads/new main~1; c git push $URL refs/heads/new"))
    fine(side.run("as c git --git-dir=a/.git push origin main:refs/heads/newer"))
    assert {"refs/heads/new", "refs/heads/newer"} <= side.refs.keys()
    side.prepare("mkdir -p a/deep/er; a commit five")
    for command in ("push origin main", "fetch"):
        fine(side.run(f"user a/deep/er git {command}"))


# -- formats


SHA256 = """
git init -q --object-format=sha256 a
a git remote add origin "$URL"
a commit one; a commit two; a git tag -m v1 v1; a git branch topic HEAD~1
"""


def test_sha256(pair: BeginPair) -> None:
    both = pair("nothing")
    both.gits.prepare("rm -rf peer; git init -q --bare --object-format=sha256 peer")
    both.prepare(SHA256)
    for command in (
        "a git push origin main topic v1",
        'as b git clone "$URL" b',
        "a commit three; a git push origin main",
        "b git pull",
        "a git push origin main",
        "b git checkout -q topic; b commit x; b git push --force-with-lease origin topic",
        "a git push --force-with-lease origin main~1:topic",
        "a git push origin :topic",
        "b git fetch --prune",
        "a git commit -q --amend -m other; a git push --force-with-lease origin main",
        "b git fetch",
        'as c git clone --bare "$URL" c',
        'rm -rf c; as c git clone --depth 1 "$URL" c',
        "c git fetch --no-tags --unshallow",
    ):
        ours, gits = both.run(command)
        assert ours.said == gits.said, command
        assert ours.status == gits.status
        check_rounds(ours.counts, 2)
    listed, _ = both.run("a git ls-remote --heads origin")
    assert listed.out.split()[0] == both.ours.git("a", "rev-parse", "main")
    state, expected = both.states()
    assert state == expected
    both.ours.check_sound()
    objects = both.ours.git("a", "rev-list", "--objects", "--no-object-names", "main").split()
    assert both.ours.served is not None
    assert missing_objects(both.ours.served, both.ours.path, objects) == []


def test_a_variable_of_git_config_alone(ours: Begin) -> None:
    """GIT_CONFIG names a file for `git config`, and nothing else that git does reads it."""
    side = ours("shared")
    fine(side.run('as c env GIT_CONFIG=/nowhere git clone -q "$URL" c'))
    side.prepare("git init -q --object-format=sha256 s; user s commit one")
    fine(side.run('user s env GIT_CONFIG=/dev/null git push -q "$URL-s" main'))
    person = "A <a@example.org> 1 +051800"
    side.prepare(
        f'printf "tree %s\\nauthor {person}\\ncommitter {person}\\n\\nx\\n" $(a git rev-parse main^{{tree}}) >odd;'
        " a git push -q origin $(a git hash-object -t commit -w --literally ../odd):refs/heads/odd;"
        " git config --global fetch.fsckObjects true"
    )
    done = side.run('as b env GIT_CONFIG=/dev/null git clone -q "$URL" d')
    assert done.status != 0
    assert "badTimezone" in done.err


# -- sizes


def test_a_folder_whose_path_has_a_newline(ours: Begin) -> None:
    """A line of git's protocol has one path, and git removes the file of that name (`lock PATH`)."""
    side = ours("shared")
    (side.folder / "notes").write_text("precious")
    folder = side.folder / "notes\ncopy"
    done = fine(side.run('as c git clone -q "$URL" "$(printf "notes\\ncopy")"'))
    side.prepare("for n in 1 2 3; do a git tag -m $n t$n; done; a git push -q --tags")
    fetched = fine(side.run('cd "$(printf "notes\\ncopy")"; git -c fetch.unpackLimit=1 fetch -q'))
    assert (done.said, fetched.said) == ("", "")
    assert (side.folder / "notes").read_text() == "precious"
    packs = sorted(path.suffix for path in (folder / ".git/objects/pack").iterdir())
    assert packs == [".idx", ".idx", ".pack", ".pack"]


def test_a_clone_is_a_pack_and_a_small_fetch_is_not(ours: Begin) -> None:
    side = ours("shared")
    fine(side.run('as c git clone -q "$URL" c'))
    objects = side.folder / "c/.git/objects"
    assert {path.name for path in objects.iterdir()} == {"info", "pack"}
    assert {path.suffix for path in (objects / "pack").iterdir()} == {".pack", ".idx"}
    side.prepare("a commit four; a git push -q origin main")
    fine(side.run("c git fetch"))
    assert "count: 3\n" in side.git("c", "count-objects", "-v") + "\n"
    side.prepare("a commit five; a git push -q origin main")
    fine(side.run("c git -c fetch.unpackLimit=1 fetch"))
    names = [path.suffix for path in (objects / "pack").iterdir()]
    assert sorted(names) == [".idx"] * 2 + [".pack"] * 2, "git was told of the file that kept the pack"


# -- hooks


def test_what_a_pre_push_hook_is_told_of_refs_that_exist(ours: Begin) -> None:
    """Zeros, for the remote is not asked; of a leased ref what its lease expects. What is new can still be found."""
    side = ours("shared")
    says = "read a id b old\necho $b $old $(git rev-list --count $id --not --remotes=$1)"
    script(side.folder / "a" / ".git" / "hooks" / "pre-push", says)
    for option in ("", "--force-with-lease"):
        old = side.git("a", "rev-parse", "main") if option else "0" * 40
        side.prepare(f"a commit new{option}")
        pushed = fine(side.run(f"a git push {option} origin main"))
        assert f"refs/heads/main {old} 1" in pushed.said.splitlines(), pushed.said


LARGE = 200_000
"""A size of content that no client would send twice; a push of this much announces its graph first."""


def folder_of(side: Side) -> Path:
    """Return the repository's folder on the server."""
    assert side.served is not None
    return side.served.root / side.path


def check_whole(side: Side, repository: str, *, refs: str = "--all") -> None:
    """Check that the local repository is sound, and that the server has all of it."""
    assert side.served is not None
    assert side.git(repository, "fsck", "--strict", "--no-dangling") == ""
    objects = side.git(repository, "rev-list", "--objects", "--no-object-names", refs).split()
    assert missing_objects(side.served, side.path, objects) == []


@pytest.fixture
def large(ours: Begin) -> Side:
    """`shared`, with much content that user a has pushed and user b has fetched."""
    side = ours("shared")
    (side.folder / "a" / "large").write_bytes(random.Random(1).randbytes(LARGE))
    side.prepare("a git add .; a git commit -qm large; a git push -q origin main; b git pull -q")
    return side


# -- an empty cache


def test_first_contact_of_a_large_repository_is_one_round_trip_more(large: Side) -> None:
    large.prepare("forget a")
    fine(large.run("a commit four; a git push origin main"), 3)
    assert large.git("a", "rev-parse", "main") in large.refs.values()


def test_a_fetch_without_a_cache_brings_only_what_is_new(large: Side) -> None:
    large.prepare("a commit four; a git push -q origin main; forget b")
    result = fine(large.run("b git fetch"), 2)
    assert result.counts.bytes_down < 3000
    check_whole(large, "b")


# -- a cache with nonsense in it


def test_a_cache_at_the_version_of_the_server_with_other_refs(ours: Begin) -> None:
    """The server was restored to an earlier state, and has new changes since."""
    side = ours("shared")
    path = knowledge_file(side.folder / ".cache" / "a" / "smartserver" / "remotes", side.url)
    known = decode(path.read_bytes(), parse(side.url).key)
    known.refs[b"refs/heads/main"] = (Tip(b"x" * 20),)
    path.write_bytes(encode(known))
    wrong = side.run("a git fetch")
    assert wrong.status == 128
    assert "was discarded: try again" in wrong.err
    assert len(wrong.err.splitlines()) == 1, wrong.err
    fine(side.run("a git fetch"), 2)
    check_whole(side, "a")


# -- a repository that is not the one remembered


def test_a_repository_that_is_gone_is_made_anew_by_the_next_push(large: Side) -> None:
    shutil.rmtree(folder_of(large))
    large.prepare("a commit four")
    fine(large.run("a git push origin main"), 3)
    assert large.refs == {"refs/heads/main": large.git("a", "rev-parse", "main")}
    check_whole(large, "a", refs="main")


def restored_to_the_same_version(side: Side, backup: Path, meanwhile: str) -> None:
    """User a pushes twice, the earlier backup is restored, and user b pushes twice: the version is the same again."""
    shutil.copytree(folder_of(side), backup)
    side.prepare("a commit four; a git push -q origin main; a commit five; a git push -q origin main")
    shutil.rmtree(folder_of(side))
    shutil.copytree(backup, folder_of(side))
    side.prepare(meanwhile)


def test_after_a_restore_a_fetch_learns_what_is_there(ours: Begin, tmp_path: Path) -> None:
    side = ours("shared")
    restored_to_the_same_version(side, tmp_path / "b", "b git push -q origin main:x; b git push -q origin main:y")
    fine(side.run("a git fetch"), 2)
    told = side.run("a git ls-remote --heads origin")
    assert {line.split()[1] for line in told.said.splitlines() if "refs/heads/" in line} == {
        ref for ref in side.refs if ref.startswith("refs/heads/")
    }
    assert side.git("a", "rev-parse", "origin/x", "origin/y") == side.git("b", "rev-parse", "main", "main")


@pytest.mark.parametrize("option", ["", "--force-with-lease"])
def test_after_a_restore_a_push_is_told_what_is_there(ours: Begin, tmp_path: Path, option: str) -> None:
    """A push reports neither that everything is up to date nor that parents are missing."""
    side = ours("shared")
    restored_to_the_same_version(side, tmp_path / "b", "b commit B; b git push -q; b commit C; b git push -q")
    result = side.run(f"a git push {option} origin main")
    assert (result.status, "rejected" in result.said) == (1, True), result.said
    assert side.refs["refs/heads/main"] == side.git("b", "rev-parse", "main")
