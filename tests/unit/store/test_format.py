"""store.format, store.old_root: which formats are read, and version 1 of an older release is changed to this one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import MAIN, History, Repeatable, check_whole, push, refs_of
from faulty_transport import FaultyTransport
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile, NoSuchRepository, OutcomeUnknown, Unsupported
from smartserver.store.checkpoint import make_checkpoint
from smartserver.store.format import LINE, is_ours, parse_format, recognise
from smartserver.store.lost import find
from smartserver.store.model import KnownVersion
from smartserver.store.old_root import undo, upgrade
from smartserver.store.repository import PackRepository
from transports.errors import TransportError, TransportFailed
from transports.local import LocalTransport


@pytest.mark.parametrize(
    "line",
    [b"5", b"smartserver repository", b"\xff", b"smartserver repository 10 swap=file", b"smartserver repository 22"],
)
def test_what_this_release_does_not_speak_is_named(line: bytes) -> None:
    assert is_ours(line) is (b"smartserver" in line)
    with pytest.raises(Unsupported, match="supported: smartserver repository 2") as raised:
        parse_format(line + b"\n")
    said = line.decode("utf-8", "backslashreplace")
    assert raised.value.what == f"the repository format {said!r} in the file 'format'"


@pytest.mark.parametrize("content", [b"", LINE[:-1], b"a\nb\n", b"x" * 1000])
def test_no_whole_line_is_damage(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="expected one line"):
        parse_format(content)


def test_another_tools_folder_is_recognised() -> None:
    transport = MemoryTransport()
    assert recognise(transport) is None
    transport.make_directory(".hg")
    assert recognise(transport) == "a Mercurial repository"


Said = dict[str, Any]
Change = Callable[..., object]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(Path(__file__).with_name("old_repositories.tar.xz")) as archive:
        archive.extraction_filter = lambda member, _: member  # Not known to Python before 3.11.4.
        archive.extractall(folder)
    return folder


@pytest.fixture(params=["file", "folder"])
def discipline(request: pytest.FixtureRequest) -> str:
    """The lock of the older release, and the name of the repository."""
    return str(request.param)


@pytest.fixture
def old(unpacked: Path, tmp_path: Path, discipline: str) -> Path:
    return shutil.copytree(unpacked / discipline, tmp_path / "project")


@pytest.fixture
def said(unpacked: Path, discipline: str) -> Said:
    found: Said = json.loads((unpacked / "said.json").read_text())[discipline]
    return found


@pytest.fixture
def line(history: History) -> list[bytes]:
    """The revisions that were pushed to them."""
    return history.line(16, name="base")


def opened(folder: Path) -> PackRepository:
    return PackRepository(LocalTransport(folder), clock=lambda: 1_790_010_000.0, randomness=Repeatable(7))


def change(do: Change, folder: Path, fail_at: int = 0, seed: int = 0) -> FaultyTransport:
    """Upgrade or undo, until the changing call of that number."""
    faulty = FaultyTransport(LocalTransport(folder), fail_at=fail_at, mode="die")
    try:
        do(faulty, str(folder), Repeatable(seed))
    except TransportError:
        assert faulty.calls >= fail_at > 0
    return faulty


def files(folder: Path) -> dict[str, bytes]:
    """All of version 1, besides what is left in quarantine."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(("incoming", "lost", "lock"))}


def check_upgraded(folder: Path, said: Said, history: History) -> PackRepository:
    repository = opened(folder)
    state = check_whole(repository, history).state
    assert {name.decode(): tip.hex() for name, tip in refs_of(repository).items()} == said["refs"]
    maps = {word: {key.hex(): value.hex() for key, value in found.items()} for word, found in state.maps.items()}
    assert {word: [state.map_kind(word), found] for word, found in maps.items()} == said["maps"]
    assert {name: value.decode() for name, value in state.settings.items()} == said["settings"]
    assert (state.version, state.incarnation.hex()) == (said["version"] + 1, said["incarnation"])
    assert [pack.name.hex() for pack in state.packs] == said["packs"]
    assert sorted(name.hex() for name in state.dropped) == said["dropped"]
    assert [[each.version, each.request.hex(), each.outcomes.decode()] for each in state.history] == said["log"]
    names = {path.name for path in folder.iterdir()}
    assert names == {"format", "log", "checkpoints", "packs", "incoming", "lost"}
    assert not find(LocalTransport(folder))
    return repository


def test_all_that_it_has_is_kept(old: Path, said: Said, history: History, line: list[bytes]) -> None:
    assert upgrade(LocalTransport(old), str(old), Repeatable())
    repository = check_upgraded(old, said, history)
    assert not upgrade(LocalTransport(old), str(old), Repeatable())
    # Who knows a version of before is told only what came since.
    version, request = said["log"][-2][:2]
    mark = int(request[:4], 16)
    told = repository.snapshot().state.changes_since(KnownVersion(bytes.fromhex(said["incarnation"]), version, mark))
    assert (told.since, set(told.refs)) == (version, {b"refs/heads/side"})
    # A repeat gets the first answer.
    repeat = push(repository, history, line[:1], {MAIN: line[0]}, request=b"%016d" % 0, age=1000)
    assert (repeat.outcome, repeat.changed) == (b"outcome of 1 revisions", False)
    new = history.line(1, line[-1], "new")
    push(repository, history, new, {MAIN: new[0]})
    repository.repack()
    assert refs_of(opened(old))[MAIN] == new[0]
    check_whole(opened(old), history)


