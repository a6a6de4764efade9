"""vcs.git.streams, vcs.git.bare: git's streams in a repository made for them, and what is said of wrong ones."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import script

from smartserver.vcs.base import BadStream, ToolFailed, VcsError
from smartserver.vcs.git.bare import check_kept, open_bare, set_refs
from smartserver.vcs.git.repository import GitRepository
from smartserver.vcs.git.streams import Omissions, export_stream, find_omissions, import_stream

MAIN = b"refs/heads/main"
WHO = b"A <a@example.org> 1700000000 +0000"
COMMIT = b"commit refs/heads/main\nmark :%d\ncommitter %b\ndata 1\nx\n"
BLOB = b"blob\ndata 3\nabc\n"

VARIABLES = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[GitRepository]:
    with open_bare(str(tmp_path / "bare"), "git sha1", {**VARIABLES, "GIT_DIR": str(tmp_path / "other")}) as opened:
        yield opened


def read(repository: GitRepository, stream: bytes, *options: str) -> None:
    import_stream(repository, io.BytesIO(stream), options)


def commit(repository: GitRepository, text: bytes, kind: str = "commit") -> bytes:
    """An object of that text, whatever git thinks of it."""
    return bytes.fromhex(repository.run("hash-object", "-t", kind, "-w", "--literally", "--stdin", stdin=text).decode())


# -- the repository


def test_it_is_made_and_opened_again(tmp_path: Path, repository: GitRepository) -> None:
    read(repository, COMMIT % (1, WHO))
    assert not (tmp_path / "other").exists()
    with open_bare(repository.git_dir, "git sha1", VARIABLES) as again:
        assert list(again.refs()) == [MAIN]
    with pytest.raises(VcsError, match="is a repository of git sha1, expected one of git sha256"):
        open_bare(repository.git_dir, "git sha256", VARIABLES)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(VcsError, match="full was not created by smartserver: choose a new folder"):
        open_bare(str(tmp_path / "full"), "git sha1", VARIABLES)
    with pytest.raises(ToolFailed):
        open_bare(str(tmp_path / "full/file"), "git sha1", VARIABLES)
    with open_bare(str(tmp_path / "large"), "git sha256", VARIABLES) as other:
        assert other.vcs == "git sha256"


def test_a_repository_of_the_user_is_refused(tmp_path: Path) -> None:
    for options, folder in (["--bare"], "bare"), ([], "work/.git"):
        place = str(tmp_path / folder)
        subprocess.run(["git", "init", "-q", *options, place.removesuffix("/.git")], env=VARIABLES, check=True)
        with pytest.raises(VcsError, match=f"^{place} was not created by smartserver"):
            check_kept(place, VARIABLES)
        with pytest.raises(VcsError, match="choose a new folder"):
            open_bare(place, "git sha1", VARIABLES)
    assert not check_kept(str(tmp_path / "absent"), VARIABLES)
    open_bare(str(tmp_path / "absent"), "git sha1", VARIABLES).close()
    assert check_kept(str(tmp_path / "absent"), VARIABLES)


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user chose its hooks and its settings. As git does, root works in the folders of sudo's user."""
    kept, new = tmp_path / "kept", tmp_path / "new"
    new.mkdir()
    open_bare(str(kept), "git sha1", VARIABLES).close()
    user = os.getuid() or 65534
    for folder in (kept, new):
        if os.getuid() == 0:
            os.chown(folder, user, -1)
        for other, sudo in ((user + 1, ""), (user + 1, str(user)), (0, ""), (0, str(user + 1)), (0, "x")):
            monkeypatch.setattr(os, "geteuid", lambda other=other: other)
            with pytest.raises(
                VcsError, match=f"^{folder} belongs to user {user}, who may have prepared it: choose a "
            ):
                open_bare(str(folder), "git sha1", {**VARIABLES, "SUDO_UID": sudo})
        for own, sudo in ((user, ""), (0, str(user))):
            monkeypatch.setattr(os, "geteuid", lambda own=own: own)
            assert check_kept(str(folder), {**VARIABLES, "SUDO_UID": sudo}) is (folder == kept)


