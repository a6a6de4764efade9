"""Several processes write to one repository on the local disk; some are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import History, check_whole, push, refs_of

from smartserver.store.format import INCOMING
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

PROCESSES = 4
PUSHES = 10
DAY = 24 * 3600

WRITER = """
import sys
sys.path[:0] = sys.argv[3:]
from builders import History, push
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport
folder, number = sys.argv[1], sys.argv[2]
history = History()
repository = PackRepository(LocalTransport(folder), "project")
first, stop = map(int, sys.stdin.readline().split())
line = history.line(stop, None, "process " + number)
for each in line[first:]:
    push(repository, history, [each], {b"refs/heads/" + number.encode(): each}, force=False)
    repository.repack_if_needed()
    print(each.hex(), flush=True)
"""

UPLOADER = """
import sys
sys.path[:0] = sys.argv[2:]
from builders import History, upload
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport
history = History()
upload(PackRepository(LocalTransport(sys.argv[1]), "project"), history.body(history.line(5, None, "killed")), 5)
print("uploaded", flush=True)
sys.stdin.readline()
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    paths = [entry for entry in sys.path if entry]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def together(histories: list[History]) -> History:
    whole = History()
    for history in histories:
        whole.objects |= history.objects
        whole.parents |= history.parents
        whole.introduced |= history.introduced
    return whole


def test_four_processes_at_once(folder: str) -> None:
    writers = [start(WRITER, folder, str(number)) for number in range(PROCESSES)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(f"0 {PUSHES}\n")
        writer.stdin.flush()
    answers = [writer.communicate()[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * PROCESSES
    histories = [History() for _ in range(PROCESSES)]
    lines = [history.line(PUSHES, None, f"process {number}") for number, history in enumerate(histories)]
    assert answers == [[each.hex() for each in line] for line in lines]
    repository = PackRepository(LocalTransport(folder), "project")
    assert refs_of(repository) == {b"refs/heads/%d" % number: line[-1] for number, line in enumerate(lines)}
    snapshot = check_whole(repository, together(histories))
    assert snapshot.graph.count == PROCESSES * PUSHES
    assert len(snapshot.packs) < 20


def test_a_killed_writer_loses_nothing_it_acknowledged(folder: str) -> None:
    history = History()
    line = history.line(200, None, "process 0")
    first = 0
    for last in (0, 3, 8):
        writer = start(WRITER, folder, "0")
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(f"{first} 200\n")
        writer.stdin.flush()
        acknowledged = [writer.stdout.readline() for _ in range(last + 1)][-1].strip()
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        repository = PackRepository(LocalTransport(folder), "project")
        found = line.index(refs_of(repository)[b"refs/heads/0"])
        assert found >= line.index(bytes.fromhex(acknowledged))
        check_whole(repository, history)
        repository.collect_garbage_files()
        push(repository, history, line[found + 1 : found + 2], {b"refs/heads/0": line[found + 1]})
        check_whole(repository, history)
        first = found + 2
    later = PackRepository(LocalTransport(folder), "project", clock=lambda: time.time() + DAY)
    for path in Path(folder, "project", INCOMING).iterdir():
        os.utime(path, times=(0, 0))
    later.collect_garbage_files()
    assert os.listdir(f"{folder}/project/{INCOMING}") == []
    check_whole(later, history)


def test_a_sweep_beside_a_push_of_another_process(folder: str) -> None:
    """A start of one server leaves the pushes of another alone, and takes what has lain there for a day."""
    repository = PackRepository(LocalTransport(folder), "project")
    push(repository, History(), [])
    uploader = start(UPLOADER, folder)
    assert uploader.stdout is not None
    assert uploader.stdout.readline() == "uploaded\n"
    assert repository.collect_garbage_files() == 0
    left = list(Path(folder, "project", INCOMING).iterdir())
    assert len(left) == 2
    uploader.send_signal(signal.SIGKILL)
    uploader.communicate()
    assert repository.collect_garbage_files() == 0
    for path in left:
        os.utime(path, times=(0, 0))
    assert repository.collect_garbage_files() == 2
    assert os.listdir(f"{folder}/project/{INCOMING}") == []
