"""cli.dump, cli.load, cli.archive, cli.old_dump, client.load, store.archive: a repository as one file, and back; the
file that `dump` writes, and a dump of the release before."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from bench.servers import Server
from builders import KINDS, MAIN, History, push
from cli_runs import OTHER, flip, grow, opened, pack_of, refs, repository, run, stored, stored_bzr, why
from needs import needs, program
from test_copying import add_markers, marker, markers_of

from smartserver.cli import dump as dump_command
from smartserver.cli import load as load_command
from smartserver.cli.archive import archive_in
from smartserver.cli.errors import CommandError
from smartserver.cli.old_dump import MAGIC
from smartserver.client import load
from smartserver.client.medium import ConnectionLost
from smartserver.records.model import Tip
from smartserver.records.system import system_of
from smartserver.server.same_process import SameProcess
from smartserver.store.archive import ServerDump, dumped
from smartserver.store.record import record_path
from smartserver.store.transaction import Transaction
from smartserver.vcs.hg.system import HG


@pytest.fixture(params=["folder", pytest.param("server", marks=pytest.mark.sockets)])
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, History]:
    """The place and the folder of the repository that is dumped."""
    if request.param == "folder":
        return str(tmp_path / "source"), tmp_path / "source", stored(tmp_path / "source", 5)
    served: Server = request.getfixturevalue("server")
    folder = served.served / f"from-{tmp_path.name}"
    return served.url(folder.name), folder, stored(folder, 5)


def test_there_and_back(origin: tuple[str, Path, History], target: tuple[str, Path], tmp_path: Path) -> None:
    source, folder, _ = origin
    there, where = target
    one, again = str(tmp_path / "one.tar"), str(tmp_path / "again.tar")
    made = run("dump", source, one)
    assert (made.exit_code, made.stderr) == (0, ""), made.exception
    assert made.stdout.startswith("5 revisions, 1 ref, ")
    assert run("verify", one).stdout.endswith(": all well\n")
    loaded = run("load", one, there)
    assert (loaded.exit_code, loaded.stderr) == (0, ""), loaded.exception
    assert loaded.stdout == "5 revisions, 1 ref (a new repository)\n    refs/heads/main\n"
    assert refs(where) == refs(folder)
    assert opened(where).state.settings == opened(folder).state.settings
    assert opened(where).state.incarnation != opened(folder).state.incarnation
    assert run("load", one, there).stdout == run("push", one, there).stdout == "nothing new\n"
    assert run("verify", str(where)).stdout.endswith(": all well\n")
    assert run("dump", source, again).exit_code == 0
    assert Path(one).read_bytes() == Path(again).read_bytes()


def test_tar_restores_a_backup_byte_by_byte(source: tuple[Path, History], tmp_path: Path) -> None:
    """Also from two files, of which the later one has no pack of the first."""
    folder, history = source
    days = [tmp_path / name for name in ("monday", "tuesday")]
    assert run("dump", str(folder), str(days[0])).exit_code == 0
    for _ in range(2):
        grow(folder, history, 1)
    assert run("dump", "--since", str(days[0]), str(folder), str(days[1])).stdout.startswith("2 revisions, 1 ref, ")
    restored = tmp_path / "restored"
    restored.mkdir()
    for day in days:
        subprocess.run([program("tar"), "-xf", str(day)], cwd=restored, check=True)
    for each in (folder / "packs").iterdir():
        assert (restored / "packs" / each.name).read_bytes() == each.read_bytes()
    assert list(opened(restored).state.history) == list(opened(folder).state.history)
    assert refs(restored) == refs(folder)
    assert run("verify", str(restored)).stdout.endswith(": all well\n")
    assert run("recover", str(restored)).stdout == f"{restored}: there is nothing to recover: the log is complete\n"
    # It goes on where it was.
    grow(restored, history, 1, ref=OTHER)
    assert OTHER in refs(restored)


def test_a_repository_that_was_deleted_is_made_again(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the client knows it from before."""
    folder, _ = source
    there, where = target
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run("dump", str(folder), str(tmp_path / "x")).exit_code == 0
    for _ in range(2):
        loaded = run("load", str(tmp_path / "x"), there)
        assert "(a new repository)" in loaded.stdout, loaded.exception
        assert refs(where) == refs(folder)
        assert run("delete", "--yes", there).exit_code == 0