def test_no_hook_and_no_setting_of_it_runs_a_program(tmp_path: Path) -> None:
    """Also one that came there later."""
    folder = tmp_path / "bare"
    program = script(tmp_path / "program", f"echo $0 >> {tmp_path}/ran")
    with open_bare(str(folder), "git sha1", VARIABLES) as opened:
        read(opened, COMMIT % (1, WHO))
        tips = opened.refs()
    (folder / "hooks").mkdir()
    for name in ("reference-transaction", "post-index-change", "pre-auto-gc"):
        (folder / "hooks" / name).symlink_to(program)
    settings = ("core.hooksPath", str(folder / "hooks")), ("core.alternateRefsCommand", program)
    for name, value in (*settings, ("core.fsmonitor", program), ("core.pager", program)):
        subprocess.run(["git", "-C", str(folder), "config", name, value], env=VARIABLES, check=True)
    (folder / "objects/info/alternates").write_text(f"{folder}/objects\n")
    subprocess.run(["git", "-C", str(folder), "update-ref", "refs/heads/x", MAIN], env=VARIABLES, check=True)
    subprocess.run(["git", "-C", str(folder), "rev-list", "--alternate-refs"], env=VARIABLES, check=False)
    assert len((tmp_path / "ran").read_text().split()) > 1, "they run where nothing is said against it"
    (tmp_path / "ran").unlink()
    with open_bare(str(folder), "git sha1", VARIABLES) as opened:
        assert opened.complete_haves([], 9)
        set_refs(opened, tips, MAIN)
        read(opened, COMMIT.replace(MAIN, b"refs/heads/new") % (2, WHO))
        with (tmp_path / "stream").open("wb") as stream:
            export_stream(opened, (), (), stream)
    assert not (tmp_path / "ran").exists()


def test_it_works_in_a_hook_of_another_repository(tmp_path: Path) -> None:
    of_hook = {
        "GIT_QUARANTINE_PATH": str(tmp_path / "quarantine"),
        "GIT_CONFIG": str(tmp_path / "config"),
        "GIT_CONFIG_PARAMETERS": f"'core.hooksPath'='{tmp_path}'",
        "GIT_GRAFT_FILE": str(tmp_path / "grafts"),
    }
    script(tmp_path / "reference-transaction", "exit 1")
    with open_bare(str(tmp_path / "bare"), "git sha1", {**VARIABLES, **of_hook}) as opened:
        read(opened, COMMIT % (1, WHO))
        (tip,) = opened.refs().values()
        set_refs(opened, {b"refs/heads/other": tip}, MAIN)
        assert list(opened.refs()) == [b"refs/heads/other"]


def test_its_refs_are_those_that_are_set(repository: GitRepository) -> None:
    read(repository, COMMIT % (1, WHO))
    (tip,) = repository.refs().values()
    set_refs(repository, {b"refs/heads/a/b": tip, b"refs/tags/t": tip}, b"refs/heads/a/b")
    assert (repository.refs(), repository.head()) == (
        {b"refs/heads/a/b": tip, b"refs/tags/t": tip},
        b"refs/heads/a/b",
    )
    set_refs(repository, {b"refs/heads/a": tip}, MAIN)
    assert (repository.refs(), repository.head()) == ({b"refs/heads/a": tip}, MAIN)
    with pytest.raises(ToolFailed):
        set_refs(repository, {b"refs/heads/../../escaped": tip}, MAIN)
    with pytest.raises(ToolFailed, match="HEAD cannot name"):
        set_refs(repository, {}, b"--delete")


# -- streams out


def test_what_it_does_not_say_is_counted(repository: GitRepository, tmp_path: Path) -> None:
    read(repository, COMMIT % (1, WHO))
    (tip,) = repository.refs().values()
    text = repository.objects.read(tip).text
    head, _, message = text.partition(b"\n\n")
    signed = commit(repository, head + b"\ngpgsig -----BEGIN\n -----END\n\n" + message)
    nul = commit(repository, text + b"\0rest")
    about = b"type %b\ntag %b\ntagger " + WHO + b"\n\nmessage\n"
    tag = commit(repository, b"object %b\n" % tip.hex().encode() + about % (b"commit", b"v1"), "tag")
    nested = commit(repository, b"object %b\n" % tag.hex().encode() + about % (b"tag", b"nested"), "tag")
    blob = commit(repository, b"text", "blob")
    refs = {
        b"refs/heads/main": tip,
        b"refs/heads/nul": nul,
        b"refs/heads/signed": signed,
        b"refs/tags/v1": tag,
    }
    set_refs(repository, refs, MAIN)
    assert find_omissions(repository) == Omissions(2, 0, 0, has_nested_tags=False)
    set_refs(repository, {**refs, b"refs/tags/other": tag, b"refs/tags/nested": nested, b"refs/tags/blob": blob}, MAIN)
    assert find_omissions(repository) == Omissions(2, 0, 3, has_nested_tags=True)
    said: list[str] = []
    with open(tmp_path / "stream", "wb") as output:
        export_stream(repository, ("refs/tags/blob",), (), output, said.append)
        assert said == ["warning: refs/tags/blob: Unexpected object of type blob, skipping."]
        with pytest.raises(ToolFailed, match="tags unexported object"):
            export_stream(repository, (), (), output)
        export_stream(repository, (), ("--mark-tags",), output)


BLOB_KEY = bytes.fromhex("587be6b4c3f93f93c489c0111bba5596147a26cb")
"""The key of the text `x` and a line's end."""

EMPTY_TREE = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")

IDENT = b"A <a@b> 5 +0000"


