"""The bytes of packs, indexes and deltas, and the way records become entries.

vcs.git.streams, vcs.git.bare: git's streams in a repository made for them, and what is said of wrong ones."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dulwich.pack import apply_delta
from hypothesis import given
from hypothesis import strategies as st
from scripts import script
from traced_memory import traced
from twins import both

from smartserver.records import delta as frames
from smartserver.records.model import BaseTag, Entry
from smartserver.records.native import PARTS
from smartserver.records.segment import encode_segment
from smartserver.records.varint import Malformed
from smartserver.vcs.base import BadStream, ToolFailed, VcsError, WrongContent
from smartserver.vcs.git.bare import check_kept, open_bare, set_refs
from smartserver.vcs.git.delta import delta
from smartserver.vcs.git.objects import BLOB, COMMIT, METAS, TAG, TREE
from smartserver.vcs.git.pack import BaseNotHere, index, offset_back
from smartserver.vcs.git.repository import GitRepository
from smartserver.vcs.git.streams import Omissions, export_stream, find_omissions, import_stream
from smartserver.vcs.git.system import GIT

KINDS = GIT["git sha1"].kinds
BOTH = both("smartserver.vcs.git.build", "PackBuilder")
NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}
TYPES = {name: number for number, name in NAMES.items()}


@given(st.integers(1, 1 << 40))
def test_offsets_are_read_back_as_git_does(offset: int) -> None:
    coded = offset_back(offset)
    n = coded[0] & 127
    for before, byte in itertools.pairwise(coded):
        assert before & 128
        n = (n + 1) << 7 | byte & 127
    assert not coded[-1] & 128
    assert n == offset


def test_an_index_finds_wide_offsets() -> None:
    keys = [hashlib.sha1(bytes((n,))).digest() for n in range(40)]
    made = [(key, n, n if n % 2 else (1 << 31) + n * (1 << 33)) for n, key in enumerate(keys)]
    pack_hash = hashlib.sha1(b"pack").digest()
    block = index(sorted(made), pack_hash)
    said = subprocess.run(["git", "show-index"], input=block, capture_output=True, check=True).stdout.decode()
    assert said.splitlines() == [f"{offset} {key.hex()} ({check:08x})" for key, check, offset in sorted(made)]
    assert block[-40:] == pack_hash + hashlib.sha1(block[:-20]).digest()


class Sent:
    """Segments of one revision each, with the records that a test makes."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []

    def record(self, kind: int, text: bytes, base: bytes = b"", base_key: bytes = b"", **wrong: Any) -> bytes:
        """Send an object; its key. `wrong`: what its entry says otherwise."""
        encoding, frame = frames.compress(text, base)
        key = hashlib.sha1(b"%s %d\0%s" % (NAMES[kind], len(text), text)).digest()
        tag, base_key = (BaseTag.FULL_KEY, base_key) if base_key and encoding else (BaseTag.NONE, b"")
        entry = Entry(0, encoding, key, METAS[kind], tag, base_key, len(text), len(frame), b"")._replace(**wrong)
        number = b"%020d" % len(self.blocks)
        self.blocks.append(encode_segment(number, [], [entry], [frame], KINDS))
        return key


def nothing_outside(key: bytes) -> bytes:
    raise BaseNotHere(key)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    made = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(3)]
    yield made
    for file in made:
        os.close(file)


@pytest.fixture
def sent() -> Sent:
    return Sent()


def build(part: Any, files: list[int], sent: Sent, outside: Any = nothing_outside, cache: int = 1 << 20) -> Any:
    builder = part(20, files[0], files[1], outside, cache=cache, level=1)
    try:
        for block in sent.blocks:
            builder.add(block)
        builder.settle()
    except BaseException:
        builder.abandon()
        raise
    return builder