def test_an_increment(origin: tuple[str, Path, History], target: tuple[str, Path], tmp_path: Path) -> None:
    source, folder, history = origin
    there, where = target
    days = [str(tmp_path / name) for name in ("monday", "tuesday", "wednesday", "thursday")]
    assert run("dump", source, days[0]).exit_code == 0
    grow(folder, history)
    assert run("dump", "--since", days[0], source, days[1]).stdout.startswith("2 revisions, 1 ref, ")
    alone = why(run("load", days[1], there))
    assert alone.startswith(days[1])
    assert "earlier dump" in alone
    assert "earlier dump" in alone
    assert not (where / "format").exists()
    grow(folder, history, 1, ref=OTHER)
    since = ["--since", days[0], "--since", days[1]]
    assert run("dump", *since, source, days[2]).stdout.startswith("1 revision, 2 refs, ")
    assert "earlier" in why(run("load", days[2], there)) or "missing" in why(run("load", days[0], days[2], there))
    assert not (where / "format").exists()
    assert run("load", *days[:2], there).stdout.startswith("7 revisions, 1 ref ")
    assert run("load", *days[:3], there).stdout == "1 revision, 1 ref\n    refs/heads/other\n"
    assert refs(where) == refs(folder)
    nothing = run("dump", *since, "--since", days[2], source, days[3])
    assert nothing.stdout.startswith("0 revisions, 2 refs, ")
    assert run("load", *days, there).stdout == "nothing new\n"


@pytest.mark.sockets
def test_what_was_moved_or_removed_between_two_dumps(server: Server, tmp_path: Path) -> None:
    """Loaded together they are what was there last; revisions that the first one has are not in the second."""
    folder = server.served / tmp_path.name
    history = stored(folder, 5)
    first = next(iter(history.parents))
    source = server.url(folder.name)
    grow(folder, history, 1, first, OTHER)

    def note(transaction: Transaction) -> None:
        transaction.set_map("notes", "opaque", b"x", b"y")

    days = [str(tmp_path / name) for name in ("monday", "tuesday")]
    assert run("dump", source, days[0]).exit_code == 0
    push(repository(folder), history, [], {MAIN: first, OTHER: None}, first=note)
    assert run("dump", "--since", days[0], source, days[1]).stdout.startswith("0 revisions, 1 ref, ")
    with archive_in(days) as both:
        state = both.snapshot().state
        assert dict(state.refs()) == {MAIN: (Tip(first),)}
        assert dict(state.map("notes")) == {b"x": b"y"}


def test_a_recreated_repository(origin: tuple[str, Path, History], tmp_path: Path) -> None:
    """A folder's is no later state of the backup. What a server tells is dumped whole."""
    source, folder, _ = origin
    lone = History()
    line = lone.line(2, None, "lone")
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    assert run("dump", source, old).exit_code == 0
    assert run("delete", "--yes", str(folder)).exit_code == 0
    push(repository(folder), lone, line, {MAIN: line[-1]})
    made = run("dump", "--since", old, source, new)
    if source == str(folder):
        assert why(made) == f"the earlier dump does not fit {folder}, whose history was changed since: make a full dump"
        return
    assert made.stdout.startswith("2 revisions, 1 ref, ")
    with archive_in([old, new]) as both:
        assert dict(both.snapshot().state.refs()) == {MAIN: (Tip(line[-1]),)}


def test_an_empty_repository(target: tuple[str, Path], tmp_path: Path) -> None:
    push(repository(tmp_path / "empty"), History(), [])
    there, where = target
    assert run("dump", str(tmp_path / "empty"), str(tmp_path / "x")).stdout.startswith("0 revisions, 0 refs, ")
    content = (tmp_path / "x").read_bytes()
    for damaged in (content[:-1024], content[:-1024] + b"\1" + content[-1023:]):
        (tmp_path / "damaged").write_bytes(damaged)
        assert "is damaged at byte " in why(run("load", str(tmp_path / "damaged"), there))
        assert not (where / "format").exists()
    assert run("load", str(tmp_path / "x"), there).stdout == "0 revisions, 0 refs (a new repository)\n"
    assert opened(where).state.settings == {"HEAD": MAIN}
    assert run("load", str(tmp_path / "x"), there).stdout == "nothing new\n"


