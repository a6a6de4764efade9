"""cli.dump, cli.load, client.dump: a repository as one file, and back."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from builders import KINDS, MAIN, History, push
from bzr_samples import FIRST, FIRST_PARENTS, segment
from bzr_samples import push as push_bzr
from click.testing import CliRunner
from stored import grow, stored
from test_copying import add_markers, marker, markers_of, opened, refs, run, why

from smartserver.cli.copying import between
from smartserver.cli.errors import CommandError
from smartserver.cli.main import group
from smartserver.client import dump_file, dump_source
from smartserver.client.call import Client
from smartserver.client.copy import CopyEndpoint
from smartserver.client.dump import load
from smartserver.client.dump_file import DumpReader
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import ConnectionLost
from smartserver.client.repository import RemoteRepository
from smartserver.records.model import Tip
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.local import LocalTransport

OTHER = b"refs/heads/other"


def silent(size: int, done: int, total: int) -> None:
    """Nothing is said of how far it is."""


def header(path: Path) -> dump_file.DumpHeader:
    with path.open("rb") as file:
        return DumpReader(file, str(path)).header


def create(folder: Path) -> None:
    def plan(transaction: Transaction) -> bytes:
        transaction.create("git sha1", KINDS, {"HEAD": MAIN})
        return b""

    folder.mkdir()
    PackRepository(LocalTransport(folder)).commit(os.urandom(16), 0, "tester", plan)


def test_there_and_back(source: tuple[Path, History], place: tuple[str, Path], tmp_path: Path) -> None:
    folder, _ = source
    there, where = place
    one, other = tmp_path / "one.dump", tmp_path / "other.dump"
    made = run("dump", str(folder), str(one))
    assert (made.exit_code, made.stderr) == (0, ""), made.exception
    assert made.stdout.startswith("5 revisions, 1 ref, ")
    assert sorted(os.listdir(tmp_path)) == ["one.dump", "source"]
    loaded = run("load", str(one), there)
    assert (loaded.exit_code, loaded.stderr) == (0, ""), loaded.exception
    assert loaded.stdout == "5 revisions, 1 ref (a new repository)\n    refs/heads/main\n"
    assert refs(where) == refs(folder)
    assert opened(where).state.settings == opened(folder).state.settings
    assert run("dump", there, str(other)).exit_code == 0
    assert other.read_bytes() == one.read_bytes()
    assert run("load", str(other), there).stdout == "nothing new\n"
    assert run("verify", str(where)).stdout.endswith(": all well\n")


def test_a_repository_that_was_deleted_is_made_again(
    source: tuple[Path, History], place: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the client knows it from before."""
    folder, _ = source
    there, where = place
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run("dump", str(folder), str(tmp_path / "x")).exit_code == 0
    for _ in range(2):
        loaded = run("load", str(tmp_path / "x"), there)
        assert "(a new repository)" in loaded.stdout, loaded.exception
        assert refs(where) == refs(folder)
        assert run("delete", "--yes", there).exit_code == 0


def test_through_a_pipe(source: tuple[Path, History], place: tuple[str, Path]) -> None:
    folder, _ = source
    there, where = place
    for out, into in (((), ()), (("-",), ("-",))):
        dumped = CliRunner().invoke(group, ["dump", str(folder), *out])
        assert (dumped.exit_code, dumped.stderr) == (0, "")
        loaded = CliRunner().invoke(group, ["load", *into, there], input=dumped.stdout_bytes)
        assert loaded.exit_code == 0, loaded.exception
        assert refs(where) == refs(folder)


def test_an_increment(source: tuple[Path, History], place: tuple[str, Path], tmp_path: Path) -> None:
    folder, history = source
    there, where = place
    days = [tmp_path / name for name in ("monday", "tuesday", "wednesday")]
    assert run("dump", str(folder), str(days[0])).exit_code == 0
    grow(folder, history)
    since = run("dump", "--since", str(days[0]), str(folder), str(days[1]))
    assert since.stdout.startswith("2 revisions, 1 ref, ")
    assert header(days[1]).rests_on == [header(days[0]).refs[MAIN][0].id]
    grow(folder, history, 1, ref=OTHER)
    assert run("dump", "--since", str(days[1]), str(folder), str(days[2])).stdout.startswith("1 revision, 2 refs, ")
    base = header(days[2]).rests_on[0].hex()
    lacks = f"{there} lacks {base}, which {days[2]} rests on: load the earlier dump first"
    assert why(run("load", str(days[2]), there)) == lacks
    assert not (where / "root").exists()
    assert run("load", str(days[0]), there).exit_code == 0
    assert why(run("load", str(days[2]), there)) == lacks
    assert run("load", str(days[1]), there).stdout == "2 revisions, 1 ref\n    refs/heads/main\n"
    assert run("load", str(days[2]), there).stdout == "1 revision, 1 ref\n    refs/heads/other\n"
    assert refs(where) == refs(folder)
    nothing = tmp_path / "thursday"
    assert run("dump", "--since", str(days[2]), str(folder), str(nothing)).stdout.startswith("0 revisions, 2 refs, ")
    assert run("load", str(nothing), there).stdout == "nothing new\n"


