"""transports.base: a publication is whole or absent, whoever is killed on the way, and has one winner."""

from __future__ import annotations

import random
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest

from transports.local import LocalTransport

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