def test_another_kind_is_refused_by_name(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path
) -> None:
    folder, _ = source
    there, where = target
    file = str(tmp_path / "bazaar.dump")
    assert run("dump", stored_bzr(tmp_path / "bazaar"), file).exit_code == 0
    assert run("push", str(folder), there).exit_code == 0
    before = refs(where)
    assert why(run("load", file, there)) == f"{file} is from a repository of bzr 2a, but {there} is one of git sha1"
    assert refs(where) == before
    since = why(run("dump", "--since", file, there, str(tmp_path / "x")))
    assert since in (
        f"{there} is a repository of git sha1, the earlier dump one of bzr 2a",
        f"the earlier dump does not fit {there}, whose history was changed since: make a full dump",
    )
    assert not (tmp_path / "x").exists()


def test_damage_changes_nothing(origin: tuple[str, Path, History], tmp_path: Path) -> None:
    """Wherever it is; but an index is made again, and nothing is in what fills a block."""
    source, folder, history = origin
    file, where = tmp_path / "x.tar", tmp_path / "target"
    assert run("push", str(folder), str(where)).exit_code == 0
    before = refs(where)
    grow(folder, history)
    assert run("dump", source, str(file)).exit_code == 0
    whole = file.read_bytes()
    with tarfile.open(file) as archive:
        members = archive.getmembers()
    counted = [range(each.offset_data, each.offset_data + each.size) for each in members if ".idx" not in each.name]
    counted += [range(each.offset, each.offset + 154) for each in members]
    end = max(each.stop for each in counted)
    for at in range(5, end, 211):
        damages = [whole[:at]]
        if any(at in each for each in counted):
            damages.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        for damaged in damages:
            file.write_bytes(damaged)
            result = run("load", str(file), str(where))
            assert why(result).startswith(str(file)), (at, why(result))
            assert result.stdout == ""
            assert refs(where) == before
    file.write_bytes(whole)
    assert run("load", str(file), str(where)).exit_code == 0
    assert refs(where) == refs(folder)
    assert run("verify", str(where)).stdout.endswith(": all well\n")