def test_what_is_there_is_not_sent(source: tuple[Path, History], place: tuple[str, Path], tmp_path: Path) -> None:
    """Of a newer dump of all, although no tip of it is there."""
    folder, history = source
    there, _ = place
    assert run("dump", str(folder), str(tmp_path / "monday")).exit_code == 0
    grow(folder, history, 2)
    assert run("dump", str(folder), str(tmp_path / "tuesday")).stdout.startswith("7 revisions, ")
    assert run("load", str(tmp_path / "monday"), there).stdout.startswith("5 revisions, 1 ref ")
    assert run("load", str(tmp_path / "tuesday"), there).stdout == "2 revisions, 1 ref\n    refs/heads/main\n"


def test_a_recreated_repository_is_dumped_whole(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, _ = source
    stored(tmp_path / "another", 3)
    lone = History()
    (tmp_path / "lone").mkdir()
    line = lone.line(2, None, "lone")
    push(PackRepository(LocalTransport(tmp_path / "lone")), lone, line, {MAIN: line[-1]})
    assert run("dump", str(tmp_path / "lone"), str(tmp_path / "old")).exit_code == 0
    assert run("dump", "--since", str(tmp_path / "old"), str(folder), str(tmp_path / "new")).exit_code == 0
    assert (header(tmp_path / "new").rests_on, header(tmp_path / "new").segments) == ([], 5)


def test_an_empty_repository(place: tuple[str, Path], tmp_path: Path) -> None:
    create(tmp_path / "empty")
    there, where = place
    assert run("dump", str(tmp_path / "empty"), str(tmp_path / "x")).stdout.startswith("0 revisions, 0 refs, ")
    content = (tmp_path / "x").read_bytes()
    for damaged in (content[:-1], content[:-1] + b"\0"):
        (tmp_path / "damaged").write_bytes(damaged)
        assert "is damaged at byte " in why(run("load", str(tmp_path / "damaged"), there))
        assert not (where / "root").exists()
    assert run("load", str(tmp_path / "x"), there).stdout == "0 revisions, 0 refs (a new repository)\n"
    assert opened(where).state.settings == {"HEAD": MAIN}
    assert run("load", str(tmp_path / "x"), there).stdout == "nothing new\n"


def test_a_target_that_is_ahead_or_diverged(
    source: tuple[Path, History], place: tuple[str, Path], tmp_path: Path
) -> None:
    folder, history = source
    there, where = place
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    assert run("dump", str(folder), old).exit_code == 0
    ahead = grow(folder, history)
    assert run("dump", str(folder), new).exit_code == 0
    assert run("load", new, there).exit_code == 0
    refused = run("load", old, there)
    assert why(refused).startswith("refs/heads/main: ")
    assert (refused.stdout, refs(where)) == ("", {MAIN: ahead})
    assert run("load", "--force", old, there).stdout == "0 revisions, 1 ref\n    refs/heads/main\n"
    apart = grow(where, history, 1, next(iter(history.parents)), OTHER)
    assert refs(where)[OTHER] == apart
    assert run("load", new, there).exit_code == 0
    assert refs(where) == {MAIN: ahead, OTHER: apart}  # What the dump does not name stays.
    side = history.line(1, next(iter(history.parents)), "side")
    push(PackRepository(LocalTransport(where)), history, side, {b"refs/heads/side": side[0]})

    def move(transaction: Transaction) -> bytes:
        transaction.set_ref(MAIN, (Tip(side[0]),))
        return b""

    PackRepository(LocalTransport(where)).commit(os.urandom(16), 0, "tester", move)
    assert why(run("load", new, there)).startswith("refs/heads/main: ")
    assert refs(where)[MAIN] == side[0]
    assert run("load", "--force", new, there).exit_code == 0
    assert refs(where)[MAIN] == ahead


def test_another_kind_is_refused_by_name(source: tuple[Path, History], place: tuple[str, Path], tmp_path: Path) -> None:
    folder, _ = source
    there, where = place
    bazaar, file = tmp_path / "bazaar", str(tmp_path / "bazaar.dump")
    push_bzr(
        PackRepository(LocalTransport(tmp_path), "bazaar"), segment(FIRST, FIRST_PARENTS), refs={b".": FIRST[0].key}
    )
    assert run("dump", str(bazaar), file).exit_code == 0
    assert run("push", str(folder), there).exit_code == 0
    before = refs(where)
    assert why(run("load", file, there)) == f"{file} is of a repository of bzr 2a, {there} one of git sha1"
    assert refs(where) == before
    since = run("dump", "--since", file, there, str(tmp_path / "x"))
    assert why(since) == f"{there} is a repository of git sha1, the earlier dump one of bzr 2a"
    assert not (tmp_path / "x").exists()


def test_damage_changes_nothing(
    source: tuple[Path, History], place: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is: also when all but the hash at the end was sent."""
    monkeypatch.setattr(dump_file, "PIECE", 512)
    folder, history = source
    there, where = place
    file = tmp_path / "x.dump"
    assert run("push", str(folder), there).exit_code == 0
    before = refs(where)
    grow(folder, history)
    assert run("dump", str(folder), str(file)).exit_code == 0
    whole = file.read_bytes()
    for at in (30, len(whole) // 2, len(whole) - 40, len(whole) - 1):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            file.write_bytes(damaged)
            result = run("load", str(file), there)
            assert why(result).startswith(f"{file} is damaged at byte "), why(result)
            assert result.stdout == ""
            assert refs(where) == before
    file.write_bytes(whole)
    assert run("load", str(file), there).exit_code == 0
    assert refs(where) == refs(folder)
    assert run("verify", str(where)).stdout.endswith(": all well\n")


def test_what_a_dump_says_is_checked_as_any_upload(
    source: tuple[Path, History], place: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hashes are right, and what they are of is not."""
    folder, _ = source
    there, where = place
    file = tmp_path / "x.dump"
    assert run("dump", str(folder), str(file)).exit_code == 0
    with file.open("rb") as stream:
        read = DumpReader(stream, "x")
        made, body = read.header, bytearray(b"".join(read))
    flipped = body.copy()
    flipped[len(body) // 2] ^= 0x41
    for odd in (bytes(flipped), bytes(len(body)), b"\xff" * len(body)):
        file.write_bytes(b"".join(dump_file.write_dump(made, [odd], [])))
        result = run("load", str(file), there)
        assert why(result)
        assert (result.stdout, (where / "root").exists()) == ("", False)
    monkeypatch.setattr(dump_source, "PART", 1000)
    file.write_bytes(b"".join(dump_file.write_dump(made, [bytes(flipped)], [])))
    assert "hashes to" in why(run("load", str(file), there))
    assert refs(where) == {}


@pytest.mark.unbanned("per-item: what does not fit into a request goes in several")
def test_a_map_that_is_not_told(place: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, where = place
    every = dict(marker(number) for number in range(10))
    add_markers(str(tmp_path / "source"), every)
    monkeypatch.setattr("smartserver.client.copy.AT_ONCE", 400)
    monkeypatch.setattr("smartserver.vcs.hg.reading.PAGE", 400)
    file, again = tmp_path / "x.dump", tmp_path / "again.dump"
    assert run("dump", str(tmp_path / "source"), str(file)).exit_code == 0
    assert "obsolete" not in header(file).maps
    assert run("load", str(file), there).stdout == "0 revisions, 0 refs, 10 entries of maps (a new repository)\n"
    assert markers_of(where) == every
    assert run("load", str(file), there).stdout == "nothing new\n"
    more = dict([marker(10)])
    add_markers(str(tmp_path / "source"), more)
    assert run("dump", "--since", str(file), str(tmp_path / "source"), str(again)).exit_code == 0
    assert run("load", str(again), there).stdout == "0 revisions, 0 refs, 1 entry of maps\n"
    assert markers_of(where) == every | more


def test_tags_and_maps_come_along(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, history = source
    where = tmp_path / "there"
    there = str(where)
    tips = tuple(
        map(Tip, sorted([list(history.parents)[-1], grow(folder, history, 1, next(iter(history.parents)), OTHER)]))
    )

    def put(value: bytes, into: Path) -> None:
        def plan(transaction: Transaction) -> bytes:
            transaction.set_map("tags", "ids", MAIN + b"\0v1", value)
            transaction.set_map("notes", "opaque", b"x", b"y")
            transaction.set_ref(b"refs/heads/default", tips)
            return b""

        PackRepository(LocalTransport(into)).commit(os.urandom(16), 0, "tester", plan)

    put(list(history.parents)[-1], folder)
    file = str(tmp_path / "x")
    assert run("dump", str(folder), file).exit_code == 0
    assert "2 entries of maps" in run("load", file, there).stdout
    for name, found in opened(folder).state.maps.items():
        assert dict(opened(where).state.map(name).items()) == dict(found.items())
    assert opened(where).state.refs()[b"refs/heads/default"] == tips
    put(next(iter(history.parents)), where)
    kept = run("load", file, there)
    assert kept.stderr == "1 entry of maps differs and was left as it is (--force replaces it)\n"
    assert run("load", "--force", file, there).stdout == "0 revisions, 0 refs, 1 entry of maps\n"


def test_a_revision_that_only_a_tag_in_a_map_reaches(source: tuple[Path, History], tmp_path: Path) -> None:
    """Also where the tag came before the revision."""
    folder, history = source
    where = tmp_path / "there"
    there = str(where)
    first = next(iter(history.parents))
    side = history.line(1, first, "side")

    def tag(transaction: Transaction) -> bytes:
        transaction.set_map("tags", "ids", MAIN + b"\0v1", side[0])
        return b""

    def forget(transaction: Transaction) -> bytes:
        transaction.set_ref(OTHER, None)
        return b""

    days = [str(tmp_path / name) for name in ("monday", "tuesday")]
    PackRepository(LocalTransport(folder)).commit(os.urandom(16), 0, "tester", tag)
    assert run("dump", str(folder), days[0]).stdout.startswith("5 revisions, 1 ref, ")
    push(PackRepository(LocalTransport(folder)), history, side, {OTHER: side[0]})
    PackRepository(LocalTransport(folder)).commit(os.urandom(16), 0, "tester", forget)
    assert run("dump", "--since", days[0], str(folder), days[1]).stdout.startswith("1 revision, 1 ref, ")
    for day in days:
        assert run("load", day, there).exit_code == 0
    assert refs(where) == refs(folder)
    assert opened(where).graph.ordinal(side[0]) is not None
    assert run("load", days[1], there).stdout == "nothing new\n"


# -- the connection


class _Cut(SameProcess):
    """The first connection breaks when so many bytes were written."""

    left = 0

    def write_some(self, data: memoryview) -> int:
        if _Cut.left <= 0:
            return super().write_some(data)
        with data[: _Cut.left] as part:
            written = super().write_some(part)
        _Cut.left -= written
        if _Cut.left <= 0:
            raise ConnectionLost("somebody pulled the plug")
        return written


class Pipe(io.BytesIO):
    """What cannot be read again."""

    def seekable(self) -> bool:
        return False


def test_a_file_is_sent_again_and_a_pipe_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    line = [history.commit({"noise": os.urandom(300_000)}, (), "noise")]
    (tmp_path / "source").mkdir()
    push(PackRepository(LocalTransport(tmp_path / "source")), history, line, {MAIN: line[-1]})
    content = CliRunner().invoke(group, ["dump", str(tmp_path / "source")]).stdout_bytes
    site = Site(LocalTransport(tmp_path))
    media: list[_Cut] = []

    def connect() -> _Cut:
        media.append(_Cut(site, invoking_user("tester")))
        return media[-1]

    def load_from(file: io.BytesIO, into: str) -> int:
        _Cut.left = 200_000
        with Client(connect, sleep=lambda seconds: None) as client:
            target = CopyEndpoint(into, RemoteRepository(client, into, Knowledge(None, into)))
            with between("standard input", into):
                return load(DumpReader(file, "standard input"), "x", target, silent, silent, force=False)[0].revisions

    assert load_from(io.BytesIO(content), "file") == 1
    assert len(media) == 2
    assert refs(tmp_path / "file") == {MAIN: line[-1]}
    with pytest.raises(CommandError, match=r"standard input cannot be read a second time: load from a file$"):
        load_from(Pipe(content), "pipe")
    assert not (tmp_path / "pipe" / "root").exists()
