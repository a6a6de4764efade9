"""store.verify_workers and store.verify_share: several processes find what one finds, and end with whoever asked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from builders import MAIN, Clock, History, Repeatable, push
from twins import IN_PYTHON

from smartserver.store import verify, verify_share
from smartserver.store.checkpoint import encode_checkpoint
from smartserver.store.format import PACKS
from smartserver.store.model import VerifyReport
from smartserver.store.repository import PackRepository
from smartserver.store.verify_share import SegmentCheck, Share
from smartserver.store.verify_workers import Job, Message, Workers, shares_of
from transports.local import LocalTransport


@pytest.fixture
def repository(tmp_path: Path) -> PackRepository:
    """Three packs of forty revisions in all, with ghosts of none."""
    made = PackRepository(LocalTransport(tmp_path), clock=Clock(), randomness=Repeatable())
    history = History()
    line = history.line(40)
    for start, stop in ((0, 20), (20, 35), (35, 40)):
        push(made, history, line[start:stop], {MAIN: line[stop - 1]})
    return made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Workers]:
    """All workers that are started; there are some from the first byte on."""
    made: list[Workers] = []

    class Noted(Workers):
        def __init__(self, *arguments: object) -> None:
            made.append(self)
            super().__init__(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(verify, "Workers", Noted)
    monkeypatch.setattr(verify, "LEAST", 0)
    monkeypatch.setattr(verify, "cores", lambda: 2)
    return made


def in_one_process(repository: PackRepository, monkeypatch: pytest.MonkeyPatch) -> VerifyReport:
    with monkeypatch.context() as patched:
        patched.setattr(verify, "cores", lambda: 1)
        return repository.verify()


def damage(folder: Path, repository: PackRepository) -> None:
    """Spoil a frame of every fourth revision, and the length of one segment."""
    for pack in repository.snapshot().packs:
        path = folder / PACKS / f"{pack.entry.name.hex()}.pack"
        content = bytearray(path.read_bytes())
        offsets = pack.index.segment_offsets
        for local in range(1, pack.index.segments, 4):
            content[offsets[local + 1] - 3] ^= 0xFF
        if pack.index.segments == 15:
            content[offsets[8]] ^= 1
        path.chmod(0o600)
        path.write_bytes(content)


@IN_PYTHON
@pytest.mark.usefixtures("proving")
def test_they_find_what_one_process_finds(
    repository: PackRepository, tmp_path: Path, started: list[Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = repository.verify()
    assert whole.problems == ()
    assert (whole.segments, len(started)) == (40, 1)
    assert whole == in_one_process(repository, monkeypatch)
    damage(tmp_path, repository)
    expected = in_one_process(repository, monkeypatch)
    assert len(expected.problems) > 10
    assert repository.verify() == expected
    assert len(started) == 2


@pytest.mark.parametrize("program", ["/bin/false", "/bin/cat"])
def test_one_that_ends_early_or_says_nonsense_leaves_its_work(
    repository: PackRepository,
    tmp_path: Path,
    started: list[Workers],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
) -> None:
    damage(tmp_path, repository)
    expected = in_one_process(repository, monkeypatch)
    (tmp_path / "program").write_text(f"#!/bin/sh\nexec {program}\n")
    (tmp_path / "program").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "program"))
    # A window is less than the pack: what is read again begins in front of the last one.
    monkeypatch.setattr(verify_share, "CHUNK", 1000)
    assert repository.verify() == expected
    assert len(started) == 1


@IN_PYTHON
@pytest.mark.usefixtures("proving")
def test_they_end_where_nobody_waits_any_more(
    repository: PackRepository, started: list[Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    class GoneError(Exception):
        pass

    processes: list[subprocess.Popen[bytes]] = []
    close = Workers.close

    def noted(workers: Workers) -> None:
        processes.extend(workers._processes)
        close(workers)

    monkeypatch.setattr(Workers, "close", noted)

    def progress(done: int, total: int) -> None:
        raise GoneError

    with pytest.raises(GoneError):
        repository.verify(progress)
    assert len(processes) == 2
    assert all(process.returncode is not None for process in processes)


@pytest.fixture
def worker(repository: PackRepository, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that has done its work but for its end, as it would be told to by a parent that dies then."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from smartserver.store.verify_workers import main; main(); import time; time.sleep(600)",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    state = encode_checkpoint(repository.snapshot().state)
    job = msgspec.json.encode(Job(str(tmp_path), state, [Share(0, 0, 3), Share(2, 1, 5)]))
    assert process.stdin is not None
    process.stdin.write(job + b"\n")
    process.stdin.flush()
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()


def test_one_ends_with_its_parent(worker: subprocess.Popen[bytes], repository: PackRepository) -> None:
    assert worker.stdout is not None
    assert worker.stdin is not None
    snapshot = repository.snapshot()
    for share in (Share(0, 0, 3), Share(2, 1, 5)):
        message = msgspec.json.decode(worker.stdout.readline(), type=Message)
        assert message.share == share
        assert message.found == SegmentCheck(snapshot).share(share, lambda read: None)
        assert message.found.segments == share.stop - share.start
    os.kill(worker.pid, signal.SIGINT)  # What a terminal sends to all is for the parent.
    assert worker.poll() is None
    worker.stdin.close()
    assert worker.wait(timeout=60) == 1


def test_they_inherit_no_socket(repository: PackRepository, tmp_path: Path) -> None:
    """Where a server's socket stayed open in a worker, nobody could listen there after the server's end."""
    snapshot = repository.snapshot()
    with socket.socket() as listening:
        listening.set_inheritable(True)
        with Workers(str(tmp_path), snapshot.state, shares_of(snapshot.packs, snapshot.graph, 2)) as workers:
            opened = [os.listdir(f"/proc/{process.pid}/fd") for process in workers._processes]
        assert all("0" in names and str(listening.fileno()) not in names for names in opened)
