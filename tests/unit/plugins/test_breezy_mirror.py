"""plugins.breezy.spool, plugins.breezy.mirror, plugins.breezy.mirror_files: an answer is whole revisions, a mirror
keeps them, and damage is found."""

from __future__ import annotations

import contextlib
import errno
import io
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import breezy
import pytest
from breezy.transport import get_transport_from_path

from smartserver.client.medium import ConnectionLost
from smartserver.client.mirrors import Mirrors
from smartserver.errors import CorruptRecord
from smartserver.plugins.breezy import spool
from smartserver.plugins.breezy.mirror import Mirror
from smartserver.plugins.breezy.mirror_files import FileLock
from smartserver.plugins.breezy.spool import Spool
from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.model import GraphNode, Parent
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed
from smartserver.vcs.bzr.compat import format_2a
from smartserver.vcs.bzr.plan import plan
from smartserver.vcs.bzr.repository import BrzRepository

KINDS = system_of("bzr 2a").kinds
URL = "hpss://mirror.example.org/p"

GRAPH = [
    GraphNode(b"one", ()),
    GraphNode(b"two", (Parent(b"one"),)),
    GraphNode(b"side", (Parent(b"one"), Parent(b"ghost", True))),
    GraphNode(b"three", (Parent(b"two"), Parent(b"side"))),
]


@pytest.fixture(autouse=True)
def breezy_runs() -> None:
    if breezy.get_global_state() is None:
        breezy.initialize()


def segments() -> dict[bytes, bytes]:
    writer = SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: b"")
    return {
        revision: writer.segment(revision, parents, [NewRecord(0, revision, b"", b"text of " + revision, ())])
        for revision, parents in GRAPH
    }


def coming(body: bytes | Iterator[bytes], count: int = 4) -> Spool:
    """An answer whose body comes in pieces of seven bytes."""
    pieces = iter([body[at : at + 7] for at in range(0, len(body), 7)]) if isinstance(body, bytes) else body
    answer: Any = SimpleNamespace(body=pieces, result=SimpleNamespace(segments=count, size=1000))
    made = Spool(answer)
    made.receive()
    return made


# -- what comes


def test_all_that_comes() -> None:
    whole = segments()
    came = coming(b"".join(whole.values()))
    assert list(came.segments()) == list(whole.values())
    assert list(came.segments({b"one", b"side"})) == [whole[b"two"], whole[b"three"]]
    assert (len(came.revisions), came.broken) == (4, None)


def test_a_parent_that_comes_later_is_refused() -> None:
    """It would be no prefix of revisions that are whole."""
    body = b""
    for each in (GraphNode(b"a", (Parent(b"b"),)), GraphNode(b"b", (Parent(b"a"),))):
        writer = SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: b"")
        body += writer.segment(*each, [NewRecord(0, each.revision, b"", b"text", ())])
    came = coming(body, 2)
    assert len(came.revisions) == 1
    assert isinstance(came.broken, CorruptRecord)
    assert "came after a revision whose parent it is" in str(came.broken)


def test_fewer_than_announced() -> None:
    came = coming(b"".join(segments().values()), 5)
    assert len(came.revisions) == 4
    assert "the server sent 4 revisions, having announced 5" in str(came.broken)


@pytest.mark.parametrize("error", [ConnectionLost("gone"), KeyboardInterrupt()])
def test_what_came_before_the_rest_was_broken_off(error: BaseException) -> None:
    whole = segments()

    def body() -> Iterator[bytes]:
        yield whole[b"one"] + whole[b"two"] + whole[b"side"][:5]
        raise error

    came = coming(body())
    assert list(came.segments()) == [whole[b"one"], whole[b"two"]]
    assert came.broken is error


def test_a_body_that_is_cut_off() -> None:
    came = coming(b"".join(segments().values())[:-1])
    assert len(came.revisions) == 3
    assert isinstance(came.broken, Malformed)


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has no name that the error could say."""

    class Full(io.BytesIO):
        def write(self, content: object, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spool.tempfile, "SpooledTemporaryFile", lambda size: Full())  # type: ignore[attr-defined]
    with pytest.raises(OSError, match=re.escape(f"No space left on device: {tempfile.gettempdir()!r}")):
        coming(b"".join(segments().values()))


def test_a_large_revision_is_shown_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is whole."""
    told: list[tuple[int, int, int]] = []
    monkeypatch.setattr(spool, "moving", lambda what: contextlib.nullcontext(lambda *sent: told.append(sent)))
    body = b"".join(segments().values())
    assert len(coming(body).revisions) == 4
    assert told[0] == (7, 0, 4)
    assert told[-1] == (len(body), 4, 4)


# -- a mirror


@pytest.fixture
def line(tmp_path: Path) -> tuple[Any, list[bytes]]:
    """A local branch's repository, and its revisions."""
    (tmp_path / "local").mkdir()
    control = format_2a().initialize(str(tmp_path / "local"))
    control.create_repository()
    control.create_branch()
    tree = control.create_workingtree()
    revisions = []
    for number in range(4):
        (tmp_path / "local" / "file").write_text(f"{number}\n")
        tree.smart_add([str(tmp_path / "local")])
        revisions.append(tree.commit(f"number {number}", committer="a <a@example.org>"))
    return control.open_repository(), revisions


def sent(repository: Any, tips: list[bytes], haves: list[bytes], breaks: BaseException | None = None) -> Spool:
    """The answer of a server that has what a local repository has; `breaks`: after all but the last revision."""
    whole = list(plan(BrzRepository(repository), tips, haves).segments())

    def body() -> Iterator[bytes]:
        yield from whole[:-1]
        if breaks is not None:
            raise breaks
        yield from whole[-1:]

    return coming(body(), len(whole))


def mirror_in(tmp_path: Path) -> Mirror:
    return Mirror(URL, Mirrors(str(tmp_path / "mirrors")).place(URL, b"one"))


def test_what_rests_on_local_revisions_is_read_above_them(tmp_path: Path, line: tuple[Any, list[bytes]]) -> None:
    """Nothing is kept that rests on them."""
    local, revisions = line
    mirror = mirror_in(tmp_path)
    mirror.receive(sent(local, revisions[3:], revisions[1:2]), beside=[local])
    assert mirror.has(revisions[3])
    assert mirror.haves([]) == ([], [])


def _become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
    "folder": _become_folder,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", ["packs/*", "indices/*.rix", "pack-names", "format"])
def test_damage_is_found_when_it_is_opened(
    tmp_path: Path, line: tuple[Any, list[bytes]], part: str, damage: str
) -> None:
    local, revisions = line
    mirror_in(tmp_path).receive(sent(local, revisions[3:], []), is_first=True)
    (file,) = (tmp_path / "mirrors").glob(f"*/.bzr/repository/{part}")
    file.chmod(0o600)
    DAMAGES[damage](file)
    assert mirror_in(tmp_path).haves(revisions) == ([], [])


def test_the_lock_is_the_systems(tmp_path: Path) -> None:
    one, other = [FileLock(get_transport_from_path(str(tmp_path)), "lock", None, None) for _ in range(2)]
    one.lock_write()
    one.unlock()
    other.lock_write()
    other.unlock()
    other.unlock()
    assert [path.name for path in tmp_path.iterdir()] == ["lock.names"]