def test_no_backup_is_made_of_a_state_before_a_damage(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, history = source
    grow(folder, history)
    record = folder / record_path(3)
    record.write_bytes(record.read_bytes()[:-1])
    assert f"{record_path(3)} is damaged at byte 28: the content" in why(
        run("dump", str(folder), str(tmp_path / "x.tar"))
    )
    assert not (tmp_path / "x.tar").exists()


def test_what_a_dump_says_is_checked_as_any_upload(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hashes are right, and what they are of is not."""
    folder, history = source
    there, where = target
    file = tmp_path / "x.tar"
    tip = refs(folder)[MAIN]
    body = b"".join(map(history.segment, history.parents))
    flipped = bytearray(body)
    flipped[len(body) // 2] ^= 0x41
    told = ServerDump("git sha1", tuple(KINDS), {}, {MAIN: (Tip(tip),)}, {})
    for part in (load.PART, 1000):
        monkeypatch.setattr(load, "PART", part)
        for odd in (bytes(flipped), bytes(len(body)), b"\xff" * len(body)):
            file.write_bytes(b"".join(dumped(told, None, 5, len(body), [odd], [])))
            result = run("load", str(file), there)
            assert why(result)
            assert result.stdout == ""
            assert not (where / "format").exists() or refs(where) == {}
    file.write_bytes(b"".join(dumped(told, None, 5, len(body), [body], [])))
    assert run("load", str(file), there).exit_code == 0
    assert refs(where) == {MAIN: tip}


@pytest.mark.sockets
@pytest.mark.unbanned("per-item: what does not fit into a request goes in several")
def test_a_map_that_is_not_told(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "target"
    folder, there, source = server.served / tmp_path.name, str(where), server.url(tmp_path.name)
    every = dict(marker(number) for number in range(10))
    add_markers(str(folder), every)
    monkeypatch.setattr("smartserver.client.copy.AT_ONCE", 400)
    monkeypatch.setattr("smartserver.vcs.hg.reading.PAGE", 400)
    file, again = str(tmp_path / "x.tar"), str(tmp_path / "again.tar")
    assert run("dump", source, file).exit_code == 0
    assert run("load", file, there).stdout == "0 revisions, 0 refs, 10 entries of maps (a new repository)\n"
    assert markers_of(where) == every
    assert run("load", file, there).stdout == "nothing new\n"
    more = dict([marker(10)])
    add_markers(str(folder), more)
    assert run("dump", "--since", file, source, again).exit_code == 0
    assert run("load", file, again, there).stdout == "0 revisions, 0 refs, 1 entry of maps\n"
    assert markers_of(where) == every | more


def test_a_revision_that_only_a_tag_in_a_map_reaches(source: tuple[Path, History], tmp_path: Path) -> None:
    """Also where the tag came before the revision."""
    folder, history = source
    where = tmp_path / "there"
    side = history.line(1, next(iter(history.parents)), "side")

    def tag(transaction: Transaction) -> None:
        transaction.set_map("tags", "ids", MAIN + b"\0v1", side[0])

    days = [str(tmp_path / name) for name in ("monday", "tuesday")]
    push(repository(folder), history, [], first=tag)
    assert run("dump", str(folder), days[0]).stdout.startswith("5 revisions, 1 ref, ")
    push(repository(folder), history, side, {OTHER: side[0]})
    push(repository(folder), history, [], {OTHER: None})
    assert run("dump", "--since", days[0], str(folder), days[1]).stdout.startswith("1 revision, 1 ref, ")
    assert run("load", days[0], where).exit_code == 0
    assert run("load", *days, where).exit_code == 0
    assert refs(where) == refs(folder)
    assert opened(where).graph.ordinal(side[0]) is not None
    assert run("load", *days, where).stdout == "nothing new\n"


def test_a_file_is_sent_again_where_the_connection_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    noise = history.commit({"noise": os.urandom(300_000)})
    push(repository(tmp_path / "source"), history, [noise], {MAIN: noise})
    assert run("dump", tmp_path / "source", tmp_path / "x").exit_code == 0
    left = [200_000]
    write = SameProcess.write_some

    def cut(medium: SameProcess, data: memoryview) -> int:
        if left[0] <= 0:
            return write(medium, data)
        with data[: left[0]] as part:
            written = write(medium, part)
        left[0] -= written
        if left[0] <= 0:
            raise ConnectionLost("somebody pulled the plug")
        return written

    monkeypatch.setattr(SameProcess, "write_some", cut)
    assert run("load", tmp_path / "x", tmp_path / "there").exit_code == 0
    assert left[0] <= 0
    assert refs(tmp_path / "there") == {MAIN: noise}


def test_a_dump_that_fails_leaves_what_was_there(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, _ = source
    pack = pack_of(folder)
    pack.chmod(0o600)
    pack.write_bytes(pack.read_bytes()[:100])
    out = tmp_path / "out"
    out.mkdir()
    assert str(folder) in why(run("dump", str(folder), str(out / "x")))
    assert list(out.iterdir()) == []
    (out / "x").write_text("the one of yesterday")
    assert run("dump", str(folder), str(out / "x")).exit_code == 1
    assert [(each.name, each.read_text()) for each in out.iterdir()] == [("x", "the one of yesterday")]


def test_a_damaged_dump_is_no_base(source: tuple[Path, History], tmp_path: Path) -> None:
    """Its missing parts would be missing for good."""
    file = tmp_path / "x"
    assert run("dump", str(source[0]), str(file)).exit_code == 0
    flip(file, 1600)  # In the pack.
    result = run("dump", "--since", str(file), str(source[0]), str(tmp_path / "y"))
    assert why(result).startswith(f"{file}: packs/")
    assert not (tmp_path / "y").exists()


def test_what_cannot_be(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_text("else")
    assert why(run("load", str(odd), str(tmp_path / "x"))) == f"{odd} is not a dump of smartserver"
    with tarfile.open(odd, "w") as other:
        other.add(Path(__file__), "README")
    assert why(run("load", str(odd), str(tmp_path / "x"))) == f"{odd} is not a dump of smartserver"
    assert not (tmp_path / "x").exists()
    for words in (("load", tmp_path / "absent", tmp_path / "x"), ("dump", "hpss://localhost:1/none", tmp_path / "a/x")):
        assert isinstance(run(*words).exception, FileNotFoundError)
    assert "does not exist" in why(run("dump", str(tmp_path / "nothing"), str(tmp_path / "y")))
    assert not (tmp_path / "y").exists()
    assert run("dump", "a", "b", "c").exit_code == 2


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_refused(source: tuple[Path, History], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(shown))
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    for command in (dump_command.command, load_command.command):
        with pytest.raises(CommandError, match="terminal: name a FILE, or use a pipe"):
            command.main([str(source[0])], standalone_mode=False, obj=frozenset())
    assert shown.getvalue() == b""


@needs("root")
def test_root_may_dump_the_repository_of_another_into_its_own_folder(tmp_path: Path) -> None:
    folder, vault = tmp_path / "source", tmp_path / "vault"
    stored(folder, 2)
    vault.mkdir(0o700)
    for each in (folder, *folder.rglob("*")):
        os.chown(each, 65534, 65534)
    words = [sys.executable, "-m", "smartserver.cli.main", "dump", str(folder), str(vault / "x")]
    before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    assert subprocess.run(words, check=True, capture_output=True).stderr == b""
    assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before
    assert {each.stat().st_uid for each in folder.rglob("*")} == {65534}
    assert run("verify", str(vault / "x")).stdout.startswith("1 pack, 2 revisions, ")


# -- of the release before


def written(
    file: Path, body: bytes, piece: int, maps: Sequence[tuple[str, dict[bytes, bytes]]] = (), **fields: object
) -> str:
    """A dump of these fields of the header, and of others as they mostly are."""
    header: dict[str, object] = {"vcs": "git sha1", "kinds": KINDS, "settings": {"HEAD": MAIN}}
    header |= {"refs": {}, "maps": {}, "rests_on": []}
    header |= {"segments": 0, "size": len(body), **fields}
    made = MAGIC
    pieces = [body[at : at + piece] for at in range(0, len(body), piece)]
    blocks = [(b"H", msgspec.msgpack.encode(header)), *((b"R", each) for each in pieces)]
    blocks += [*((b"M", msgspec.msgpack.encode(page)) for page in maps), (b"E", b"")]
    for kind, content in blocks:
        made += kind + len(content).to_bytes(4, "little") + content
        made += hashlib.blake2b(made, digest_size=32).digest()
    file.write_bytes(made)
    return str(file)


def two_days(folder: Path) -> tuple[list[bytes], list[str]]:
    """A dump, and one that rests on it."""
    history = History()
    line = history.line(5)
    days = []
    for name, part, rests_on in (("monday", line[:3], []), ("tuesday", line[3:], [line[2]])):
        body = b"".join(map(history.segment, part))
        tip = {MAIN: [(part[-1], b"", False)]}
        days.append(written(folder / name, body, 500, refs=tip, rests_on=rests_on, segments=len(part)))
    return line, days


def test_one_that_rests_on_another(tmp_path: Path) -> None:
    line, days = two_days(tmp_path)
    there = tmp_path / "there"
    assert why(run("load", days[1], str(there))) == (f"{days[1]} continues an earlier dump: name that dump before it")
    assert run("load", days[0], str(there)).stdout.startswith("3 revisions, 1 ref (a new repository)")
    assert refs(there) == {MAIN: line[2]}
    assert run("load", *days, str(there)).stdout.startswith("2 revisions, 1 ref\n")
    assert refs(there) == {MAIN: line[4]}
    assert opened(there).state.settings == {"HEAD": MAIN}
    assert run("verify", str(there)).stdout.endswith(": all well\n")


def test_maps_that_come_last(tmp_path: Path) -> None:
    every = dict(sorted(marker(number) for number in range(4)))
    pages = [("obsolete", dict(list(every.items())[at : at + 2])) for at in (0, 2)]
    file = written(tmp_path / "x", b"", 1, pages, vcs=HG, kinds=list(system_of(HG).kinds), settings={})
    assert run("load", file, str(tmp_path / "there")).stdout.startswith("0 revisions, 0 refs, 4 entries of maps")
    assert markers_of(tmp_path / "there") == every


def test_each_flipped_byte_and_each_missing_end_is_one_error(tmp_path: Path) -> None:
    _, (file, _) = two_days(tmp_path)
    whole = Path(file).read_bytes()
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]
        for damaged in [flipped, whole[:at]]:
            Path(file).write_bytes(damaged)
            with pytest.raises(CommandError, match=rf"^{file} is (damaged (before|at) byte \d+: |not a dump)"):
                archive_in([file]).__enter__()
    Path(file).write_bytes(whole + b"x")
    with pytest.raises(CommandError, match="its length differs"):
        archive_in([file]).__enter__()
