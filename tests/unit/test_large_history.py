"""large_history: a history several times over, of which no object repeats."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from large_history import letters, repeat

from smartserver.cli.histories import generate

TIMES = 3

MORE = b"""\
commit refs/heads/main
mark :1
author A <a@example.org> 1300000000 +0130
committer A <a@example.org> 1300000100 -0500
data 10
from :9
:9
from refs/heads/main^0
M 100755 inline run:12
data 10
echo :12

M 100644 inline "tab\\there \\303\\251 \\"quoted\\" \\\\n"
data 1
x
M 120000 inline link
data 6
run:12
reset refs/heads/other
commit refs/heads/other
mark :2
committer B <b@example.org> 1100000000 +0000
data 5
root
M 100644 inline empty
data 0

commit refs/heads/main
mark :3
committer B <b@example.org> 1400000000 +0000
data 5
join
from :1
merge :2
tag v1
from :3
tagger B <b@example.org> 1400000000 +0000
data 4
tag

"""


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["git", *words], cwd=folder, input=stdin, check=True, capture_output=True)
    return done.stdout.decode()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A root in the middle, a merge, a tag, and names and messages that look like what stands between them."""
    made = tmp_path / "source.git"
    generate(made, os.environ, count=20)
    git(made, "fast-import", "--quiet", stdin=MORE)
    return made


def objects(folder: Path, kind: str) -> list[str]:
    asked = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)"]
    return [line.split()[0] for line in git(folder, *asked).splitlines() if line.endswith(f" {kind}")]


def files(folder: Path, ref: str) -> set[tuple[bytes, bytes]]:
    """Mode and path of all files."""
    lines = git(folder, "ls-tree", "-r", "-z", ref).encode().split(b"\0")[:-1]
    return {(line[:6], line.partition(b"\t")[2]) for line in lines}


def graph(folder: Path, *revisions: str) -> list[tuple[str, int, str]]:
    asked = git(folder, "log", "--topo-order", "--format=%s%x00%P%x00%an", *revisions)
    return [(s, len(p.split()), a) for s, p, a in (line.split("\0") for line in asked.splitlines())]


def test_no_object_repeats_and_each_copy_follows_the_one_before(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.git"
    repeat(source, made, TIMES)
    git(made, "fsck", "--strict")
    for kind in ("commit", "tree", "blob", "tag"):
        assert len(objects(made, kind)) == TIMES * len(objects(source, kind)), kind
    assert git(made, "rev-list", "--max-parents=0", "--all").count("\n") == 2  # Those of the first copy.
    one, two = "refs/heads/copy-1/main", "refs/heads/copy-2/main"
    assert graph(made, one) == graph(source, "--all")
    for above, below in ((two, one), ("refs/heads/main", two)):
        # A copy's two roots have a parent more than those of the source.
        copied, original = graph(made, above, f"^{below}"), graph(source, "--all")
        assert sorted(n for _, n, _ in copied) == sorted(n or 1 for _, n, _ in original)
        assert sorted(s for s, _, _ in copied) == sorted(s for s, _, _ in original)
    names = git(made, "for-each-ref", "--format=%(refname)").split()
    plain = {"refs/heads/main", "refs/heads/other", "refs/tags/v1"}
    assert set(names) == plain | {
        f"{folder}/copy-{n}/{name}" for n in (1, 2) for folder, _, name in (each.rpartition("/") for each in plain)
    }


def test_each_copy_has_the_same_files_with_other_letters(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.git"
    repeat(source, made, TIMES)
    refs = ("copy-1/main", "copy-2/main", "main")
    before = files(source, "main")
    for number, ref in enumerate(refs):
        renamed = {(mode, path.translate(letters(number))) for mode, path in before}
        assert files(made, ref) == renamed, ref
    name = b"folder0/file0"
    names = [name.translate(letters(number)).decode() for number in range(TIMES)]
    assert len(set(names)) == TIMES
    texts = [git(made, "cat-file", "blob", f"{ref}:{each}") for ref, each in zip(refs, names, strict=True)]
    text = git(source, "cat-file", "blob", "main:folder0/file0")
    assert texts[0] == text
    assert len(set(texts)) == TIMES
    assert {len(each) for each in texts[1:]} == {len(text) + 2}
    assert [each.endswith(f"\n{n}\n") for n, each in enumerate(texts) if n] == [True, True]
    dates = [int(date) for date in git(source, "log", "--all", "--format=%ct").split()]
    copied = [int(date) for date in git(made, "log", "--topo-order", "--format=%ct", "main").split()]
    assert min(dates) <= min(copied)
    assert max(copied) <= max(dates)


def test_it_is_the_same_each_time(source: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        repeat(source, tmp_path / name, TIMES)
    assert git(tmp_path / "one", "for-each-ref") == git(tmp_path / "two", "for-each-ref")


def test_no_copy_is_a_delta_of_another(source: Path, tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(200_000)
    stream = b"commit refs/heads/main\ncommitter A <a@b> 1500000000 +0000\ndata 0\nfrom refs/heads/main^0\n"
    git(source, "fast-import", "--quiet", stdin=stream + b"M 100644 inline noise\ndata %d\n%s\n" % (len(noise), noise))
    made = tmp_path / "made.git"
    repeat(source, made, 2)
    (pack,) = (made / "objects" / "pack").glob("*.pack")
    assert pack.stat().st_size > 2 * len(noise)


def test_the_command(source: Path, tmp_path: Path) -> None:
    bundle, made = tmp_path / "history.bundle", tmp_path / "made.git"
    git(source, "bundle", "create", "--quiet", str(bundle), "--all")
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "tests.large_history", str(bundle), str(made), "--times", "2"]
    subprocess.run(words, cwd=root, check=True)
    assert git(made, "rev-list", "--count", "--all") == f"{2 * int(git(source, 'rev-list', '--count', '--all'))}\n"
    again = subprocess.run(words, cwd=root, check=False, capture_output=True, text=True)
    assert again.returncode == 1
    assert "exists" in again.stderr