def entries(builder: Any, files: list[int]) -> list[tuple[int, bytes]]:
    """Type and text of each entry of the pack as git reads it and its index, which it verifies; a delta's type is 6."""
    table, digest = builder.finish(files[2])
    pack = os.pread(files[2], 1 << 30, 0)
    assert digest == pack[-20:]
    with tempfile.TemporaryDirectory() as folder:

        def git(*words: str, stdin: bytes = b"") -> bytes:
            return subprocess.run(["git", "-C", folder, *words], input=stdin, capture_output=True, check=True).stdout

        git("init", "-q", "--bare")
        for end, content in (("pack", pack), ("idx", table)):
            Path(folder, f"objects/pack/pack-x.{end}").write_bytes(content)
        rows = [line.split() for line in git("verify-pack", "-v", "objects/pack/pack-x.idx").splitlines()]
        lengths = {row[0]: len(row) for row in rows if len(row) in (5, 7)}  # That of a delta has its base.
        said = git("cat-file", "--batch", stdin=b"\n".join(lengths))
    found = []
    while said:
        head, _, said = said.partition(b"\n")
        key, kind, size = head.split()
        found.append((TYPES[kind] if lengths[key] == 5 else 6, said[: int(size)]))
        said = said[int(size) + 1 :]
    return found


@BOTH
def test_a_delta_only_where_types_are_equal(part: Any, files: list[int], sent: Sent) -> None:
    text = b"".join([b"line %d of some text\n" % n for n in range(50)])
    blob = sent.record(BLOB, text)
    sent.record(BLOB, text + b"more\n", text, blob)
    commit = sent.record(COMMIT, text + b"commit\n", text, blob)
    sent.record(TAG, text + b"tag\n", text + b"commit\n", commit)
    sent.record(COMMIT, text + b"commit 2\n", text + b"commit\n", commit)
    sent.record(BLOB, bytes(range(256)) * 9, text, blob)
    builder = build(part, files, sent)
    assert [kind for kind, _ in entries(builder, files)] == [BLOB, 6, COMMIT, TAG, COMMIT, BLOB]
    assert builder.objects == 6
    assert blob in builder
    assert bytes(20) not in builder


@BOTH
def test_a_base_of_the_repository_that_comes_after_all(part: Any, files: list[int], sent: Sent) -> None:
    """Each of the two texts rests on the other one, as after a change that was reverted."""
    here = b"".join([b"line %d\n" % n for n in range(100)])
    key = hashlib.sha1(b"blob %d\0%s" % (len(here), here)).digest()
    changed = sent.record(BLOB, here + b"changed\n", here, key)
    sent.record(BLOB, here, here + b"changed\n", changed)
    sent.record(BLOB, here + b"changed again\n", here + b"changed\n", changed)
    builder = build(part, files, sent, lambda wanted: here, cache=0)
    assert [text for _, text in entries(builder, files)] == [here + b"changed\n", here, here + b"changed again\n"]
    builder.abandon()
    assert key in builder


def test_a_large_text_is_never_held_twice(files: list[int], sent: Sent) -> None:
    """In Python, whose memory is counted."""
    text = b"a line of text, and another\n" * (1 << 19)
    sent.record(BLOB, text)
    length = len(text)
    del text
    with traced() as memory:
        build(PARTS["PackBuilder"][0], files, sent)
    assert memory.peak < length + (4 << 20)


@BOTH
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"meta": METAS[TAG]}, "its content has the id"),
        ({"length": 151}, "malformed at byte 0: a frame of 150 bytes of text, expected 151"),
    ],
)
def test_wrong_records_are_named(part: Any, files: list[int], sent: Sent, wrong: dict[str, Any], why: str) -> None:
    sent.record(BLOB, b"before\n")
    sent.record(BLOB, b"text of a blob\n" * 10, **wrong)
    sent.record(BLOB, b"after\n")
    with pytest.raises(WrongContent, match=why):
        build(part, files, sent)


@BOTH
@pytest.mark.parametrize("size", [100, 2 << 20])
def test_the_first_wrong_record_is_named(part: Any, files: list[int], sent: Sent, size: int) -> None:
    """A thread of its own hashes the texts, while later ones are decoded."""
    noise = random.Random(3)
    for number in range(60):
        wrong = {"key": b"%020d" % number} if number in (40, 50) else {}
        sent.record(BLOB, noise.randbytes(size if wrong else 60_000), **wrong)
    sent.record(BLOB, b"text of a blob\n" * 10, length=151)
    with pytest.raises(WrongContent, match=r"object 0+40 from the server"):
        build(part, files, sent)


@BOTH
def test_what_is_no_segment_is_refused(part: Any, files: list[int], sent: Sent) -> None:
    sent.record(BLOB, b"text\n")
    sent.blocks.append(sent.blocks[0][:-1])
    with pytest.raises(Malformed, match="bytes of a segment of"):
        build(part, files, sent)


