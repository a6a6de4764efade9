"""The measurement: each operation done over each link, what passed it counted, and its outcome looked at."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.baseline.rows import BRANCH, CLONE, LOCK, NEW, PACKS, PULL, PUSH, REPACK, ROWS, SIZES
from bench.baseline.ways import WAYS, Way
from bench.compare import history
from bench.report import circumstances
from netem.link import Link
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import HOST, Say, Workspace, attempt, run
from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.store.repository import PackRepository
from smartserver.store.swap import RootFile
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest, map_update
from smartserver.verbs.server_ping import PingRequest, server_ping
from transports.base import Capability, Transport
from transports.local import LocalTransport
from transports.steps import Append

MAIN, TOPIC = "refs/heads/main", "refs/heads/topic"


@dataclass(frozen=True)
class Cost:
    """One operation on one way."""

    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float


@dataclass
class Baseline:
    """All that was measured."""

    rtt: float
    ways: Sequence[type[Way]]
    costs: dict[tuple[str, str], Cost] = field(default_factory=dict)
    """By operation and way."""
    problems: list[str] = field(default_factory=list)
    """What came out wrong, and what took more round trips than it may."""
    circumstances: str = ""

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "rtt": self.rtt,
            "circumstances": self.circumstances,
            "problems": self.problems,
            "costs": [
                {
                    "operation": row.name,
                    "way": way.name,
                    "rounds": cost.rounds,
                    "bar": row.bars.get(way.name),
                    "breezy": row.breezy.get(way.name),
                    "bytes_up": cost.bytes_up,
                    "bytes_down": cost.bytes_down,
                    "seconds": round(cost.seconds, 3),
                }
                for row in ROWS
                for way in self.ways
                if (cost := self.costs.get((row.name, way.name))) is not None
            ],
        }


def run_baseline(rtt: float, only: Collection[str], say: Say) -> Baseline:
    """Do every operation on each way over a link of that RTT; `only`: the ways that are wanted, all if none is named.

    Raises:
        CommandError: there is no git or no OpenSSH server, or a server does not start.
    """
    found = Baseline(rtt, [way for way in WAYS if not only or way.name in only])
    with Workspace("baseline") as work:
        fixture = work.folder / "fixture"
        fixture.mkdir()
        history.write(fixture, work.environment("fixture"))
        many: Path | None = None
        for kind in found.ways:
            measured = _Measured(found, kind(work), work, fixture / "git", say)
            measured.operations()
            if many is None and kind.joins_none:
                many = measured.many_packs()
            if many is not None:
                measured.repack(many)
    found.problems += shortfalls(found)
    found.circumstances = circumstances()
    return found


def shortfalls(found: Baseline) -> Iterator[str]:
    """What has a bar and takes more round trips than that, or was not measured."""
    for row in ROWS:
        if row.name == REPACK and not any(way.joins_none for way in found.ways):
            continue  # Its packs are made by such a way.
        for way in found.ways:
            cost, bar = found.costs.get((row.name, way.name)), row.bars.get(way.name)
            if bar is None:
                continue
            if cost is None:
                yield f"{row.name}, {way.label}: was not measured"
            elif cost.rounds > bar:
                yield f"{row.name}, {way.label}: {cost.rounds} round trips, bar {bar}"


class _Measured:
    """One way."""

    def __init__(self, found: Baseline, way: Way, work: Workspace, fixture: Path, say: Say) -> None:
        self._found = found
        self._way = way
        self._fixture = fixture
        self._say = say
        self._environment: Mapping[str, str] = work.environment(f"client-{way.name}")
        self._other: Mapping[str, str] = work.environment(f"other-{way.name}")
        self._folder = work.folder / f"clones-{way.name}"
        self._folder.mkdir()

    def operations(self) -> None:
        """All but the repack, whose packs must be made first."""
        url = self._way.url("project")
        mine, other = self._folder / "mine", self._folder / "other"
        self._git(self._fixture, "push", "--quiet", url, MAIN)
        for clone in (mine, other):
            self._git(self._folder, "clone", "--quiet", "--branch", "main", url, str(clone))
        self._lock()
        self._commit(mine)
        self._measure(PUSH, lambda: self._git(mine, "push", "--quiet", "origin", "main"))
        self._expect(PUSH, self._there(MAIN), self._tip(mine))
        self._measure(PULL, lambda: self._git(other, "pull", "--quiet", "--ff-only", "origin", "main", other=True))
        self._expect(PULL, self._tip(other), self._tip(mine))
        self._git(mine, "checkout", "--quiet", "-b", "topic")
        self._commit(mine)
        self._measure(BRANCH, lambda: self._git(mine, "push", "--quiet", "origin", "topic"))
        self._expect(BRANCH, self._there(TOPIC), self._tip(mine))
        fresh = self._folder / "fresh"
        self._measure(CLONE, lambda: self._git(self._folder, "clone", "--quiet", "--branch", "topic", url, str(fresh)))
        self._expect(CLONE, self._tip(fresh), self._tip(mine))
        new = self._way.url("new")
        self._measure(NEW, lambda: self._git(mine, "push", "--quiet", new, "main"))
        self._expect(NEW, self._there(MAIN, "new"), self._there(MAIN))
        store = self._way.store()
        if store is not None:
            self._files(store)

    def _files(self, store: Transport) -> None:
        """Files of several sizes, put and appended to."""
        store.exists("")  # Connected, logged in.
        for name, size in SIZES.items():
            content = bytes(size)
            path = f"file-{size}"
            self._measure(f"put {name}", partial(store.put, path, [content]))
            self._expect(f"put {name}", (self._way.served / path).stat().st_size, size)
            if Capability.APPEND in store.capabilities:
                self._measure(f"append {name}", partial(store.perform, [Append(path, content)]))
                self._expect(f"append {name}", (self._way.served / path).stat().st_size, 2 * size)

    def _lock(self) -> None:
        store = self._way.store()
        if store is not None:
            file = RootFile(store, "project")
            file.read()
            held: list[bool] = []
            self._measure(LOCK, lambda: _swap_nothing(file, lambda: held.append(self._is_locked())))
            self._expect(LOCK, (held, self._is_locked()), ([True], False))
            return
        proxy = self._way.proxy
        with Client(lambda: TcpMedium(HOST, proxy.port)) as client:
            client.call(server_ping, PingRequest())
            change = MapUpdateRequest("baseline", MapKind.OPAQUE, [EntryChange(b"held", b"", How.SET)])
            self._measure(LOCK, lambda: client.call(map_update, change, "project"))
        entries = PackRepository(LocalTransport(self._way.served), "project").snapshot().view.maps["baseline"]
        self._expect(LOCK, dict(entries.items()), {b"held": b""})
        self._expect(LOCK, self._is_locked(), False)

    def _is_locked(self) -> bool:
        """Whether somebody has the lock of the repository, as it looks beside its disk."""
        return PackRepository(LocalTransport(self._way.served), "project").lock_holder() is not None

    def many_packs(self) -> Path:
        """A repository of so many packs, which the server has not joined: made here, over no link."""
        clone, url = self._folder / "many", self._way.url("many")
        self._say(f"a repository of {PACKS} packs")
        self._git(self._folder, "clone", "--quiet", str(self._fixture), str(clone))
        store = LocalTransport(self._way.served)
        for _ in range(PACKS):
            self._commit(clone)
            self._git(clone, "push", "--quiet", url, "main")
        packs = len(PackRepository(store, "many").snapshot().packs)
        if packs != PACKS:
            raise CommandError(f"{packs} packs, expected {PACKS}: the server joined some")
        return self._way.served / "many"

    def repack(self, many: Path) -> None:
        """Join the packs of a copy of it."""
        if many.parent != self._way.served:
            shutil.copytree(many, self._way.served / "many")
        else:
            shutil.copytree(many, many.parent / "kept")
        url = self._way.url("many")
        self._measure(REPACK, lambda: run(["smartserver", "pack", url], self._folder, self._environment))
        self._expect(REPACK, len(PackRepository(LocalTransport(self._way.served), "many").snapshot().packs), 1)
        if many.parent == self._way.served:
            shutil.rmtree(many)
            (many.parent / "kept").rename(many)

    # -- steps

    def _measure(self, name: str, act: Callable[[], object]) -> None:
        self._say(f"{self._way.label}: {name}")
        proxy = self._way.proxy
        proxy.change(Link(self._found.rtt))
        proxy.take()
        begun = time.monotonic()
        act()
        seconds = time.monotonic() - begun
        counts = proxy.take()
        proxy.change(Link(0.0))
        self._found.costs[name, self._way.name] = Cost(counts.rounds, counts.bytes_up, counts.bytes_down, seconds)

    def _expect(self, name: str, came: object, expected: object) -> None:
        if came != expected:
            self._found.problems.append(f"{name}, {self._way.label}: came to {came!r}, expected {expected!r}")

    def _git(self, folder: Path, *words: str, other: bool = False) -> None:
        run(["git", *words], folder, self._other if other else self._environment)

    def _commit(self, clone: Path) -> None:
        with (clone / "a00").open("a", encoding="utf-8") as file:
            file.write("one more\n" * 20)
        self._git(clone, "commit", "--quiet", "--all", "-m", "one more")

    def _tip(self, clone: Path) -> str:
        return attempt(["git", "rev-parse", "HEAD"], clone, self._environment).stdout.strip()

    def _there(self, ref: str, name: str = "project") -> str:
        value = PackRepository(LocalTransport(self._way.served), name).snapshot().view.ref(ref.encode())
        return "" if value is None else value[0].id.hex()


def _swap_nothing(file: RootFile, look: Callable[[], object]) -> None:
    with file.swapping():
        look()


def names() -> Iterator[str]:
    """What `only` may name."""
    return (way.name for way in WAYS)
