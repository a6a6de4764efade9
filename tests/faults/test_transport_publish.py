"""transports.base: a publication is whole or absent, whatever fails or is killed on the way, and has one winner."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest
from faulty_transport import FaultMode, FaultyTransport
from memory_transport import Aftermath, MemoryTransport

from transports.errors import FileExists, TransportFailed
from transports.local import LocalTransport
from transports.steps import GetPublished


def started(*, links: bool) -> MemoryTransport:
    """A durable tree with a file that is to be published."""
    storage = MemoryTransport(links=links)
    for folder in ("incoming", "log"):
        storage.make_directory(folder)
    storage.put("incoming/a", [b"a"])
    for folder in ("incoming", ""):
        storage.sync_directory(folder)
    return storage


def published(storage: MemoryTransport) -> bytes | None:
    step = GetPublished("log/1")
    storage.perform([step])
    return step.result


@pytest.mark.parametrize("mode", ["fail", "lose", "die"])
@pytest.mark.parametrize("links", [True, False])
def test_each_call_fails_in_turn(mode: FaultMode, links: bool) -> None:
    """The target is whole or absent, and a second try tells which. Success is never told of what was not done."""
    lost = 0
    for at in itertools.count(1):
        storage = started(links=links)
        faulty, failed = FaultyTransport(storage, fail_at=at, mode=mode), False
        try:
            faulty.publish("incoming/a", "log/1")
        except TransportFailed:
            failed = True
        found = published(storage)
        assert found == b"a" or (failed and found is None), faulty.log
        lost += failed and found is not None
        storage.put("incoming/b", [b"b"])
        if found is None:
            storage.publish("incoming/b", "log/1")
            assert published(storage) == b"b", faulty.log
        else:
            with pytest.raises(FileExists):
                storage.publish("incoming/b", "log/1")
            assert published(storage) == b"a", faulty.log
        if faulty.calls < at:
            break
    assert lost == (mode == "lose")  # The reply that said so, and no other.


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("links", [True, False])
def test_the_power_is_lost(links: bool, synced: bool) -> None:
    """Once its folder is synced it stays; before, it is whole or absent. The name can be had if it is free."""
    for aftermath, seed in itertools.product(Aftermath, range(20)):
        storage = started(links=links)
        storage.publish("incoming/a", "log/1")
        if synced:
            storage.sync_directory("log")
        after = storage.crash(aftermath, seed)
        found = published(after)
        assert found == b"a" or (found is None and not synced), (aftermath, seed)
        if found is None:
            after.put("incoming/b", [b"b"])
            after.publish("incoming/b", "log/1")
            assert published(after) == b"b"


PUBLISHER = """
import errno, itertools, os, sys
from hashlib import blake2b
folder, name, form = sys.argv[1:4]
sys.path[:0] = sys.argv[4:]
from transports.errors import FileExists
from transports.local import LocalTransport
from transports.steps import GetPublished

def refuse(*_, **__):
    raise OSError(errno.EPERM, "Operation not permitted")

if form == "folder":
    os.link = refuse
transport = LocalTransport(folder)
number, parent = 1, ""
for turn in itertools.count():
    while True:
        while True:
            step = GetPublished(f"log/{number}")
            transport.perform([step])
            if step.result is None:
                break
            number, parent = number + 1, blake2b(step.result).hexdigest()
        source = f"incoming/{name}.{turn}.{number}"
        transport.put(source, [f"{parent} {name}.{turn}".encode()])
        try:
            transport.publish(source, f"log/{number}")
        except FileExists:
            transport.delete(source)
        else:
            break
    print(number, f"{name}.{turn}", flush=True)
"""

LIVES = 3


@pytest.mark.parametrize("forms", [("link",) * 3, ("folder",) * 3, ("link", "folder", "link")], ids="-".join)
def test_processes_that_are_killed(tmp_path: Path, forms: tuple[str, ...]) -> None:
    """Each record names the one before it: the chain is whole, and has all that was acknowledged."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    transport = LocalTransport(tmp_path)
    for name in ("incoming", "log"):
        transport.make_directory(name)

    def start(slot: int, life: int) -> subprocess.Popen[str]:
        words = [str(tmp_path), f"{slot}.{life}", forms[slot], *filter(None, sys.path)]
        return subprocess.Popen([sys.executable, "-c", PUBLISHER, *words], stdout=subprocess.PIPE, text=True)

    running = [start(slot, 0) for slot in range(len(forms))]
    acknowledged: list[str] = []
    for life in range(1, LIVES + 1):
        for slot, process in enumerate(running):
            assert process.stdout is not None
            acknowledged += [process.stdout.readline() for _ in range(chance.randrange(1, 20))]
            process.kill()
            acknowledged += process.communicate()[0].splitlines(keepends=True)
            if life < LIVES:
                running[slot] = start(slot, life)
    records, parent = dict[int, str](), ""
    for number in range(1, len(transport.list_directory("log")) + 1):
        content = transport.get_published(f"log/{number}")
        named, _, records[number] = content.decode().partition(" ")
        assert named == parent, number
        parent = blake2b(content).hexdigest()
    assert len(set(records.values())) == len(records)
    told = dict(line.split() for line in acknowledged if line.endswith("\n"))
    assert len(told) >= LIVES * len(forms)
    assert {number: records[int(number)] for number in told} == told
    assert len(transport.list_directory("incoming")) <= LIVES * len(forms) * 2  # Of a kill, a source and its folder.
