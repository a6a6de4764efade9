"""What the real server and the stock git wrote, read by a second decoder that was written from the texts alone."""

from __future__ import annotations

import os
import random
import re
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from our_forks import with_forked
from second_decoder import OBJECT, Cursor, Damaged, Exchange, decode, read_dialog, read_graph
from second_rules import obey_dialog, obey_segment
from second_store import TYPES, Index, Pack, Repository, Segment, index_of, prove

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

SCRIPTS = Path(sys.executable).parent
SPEC = Path(__file__).parents[2] / "doc" / "spec" / "disk.md"
MANY = 3200  # refs, so that a request with a call for each, and a reply with all, are longer than a frame


class Connection(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        up, down = bytearray(), bytearray()
        self.server.dialogs.append((up, down))
        with socket.create_connection(("127.0.0.1", self.server.port)) as beyond:
            answers = threading.Thread(target=self.pump, args=(beyond, self.request, down))
            answers.start()
            self.pump(self.request, beyond, up)
            answers.join()

    @staticmethod
    def pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                kept += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class Relay(socketserver.ThreadingTCPServer):
    """Passes connections on to a port and keeps what went each way."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.port, self.dialogs = port, list[tuple[bytearray, bytearray]]()

    @property
    def url(self) -> str:
        return f"hpss://127.0.0.1:{self.server_address[1]}/team/project"


class Git:
    """The stock git in a new folder, as a user with a home of its own."""

    def __init__(self, work: Path) -> None:
        self.work, home = work, work.with_suffix(".home")
        work.mkdir()
        home.mkdir()
        who = {
            f"GIT_{role}_{part}": "joe@example.com" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
        }
        path = with_forked(f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}")
        self.env = {**os.environ, **who, "HOME": str(home), "PATH": path, "GIT_CONFIG_NOSYSTEM": "1"}

    def __call__(self, *args: str, fails: bool = False) -> bytes:
        done = subprocess.run(["git", *args], cwd=self.work, env=self.env, capture_output=True, check=False, timeout=60)
        assert bool(done.returncode) == fails, done.stderr.decode()
        return done.stdout

    def commit(self, message: str, **files: str | bytes) -> None:
        for name, content in files.items():
            (self.work / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        self("add", ".")
        self("commit", "-q", "-m", message)

    def objects(self) -> dict[bytes, tuple[bytes, bytes]]:
        """Type and content of every object, as `git cat-file` says."""
        cursor, found = Cursor(self("cat-file", "--batch-all-objects", "--batch")), {}
        while cursor.at < cursor.end:
            name, kind, size = cursor.take(cursor.data.index(b"\n", cursor.at) - cursor.at).split()
            found[bytes.fromhex(name.decode())] = kind, cursor.take(int(size) + 2)[1:-1]
        return found

    def refs(self) -> dict[bytes, list[list[bytes]]]:
        """Each ref with its one tip: the id and, of an annotated tag, what it peels to."""
        found: dict[bytes, list[list[bytes]]] = {}
        for line in self("show-ref", "-d", "--heads", "--tags").splitlines():
            name, ref = line.split()
            found.setdefault(ref.removesuffix(b"^{}"), [[]])[0].append(bytes.fromhex(name.decode()))
        return found


@contextmanager
def serving(root: Path, env: dict[str, str]) -> Iterator[Relay]:
    root.mkdir()
    command = [str(SCRIPTS / "smartserver"), "serve", str(root), "--listen", "127.0.0.1:0", "--anonymous", "write"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            said = re.search(r"hpss://127\.0\.0\.1:(\d+)/", server.stderr.readline())
            assert said
            with Relay(int(said[1])) as relay:
                thread = threading.Thread(target=relay.serve_forever, args=(0.05,))
                thread.start()
                try:
                    yield relay
                finally:
                    relay.shutdown()
                    thread.join()
        finally:
            server.terminate()


def make_history(work: Git, other: Git, url: str) -> Iterator[None]:
    """Make a history and push it bit by bit, with a stop after each push that brings revisions."""
    rng = random.Random(4155)
    lines = [f"line {n}: {rng.random()}" for n in range(3000)]
    work("init", "-q", "-b", "main")
    files = {f"file{n}.txt": f"{n}\n" * n + "some text\n" * 20 for n in range(60)}
    work.commit("first", **files, big="\n".join(lines), binary=rng.randbytes(100_000))
    work("push", "-q", url, "main")
    yield

    lines[1000] = "another line"
    files = {f"file{n}.txt": f"{n}\n" * n + "some text\n" * 21 for n in range(20)}
    work.commit("second", **files, big="\n".join(lines), binary=rng.randbytes(100_000))
    work("tag", "-a", "-m", "a tag", "v1")
    work("push", "-q", url, "main", "v1")
    yield
    other("clone", "-q", url, ".")

    # Two branches introduce the same blob; on the second it is a base, in its own segment and for the next.
    shared = "\n".join(lines[:100])
    work("checkout", "-q", "-b", "one")
    work.commit("one", **{"shared.txt": shared})
    work("push", "-q", url, "one")
    yield
    work("checkout", "-q", "-b", "two", "main")
    work.commit("two", **{"shared.txt": shared, "similar.txt": shared + "!"})
    work.commit("two again", **{"shared.txt": "!" + shared})
    work("push", "-q", url, "two")
    yield

    work("checkout", "-q", "main")
    work.commit("third", three=b"\0\1\2" * 1000)
    work("merge", "-q", "--no-edit", "two")
    work("tag", "blob", "HEAD:shared.txt")
    work("tag", "-a", "-m", "a tree", "tree", "HEAD^{tree}")
    work("tag", "-a", "-m", "a tag of a tag", "tag", "v1")
    work("push", "-q", url, "main", "--tags")
    yield

    work("push", "-q", url, ":two")
    work("branch", "-q", "-D", "two")
    for n in range(10):
        work.commit(f"small {n}", two=f"{n}" * (n + 1))
        work("push", "-q", url, "main")
        yield
    other.commit("diverged", binary=rng.randbytes(300_000))
    other("push", "-q", "origin", "main", fails=True)
    other("fetch", "-q", "origin")
    other("ls-remote", url + "-none", fails=True)

    tip = work("rev-parse", "main").decode().strip()
    packed = "".join(f"{tip} refs/tags/one-of-very-many-tags-that-have-long-names/{n:08}\n" for n in range(MANY))
    (work.work / ".git" / "packed-refs").write_text(packed)
    work("push", "-q", url, "--tags")
    work.commit("last", two="the last")
    work("push", "-q", url, "main")
    yield


@dataclass
class Written:
    """All that was written, and the repository after each push that brought revisions."""

    work: Git
    clone: Git
    stages: list[Repository]
    repository: Repository
    dialogs: list[tuple[bytes, bytes]]
    exchanges: list[Exchange]

    @property
    def segments(self) -> list[Segment]:
        return [segment for pack in self.repository.packs for segment in pack.segments]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("written")
    stored = folder / "store" / "team" / "project"
    work, other, clone = (Git(folder / name) for name in ("work", "other", "clone"))
    with serving(folder / "store", work.env) as relay:
        stages = [Repository(stored) for _ in make_history(work, other, relay.url)]
        clone("clone", "-q", relay.url, ".")
    dialogs = [(bytes(up), bytes(down)) for up, down in relay.dialogs]
    exchanges = []
    for up, down in dialogs:
        read = read_dialog(up, down)
        obey_dialog(up, down, read)
        exchanges += read
    return Written(work, clone, stages, Repository(stored), dialogs, exchanges)


def test_the_packs_hold_every_object_and_no_other(written: Written) -> None:
    objects = written.work.objects()
    assert {record.key: (TYPES[record.meta[0]], record.text) for record in written.repository} == objects
    assert written.clone.objects() == objects


def test_a_base_is_the_copy_at_the_lowest_position(written: Written) -> None:
    stage = written.stages[3]
    one, two = stage.packs[2:]
    bases = {r.base_name for segment in two.segments for r in segment.records if r.base_name is not None}
    shared = {name for name in bases if stage.copies[name] in one.segments[0].records}
    assert shared, "a base has its first copy beside"
    assert not any(one.segments[0].revision in stage.ancestors[segment.revision] for segment in two.segments)
    assert shared <= set(stage.indexes[3].columns["external"])
    introduced = {record.name for segment in two.segments for record in segment.records}
    assert shared <= introduced, "and another where it is used"


def test_an_index_finds_every_key(written: Written) -> None:
    for pack, index in zip(written.repository.packs, written.repository.indexes, strict=True):
        firsts: dict[bytes, int] = {}
        for record in (record for segment in pack.segments for record in segment.records):
            row = index.find(record.kind, record.key)
            assert row is not None
            assert index.columns["headers"][row] == firsts.setdefault(record.key, record.header_at)
        assert index.find(0, bytes(20)) is None


def test_the_refs_are_those_of_git_and_of_the_log(written: Written) -> None:
    root, refs = written.repository.root, written.repository.refs
    assert refs == written.work.refs()
    assert len(refs) > MANY
    assert root[8] == {"HEAD": b"refs/heads/main"}
    assert root[10]["refs"][2], "the table of refs is a file"
    assert root[11]["refs"], "with changes over it"
    assert root[15], "and there are log files"
    replayed: dict[bytes, bytes | None] = {}
    for *_, changes in written.repository.log:
        for table, ref, old, new in changes:
            assert table == "settings" or (table, old) == ("refs", replayed.get(ref))
            replayed |= {} if table == "settings" else {ref: new}
    assert {ref: msgspec.msgpack.decode(tips) for ref, tips in replayed.items() if tips is not None} == refs
    changed = {exchange.id for exchange in written.exchanges if not exchange.fault and not exchange.down}
    assert {entry[3] for entry in written.repository.log} == changed


def test_what_was_pushed_lies_in_the_packs(written: Written) -> None:
    pushed = [[s.data for s in exchange.up] for exchange in written.exchanges if exchange.up and not exchange.fault]
    assert len(pushed) == len(written.stages)
    assert [[s.data for s in pack.segments] for pack in written.stages[9].packs] == pushed[:10], "a pack for each push"
    assert [s.data for s in written.segments] == [data for push in pushed for data in push]
    assert len(written.repository.packs) < len(pushed), "packs were joined"
    announced = [exchange for exchange in written.exchanges if exchange.graph and not exchange.fault]
    assert announced
    for exchange in announced:
        assert exchange.graph == [(segment.revision, segment.parents) for segment in exchange.up]


def test_what_was_pulled_is_what_lies_in_the_packs(written: Written) -> None:
    last = written.exchanges[-1]
    assert [segment.data for segment in last.down] == [segment.data for segment in written.segments]
    assert last.state is not None
    assert last.state[3] == written.repository.refs
    stored = {segment.revision: segment.data for segment in written.segments}
    pulled = [exchange for exchange in written.exchanges if exchange.down]
    # A clone of a part; a fetch, to which git adds the tag of a tree; a whole clone.
    assert [len(exchange.down) < len(stored) for exchange in pulled] == [True, True, True, False]
    assert all(segment.data == stored[segment.revision] for exchange in pulled for segment in exchange.down)


def test_refusals_and_long_messages_are_read(written: Written) -> None:
    refused, absent = (exchange for exchange in written.exchanges if exchange.fault)
    assert refused.fault == ["refused", {}]
    assert [outcome[2][0] for outcome in refused.outcomes] == ["not-done", "diverged"]
    assert absent.fault == ["no-such-repository", {"path": "team/project-none"}]
    full = (262144).to_bytes(4)
    assert any(full + b"\x01" in up for up, _ in written.dialogs), "a request was longer than a frame"
    assert full + b"\x44" in written.dialogs[-1][1], "and a reply"


def test_damage_is_seen(written: Written) -> None:
    *_, pack = sorted((written.repository.path / "packs").glob("*.pack"))
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    with pytest.raises(Damaged):
        Pack.of(bytes(data))
    with pytest.raises(Damaged):
        Index(pack.with_suffix(".idx").read_bytes()[:-1])
    up, down = written.dialogs[0]
    with pytest.raises(Damaged):
        read_dialog(up[:-1], down)
    with pytest.raises(Damaged, match="a frame is one that this side may send"):
        obey_dialog(down, up, [])
    with pytest.raises(Damaged, match="only they are answered"):
        obey_dialog(up[:7], down, [])
    read = read_dialog(up, down)
    segment = read[0].up.pop()
    with pytest.raises(Damaged, match="END counts the segments"):
        obey_dialog(up, down, read)
    segment.records.append(segment.records[0])
    with pytest.raises(Damaged, match="a key has one entry"):
        obey_segment(segment, OBJECT)


def test_the_examples_of_the_text_are_read() -> None:
    blocks = dict(re.findall(r"```hex\n# (.*?)\n(.*?)```", SPEC.read_text(encoding="utf-8"), re.DOTALL))
    data = {title: bytes.fromhex(re.sub(r"#.*", "", block)) for title, block in blocks.items()}
    pack, index = Pack.of(data["a pack with two revisions"]), Index(data["the index of the pack with two revisions"])
    first, second = (record for segment in pack.segments for record in segment.records)
    first.text = decode(first, b"")
    second.text = decode(second, first.text)
    assert [first.text, second.text] == [b"alpha\nbravo\ncharlie\ndelta\n", b"alpha\nbravo\ncharlie\ndelta\necho\n"]
    for depth, record in enumerate((first, second)):
        prove(record, pack.kinds[record.kind])
        record.place, record.depth, record.chain = 1, depth, depth + 1
    assert (index.size, index.hash) == (pack.size, pack.hash)
    made = index_of(pack, 1, {first.name: first, second.name: second}, {b"r0": 0, b"r1": 1, b"r2": 1})
    assert index.columns == made | {"lineages": [0, 1]}
    assert read_graph(Cursor(data["an announced graph"])) == [
        (b"r1", [(b"r0", False)]),
        (b"r2", [(b"r1", False)]),
        (b"r3", [(b"r2", False), (b"r1", False), (b"gh", True)]),
    ]