def apply(base: bytes, changes: bytes) -> bytes:
    """Apply a delta as another implementation of git does."""
    return b"".join(apply_delta(base, changes))


lines = st.lists(st.sampled_from([b"a long enough line %d\n" % n for n in range(12)] + [b"x\n", b"\n", b"no end"]))
texts = lines.map(b"".join) | st.binary(max_size=600)


@given(texts, st.data())
def test_an_edited_text(base: bytes, data: st.DataObject) -> None:
    text = base
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, len(text)))
        text = text[:at] + data.draw(texts) + text[until:]
    assert apply(base, delta(base, text)) == text


@pytest.mark.parametrize("length", [0, 1, 0xFFFE, 0xFFFF, 0x10000, 0x1FFFE, 0x20001, 300_000])
def test_copies_longer_than_one_instruction(length: int) -> None:
    rng = random.Random(length)
    shared = rng.randbytes(length)
    base = rng.randbytes(70_000) + shared + b"tail"
    text = base[:5] + b"new" * 40 + shared + b"tail"
    assert apply(base, delta(base, text)) == text
    assert len(delta(base, base)) < 60


def test_a_small_edit_costs_little() -> None:
    old = [b"line %d of a file with some words in it\n" % n for n in range(3000)]
    new = list(old)
    for at in range(100, 3000, 300):
        new[at] = b"edited\n"
        new.insert(at + 50, b"inserted\n")
    moved = old[1000:1100]
    changes = delta(b"".join(old), b"".join(new[:2000] + moved + new[2000:]))
    assert apply(b"".join(old), changes) == b"".join(new[:2000] + moved + new[2000:])
    assert len(changes) < 1000


def test_a_large_file_in_another_order_ends_soon() -> None:
    rows = [b"row number %d of a table\n" % n for n in range(60_000)]
    base = b"".join(rows)
    random.Random(5).shuffle(rows)
    text = b"".join(rows)
    assert apply(base, delta(base, text)) == text


MAIN = b"refs/heads/main"
WHO = b"A <a@example.org> 1700000000 +0000"
A_COMMIT = b"commit refs/heads/main\nmark :%d\ncommitter %b\ndata 1\nx\n"
A_BLOB = b"blob\ndata 3\nabc\n"

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
    read(repository, A_COMMIT % (1, WHO))
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
        read(opened, A_COMMIT % (1, WHO))
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
        read(opened, A_COMMIT.replace(MAIN, b"refs/heads/new") % (2, WHO))
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
        read(opened, A_COMMIT % (1, WHO))
        (tip,) = opened.refs().values()
        set_refs(opened, {b"refs/heads/other": tip}, MAIN)
        assert list(opened.refs()) == [b"refs/heads/other"]


def test_its_refs_are_those_that_are_set(repository: GitRepository) -> None:
    read(repository, A_COMMIT % (1, WHO))
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
    read(repository, A_COMMIT % (1, WHO))
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
        (A_BLOB + b"# remark\nfoo\n", "line 5 of the stream: Unsupported command: foo"),
        (A_BLOB * 10_000 + b"foo\n" + A_BLOB * 1000, "line 30001 of the stream: Unsupported command: foo"),
        (A_BLOB * 10_000 + b"foo\n" + A_BLOB * 100_000, "line 30001 of the stream: Unsupported command: foo"),
        (b"blob\ndata 10\nabc", r"line 2 of the stream: EOF in data \(7 bytes remaining\)"),
        (A_COMMIT % (1, WHO) + b"from :9\n", "line 6 of the stream: mark :9 not declared"),
        (A_COMMIT % (1, b"nobody"), "line 3 of the stream: "),
        (A_COMMIT % (1, WHO) + b"M 100644 :7 x\n", "line 6 of the stream: mark :7 not declared"),
        (b"commit refs/heads/../x\n", "line 1 of the stream: .*refs/heads/../x"),
        (b"feature export-marks=evil\n", "line 1 of the stream: feature 'export-marks=evil' forbidden"),
        (
            b"feature done\noption git export-pack-edges=evil\n",
            "line 2 of the stream: forbidden: option git export-pack",
        ),
        (b"feature done\n" + A_BLOB, "the stream: stream ends early"),
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