def test_a_deleted_one_stays_deleted(unpacked: Path, tmp_path: Path, history: History) -> None:
    old = shutil.copytree(unpacked / "deleted", tmp_path / "project")
    assert upgrade(LocalTransport(old), str(old), Repeatable())
    repository = opened(old)
    assert (repository.exists(), repository.deleted()) == (False, True)
    line = history.line(1)
    push(repository, history, line, {MAIN: line[0]})
    assert refs_of(opened(old)) == {MAIN: line[0]}


def test_one_that_is_cut_anywhere_is_finished(
    old: Path, said: Said, history: History, line: list[bytes], tmp_path: Path
) -> None:
    fail_at = 0
    while True:
        fail_at += 1
        cut = shutil.copytree(old, tmp_path / f"cut {fail_at}")
        if change(upgrade, cut, fail_at).calls < fail_at:
            break
        if (cut / "format").read_bytes().endswith(b" 2\n"):
            assert {name.decode(): tip.hex() for name, tip in refs_of(opened(cut)).items()} == said["refs"]
        else:
            with pytest.raises(Unsupported, match="`smartserver upgrade FOLDER`"):
                opened(cut).snapshot()
            with pytest.raises(Unsupported, match="`smartserver upgrade FOLDER`"):
                push(opened(cut), history, [line[0]], {MAIN: line[0]})
        change(upgrade, cut, seed=fail_at)
        check_upgraded(cut, said, history)
    assert fail_at > 20


def test_it_is_undone_as_long_as_nobody_changed_it(
    old: Path, said: Said, discipline: str, history: History, line: list[bytes], tmp_path: Path
) -> None:
    before = files(old)
    change(upgrade, old)
    fail_at = 0
    while True:
        fail_at += 1
        cut = shutil.copytree(old, tmp_path / f"cut {fail_at}")
        done = change(undo, cut, fail_at).calls < fail_at
        other = shutil.copytree(cut, tmp_path / f"other {fail_at}")
        if not done and files(cut) != before:
            change(undo, cut, seed=fail_at)
        assert files(cut) == before
        assert (cut / "lock").is_dir() == (discipline == "folder")
        change(upgrade, cut, seed=100 + fail_at)
        check_upgraded(cut, said, history)
        if (
            (other / "format").read_bytes().startswith(b"smartserver repository 1 ")
        ):  # Or what is half undone is upgraded again.
            change(upgrade, other, seed=200 + fail_at)
            check_upgraded(other, said, history)
        if done:
            break
    assert fail_at > 10


def test_what_was_changed_since_is_not_undone(old: Path, history: History, line: list[bytes]) -> None:
    change(upgrade, old)
    new = history.line(1, line[-1], "new")
    push(opened(old), history, new, {MAIN: new[0]})
    for _ in range(2):
        with pytest.raises(TransportFailed, match="it was changed since its upgrade"):
            undo(LocalTransport(old), str(old), Repeatable(2))
    check_whole(opened(old), history)
    push(opened(old), history, [], {b"refs/heads/new": new[0]})
    assert refs_of(opened(old))[b"refs/heads/new"] == new[0]
    # Nor where a clean-up has deleted the first records.
    make_checkpoint(LocalTransport(old), opened(old).snapshot().state, Repeatable(3))
    for record in sorted((old / "log").iterdir())[:2]:
        record.unlink()
    with pytest.raises(TransportFailed, match="it was changed since its upgrade"):
        undo(LocalTransport(old), str(old), Repeatable(4))
    assert len(list((old / "log").iterdir())) == 1
    check_whole(opened(old), history)


def test_a_lock_that_is_held_stops_it(old: Path, discipline: str) -> None:
    before = files(old)
    held = old / "lock" / "held" / ("ab" * 8)
    with contextlib.ExitStack() as until:
        if discipline == "folder":
            held.mkdir(parents=True)
        else:
            fcntl.flock(until.enter_context((old / "lock").open("ab")), fcntl.LOCK_EX)
        with pytest.raises(TransportFailed, match="a process of an older release holds the lock"):
            upgrade(LocalTransport(old), str(old), Repeatable())
    assert files(old) == before
    if discipline == "folder":
        held.rmdir()
    assert upgrade(LocalTransport(old), str(old), Repeatable())


def test_what_cannot_be_read_stops_it(old: Path, discipline: str) -> None:
    paths = [old / "root", *(old / "tables").iterdir()]
    for path in paths:
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        before = files(old)
        with pytest.raises(CorruptFile):
            upgrade(LocalTransport(old), str(old), Repeatable())
        assert files(old) == before
        path.write_bytes(content)
    assert len(paths) == (2 if discipline == "file" else 1)
    assert upgrade(LocalTransport(old), str(old), Repeatable())


def test_requests_of_a_damaged_log_file_may_have_been_carried_out(
    unpacked: Path, tmp_path: Path, history: History, line: list[bytes]
) -> None:
    old = shutil.copytree(unpacked / "file", tmp_path / "project")
    (log,) = (path for path in (old / "log").iterdir() if path.suffix != ".intent")
    log.write_bytes(log.read_bytes()[:-1])
    assert upgrade(LocalTransport(old), str(old), Repeatable())
    check_whole(opened(old), history)
    with pytest.raises(OutcomeUnknown):
        push(opened(old), history, line[:1], {MAIN: line[0]}, request=b"%016d" % 0, age=3_600_000 * 10)


def test_where_none_is(tmp_path: Path) -> None:
    for do in (upgrade, undo):
        with pytest.raises(NoSuchRepository):
            do(LocalTransport(tmp_path), str(tmp_path), Repeatable())
