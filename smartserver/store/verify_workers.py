"""Processes that check the segments of a repository on this machine, one for each core, up to two.

The problem: Python checks a record in 70 us on one core, whatever is done in C. The rule: each worker is a new Python
program with the repository's folder, its state as bytes, and shares of its segments. So it inherits no socket, no lock
and no thread; it opens files to read, changes nothing, and says what it found through its standard output.

A worker ends by itself when its standard input ends, which is when its parent ends, however that comes about; `close`
kills those that still run. A worker that ends early leaves its shares to its parent, which checks them itself and so
raises or reports what there is to say.

A worker's memory has a bound: `INTERPRETER`, `TEXTS` of texts twice, 20 MB of references, `MARKS` of ancestors, one
segment with its largest text, and its cache of index blocks. `doc/howto/run_a_server.md` shows the sum.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import signal
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Self

import msgspec

from smartserver.programs import python
from smartserver.store.caches import TextCache
from smartserver.store.checkpoint import decode_checkpoint, encode_checkpoint
from smartserver.store.graph import Graph
from smartserver.store.log import Log
from smartserver.store.open_pack import OpenPack
from smartserver.store.pack import CHUNK
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import State
from smartserver.store.states import reader
from smartserver.store.verify_share import SegmentCheck, Share, ShareReport
from transports.local import LocalTransport

MOST = 2
"""Workers: a server answers others meanwhile."""

LEAST = 4 << 20
"""Bytes of packs under which a worker takes longer to start than it saves: they are checked in about a second."""

TEXTS = 32 << 20
"""Bytes of text a worker keeps, once as they were checked and once as they were read again."""

INTERPRETER = 32 << 20
"""Bytes of Python and its modules in a worker."""

MARKS = 8 << 20
"""Bytes of marks of ancestors a worker keeps: 64 walks over 125,000 revisions."""

RECORD_COST = 20_000
"""The work of a record in bytes of its text: a record takes 50 us and its text 2.5 ns a byte."""

PAUSE = 0.2
"""Seconds between two looks at whether somebody still waits for the result."""

COLLECT = 100_000
"""Objects made and not dropped between two looks of Python's collector: as in `vcs.collector`."""


class Job(msgspec.Struct, frozen=True):
    """What a worker is told: a line of JSON."""

    folder: str
    state: bytes
    shares: list[Share]


class Message(msgspec.Struct, frozen=True):
    """What a worker says, a line of JSON: how many bytes it read, and what it found of a share that it has finished."""

    read: int
    share: Share | None = None
    found: ShareReport | None = None


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shares_of(packs: Sequence[OpenPack], graph: Graph, count: int) -> list[list[Share]]:
    """All segments, in `count` runs of about the same work; a run has a share of each pack it reaches into."""
    costs = array("Q")
    for pack in packs:
        index = pack.index
        of_pack = array("Q", bytes(8 * index.segments))
        for row in index.rows():
            if row.segment < index.segments:  # A wrong index is found later.
                of_pack[row.segment] += row.length + RECORD_COST
        costs += of_pack
    total = sum(costs)
    ends = [0]
    done = 0
    for ordinal, cost in enumerate(costs):
        done += cost
        if done * count >= total * len(ends):
            ends.append(ordinal + 1)
    ends[count:] = [len(costs)]
    runs: list[list[Share]] = []
    for begin, end in pairwise(ends):
        run = []
        for number, part in enumerate(graph.parts):
            start, stop = max(begin - part.first, 0), min(end - part.first, part.count)
            if start < stop:
                run.append(Share(number, start, stop))
        runs.append(run)
    return runs


class Workers:
    """The processes of one verification; close it, or use it as a context manager. For one thread."""

    def __init__(self, folder: str, state: State, runs: Sequence[list[Share]]) -> None:
        self.read = 0
        """Bytes they have read."""
        self.shares = {share: number for number, run in enumerate(runs) for share in run}
        """All shares in order, and the number of the worker of each."""
        self._found: dict[Share, ShareReport] = {}
        self._messages: queue.SimpleQueue[tuple[int, Message | None]] = queue.SimpleQueue()
        self._ended: set[int] = set()
        self._processes: list[subprocess.Popen[bytes]] = []
        # The modules come from where this program has them from, whatever its folder is.
        content = encode_checkpoint(state)
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
        try:
            for number, run in enumerate(runs):
                process = subprocess.Popen(
                    python("-c", program),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
                self._processes.append(process)
                job = msgspec.json.encode(Job(folder, content, run)) + b"\n"
                threading.Thread(target=self._receive, args=(number, process, job), daemon=True).start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, and wait until they have ended."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
        self._processes = []

    def look(self) -> None:
        """Note what the workers have said so far."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._take(*self._messages.get_nowait())

    def wait(self, share: Share, look: Callable[[], None]) -> ShareReport | None:
        """What was found of a share; None where its worker ended early. `look` is called while it waits."""
        worker = self.shares[share]
        while share not in self._found and worker not in self._ended:
            look()
            with contextlib.suppress(queue.Empty):
                self._take(*self._messages.get(timeout=PAUSE))
        return self._found.pop(share, None)

    def _take(self, worker: int, message: Message | None) -> None:
        if message is None:
            self._ended.add(worker)
            return
        self.read += message.read
        if message.share is not None and message.found is not None:
            self._found[message.share] = message.found

    def _receive(self, number: int, process: subprocess.Popen[bytes], job: bytes) -> None:
        """A thread's work: tell a worker its job, and hear what it says until it ends."""
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError, msgspec.DecodeError):  # It ended, or its pipes were closed.
            process.stdin.write(job)
            process.stdin.flush()
            for line in process.stdout:
                self._messages.put((number, msgspec.json.decode(line, type=Message)))
        self._messages.put((number, None))


# -- in the worker's process


def main() -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # That of a terminal goes to the parent too, which ends this process.
    gc.set_threshold(COLLECT, *gc.get_threshold()[1:])
    stdout = sys.stdout.buffer
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    log = Log(LocalTransport(job.folder), "", os.urandom)
    again = reader(log, TextCache(0))
    state = decode_checkpoint(job.state, "state")
    snapshot = Snapshot.open(log.folder, state, texts=TextCache(TEXTS), again=again)
    check = SegmentCheck(snapshot, texts=TEXTS, marks=MARKS)
    read = 0

    def say(message: Message) -> None:
        nonlocal read
        stdout.write(msgspec.json.encode(message) + b"\n")
        stdout.flush()
        read = 0

    def progress(more: int) -> None:
        nonlocal read
        read += more
        if read >= CHUNK:
            say(Message(read))

    for share in job.shares:
        found = check.share(share, progress)
        say(Message(read, share, found))


def _end_with_parent() -> None:
    """End this process where its parent has ended, which closes the pipe."""
    while os.read(0, 1):  # Not through `sys.stdin`, whose lock Python waits for where it ends.
        pass
    os._exit(1)