ODD_TREES = [
    b"100664 f\0" + BLOB_KEY,
    b"100600 f\0" + BLOB_KEY,
    b"40000 d\0" + EMPTY_TREE + b"100644 f\0" + BLOB_KEY,
    b"100644 z\0" + BLOB_KEY + b"100644 a\0" + BLOB_KEY,
    b"100644 a\0" + BLOB_KEY + b"100644 a\0" + BLOB_KEY,
    b"100644 a/b\0" + BLOB_KEY,
    b"100644 a.b\0" + BLOB_KEY + b"0100644 c\0" + BLOB_KEY,
]
FINE_TREE = b"100644 a.b\0" + BLOB_KEY + b"160000 s\0" + b"\x11" * 20
ODD_AUTHORS = [b"<a@b> 5 +0000", b"A <a@b>", b"A<a@b> 5 +0000", b"A <<a@b>> 5 +0000", b"A <a@b> 5", b"A 5 +0000"]
FINE_AUTHORS = [b" <a@b> 5 +0000", b"A <> -5 -0000", b"A  B < a > 0 +051800", b"\xff <a>  5 +9999"]
ODD_TAGS = [b"tagger A <a@b> 5 +0000\nencoding x\n\n", b"tagger <a@b> 5 +0000\n\n", b"\n\0"]
FINE_TAGS = [b"tagger A <a@b> 5 +0000\n\nmessage", b"\nmessage", b"tagger  <> -5 +1\n\n"]


@pytest.mark.parametrize(
    ("counted", "tree", "author", "tag"),
    [
        *[((0, 1, 0), tree, IDENT, b"") for tree in ODD_TREES],
        *[((1, 0, 0), b"", author, b"") for author in ODD_AUTHORS],
        *[((0, 0, 0), FINE_TREE, author, b"") for author in FINE_AUTHORS],
        *[((0, 0, 1), b"", IDENT, tag) for tag in ODD_TAGS],
        *[((0, 0, 0), b"", IDENT, tag) for tag in FINE_TAGS],
    ],
)
def test_a_stream_brings_back_all_but_what_is_counted(
    repository: GitRepository, tmp_path: Path, counted: tuple[int, int, int], tree: bytes, author: bytes, tag: bytes
) -> None:
    commit(repository, b"x\n", "blob")
    key = commit(repository, tree, "tree")
    tip = commit(repository, b"tree %b\nauthor %b\ncommitter %b\n\nm\n" % (key.hex().encode(), author, IDENT))
    refs = {MAIN: tip}
    if tag:
        head = b"object %b\ntype commit\ntag v1\n" % tip.hex().encode()
        refs[b"refs/tags/v1"] = commit(repository, head + tag, "tag")
    set_refs(repository, refs, MAIN)
    assert find_omissions(repository) == Omissions(*counted, has_nested_tags=False)
    with open(tmp_path / "stream", "w+b") as output:
        export_stream(repository, (), ("--reencode=no",), output)
        output.seek(0)
        with open_bare(str(tmp_path / "copy"), "git sha1", VARIABLES) as copy:
            with contextlib.suppress(BadStream):
                import_stream(copy, output, ())
            assert (copy.refs() == refs) == (not any(counted))


# -- streams in


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"", "the stream is empty"),
        (b"no command\n", "line 1 of the stream: Unsupported command: no command"),
        (BLOB + b"# remark\nfoo\n", "line 5 of the stream: Unsupported command: foo"),
        (BLOB * 10_000 + b"foo\n" + BLOB * 1000, "line 30001 of the stream: Unsupported command: foo"),
        (BLOB * 10_000 + b"foo\n" + BLOB * 100_000, "line 30001 of the stream: Unsupported command: foo"),
        (b"blob\ndata 10\nabc", r"line 2 of the stream: EOF in data \(7 bytes remaining\)"),
        (COMMIT % (1, WHO) + b"from :9\n", "line 6 of the stream: mark :9 not declared"),
        (COMMIT % (1, b"nobody"), "line 3 of the stream: "),
        (COMMIT % (1, WHO) + b"M 100644 :7 x\n", "line 6 of the stream: mark :7 not declared"),
        (b"commit refs/heads/../x\n", "line 1 of the stream: .*refs/heads/../x"),
        (b"feature export-marks=evil\n", "line 1 of the stream: feature 'export-marks=evil' forbidden"),
        (
            b"feature done\noption git export-pack-edges=evil\n",
            "line 2 of the stream: forbidden: option git export-pack",
        ),
        (b"feature done\n" + BLOB, "the stream: stream ends early"),
        (b"feature unknown\n", "line 1 of the stream: This version of fast-import does not support feature unknown"),
        (b"# " + bytes(2 << 20), "of the stream: expected a command other than feature and option within"),
    ],
    ids=lambda value: value[:30] if isinstance(value, bytes) else None,
)
def test_a_stream_that_is_wrong(
    repository: GitRepository, stream: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadStream, match=why):
        read(repository, stream)
    assert repository.refs() == {}
    assert not list(tmp_path.rglob("evil*"))
