"""The same operations three ways: each done over a link, what passed it counted, and its outcome looked at."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from bench import histories, options, ways
from bench.links import measured
from bench.report import circumstances, finish, listed, say, table
from bench.store import look, opened
from bench.ways import CONNECTING, PACKS, REPACK, ROWS, RPC, SIZES, WAYS, Row, Way
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import HOST, LinkCost, Workspace, attempt, run
from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.store.repository import PackRepository
from smartserver.store.swap import RootFile
from smartserver.trace.text import size
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest, map_update
from smartserver.verbs.server_ping import PingRequest, server_ping
from transports.base import Capability, Transport
from transports.steps import Append

MAIN, TOPIC = "refs/heads/main", "refs/heads/topic"


@dataclass
class Baseline:
    rtt: float
    ways: Sequence[type[Way]]
    costs: dict[tuple[str, str], LinkCost] = field(default_factory=dict)
    """By operation and way."""
    problems: list[str] = field(default_factory=list)
    """What came out wrong, and what took more round trips than it may."""
    circumstances: str = ""

    def as_json(self) -> dict[str, Any]:
        costs = [
            {
                "operation": row.name, "way": way.name, "bar": row.bars.get(way.name),
                "breezy": row.breezy.get(way.name), "rounds": cost.round_trips, "bytes_up": cost.bytes_up,
                "bytes_down": cost.bytes_down, "seconds": round(cost.seconds, 3),
            }
            for row in ROWS
            for way in self.ways
            if (cost := self.costs.get((row.name, way.name))) is not None
        ]  # fmt: skip
        return {"rtt": self.rtt, "circumstances": self.circumstances, "problems": self.problems, "costs": costs}


def measure(rtt: float, only: Collection[str]) -> Baseline:
    """Do every operation on each way, or on those of `only`, over a link of that RTT."""
    found = Baseline(rtt, [way for way in WAYS if not only or way.name in only])
    with Workspace("baseline") as work:
        fixture = work.folder / "fixture"
        fixture.mkdir()
        histories.write(fixture, work.environment("fixture"))
        many: Path | None = None
        for kind in found.ways:
            side = _Measured(found, kind(work), work, fixture / "git")
            side.operations()
            if many is None and kind.joins_none:
                many = side.many_packs()
            if many is not None:
                side.repack(many)
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
            elif cost.round_trips > bar:
                yield f"{row.name}, {way.label}: {cost.round_trips} round trips, bar {bar}"


class _Measured:
    def __init__(self, found: Baseline, way: Way, work: Workspace, fixture: Path) -> None:
        self._found = found
        self._way = way
        self._fixture = fixture
        self._environment = work.environment(f"client-{way.name}")
        self._other = work.environment(f"other-{way.name}")
        self._folder = work.folder / f"clones-{way.name}"
        self._folder.mkdir()

    def operations(self) -> None:
        """All but the repack, whose packs must be made first."""
        url, new = self._way.url("project"), self._way.url("new")
        mine, other, fresh = (self._folder / name for name in ("mine", "other", "fresh"))
        self._git(self._fixture, "push", "--quiet", url, MAIN)
        for clone in (mine, other):
            self._git(self._folder, "clone", "--quiet", "--branch", "main", url, str(clone))
        self._lock()
        self._commit(mine)
        self._measure(ways.PUSH, lambda: self._git(mine, "push", "--quiet", "origin", "main"))
        self._expect(ways.PUSH, self._there(MAIN), self._tip(mine))
        pull = ["git", "pull", "--quiet", "--ff-only", "origin", "main"]
        self._measure(ways.PULL, lambda: run(pull, other, self._other))
        self._expect(ways.PULL, self._tip(other), self._tip(mine))
        self._git(mine, "checkout", "--quiet", "-b", "topic")
        self._commit(mine)
        self._measure(ways.BRANCH, lambda: self._git(mine, "push", "--quiet", "origin", "topic"))
        self._expect(ways.BRANCH, self._there(TOPIC), self._tip(mine))
        self._measure(
            ways.CLONE, lambda: self._git(self._folder, "clone", "--quiet", "--branch", "topic", url, str(fresh))
        )
        self._expect(ways.CLONE, self._tip(fresh), self._tip(mine))
        self._measure(ways.NEW, lambda: self._git(mine, "push", "--quiet", new, "main"))
        self._expect(ways.NEW, self._there(MAIN, "new"), self._there(MAIN))
        store = self._way.store()
        if store is not None:
            self._files(store)

    def _files(self, store: Transport) -> None:
        store.exists("")  # Connected, logged in.
        for name, length in SIZES.items():
            content, path = bytes(length), f"file-{length}"
            self._measure(f"put {name}", partial(store.put, path, [content]))
            self._expect(f"put {name}", (self._way.served / path).stat().st_size, length)
            if Capability.APPEND in store.capabilities:
                self._measure(f"append {name}", partial(store.perform, [Append(path, content)]))
                self._expect(f"append {name}", (self._way.served / path).stat().st_size, 2 * length)

    def _lock(self) -> None:
        store = self._way.store()
        if store is not None:
            file = RootFile(store, "project")
            file.read()
            held: list[bool] = []
            self._measure(ways.LOCK, lambda: _swap_nothing(file, lambda: held.append(self._is_locked())))
            self._expect(ways.LOCK, (held, self._is_locked()), ([True], False))
            return
        with Client(lambda: TcpMedium(HOST, self._way.proxy.port)) as client:
            client.call(server_ping, PingRequest())
            change = MapUpdateRequest("baseline", MapKind.OPAQUE, [EntryChange(b"held", b"", How.SET)])
            self._measure(ways.LOCK, lambda: client.call(map_update, change, "project"))
        self._expect(ways.LOCK, dict(self._stored().snapshot().view.maps["baseline"].items()), {b"held": b""})
        self._expect(ways.LOCK, self._is_locked(), False)

    def many_packs(self) -> Path:
        """A repository of so many packs, which the server has not joined: made here, over no link."""
        clone, url = self._folder / "many", self._way.url("many")
        say(f"a repository of {PACKS} packs")
        self._git(self._folder, "clone", "--quiet", str(self._fixture), str(clone))
        for _ in range(PACKS):
            self._commit(clone)
            self._git(clone, "push", "--quiet", url, "main")
        packs = look(self._way.served, "many").packs
        if packs != PACKS:
            raise CommandError(f"{packs} packs, expected {PACKS}: the server joined some")
        return Path(shutil.copytree(self._way.served / "many", self._folder / "kept"))

    def repack(self, many: Path) -> None:
        served = self._way.served / "many"
        if not served.exists():
            shutil.copytree(many, served)
        self._measure(REPACK, lambda: run(["smartserver", "pack", self._way.url("many")], None, self._environment))
        self._expect(REPACK, look(self._way.served, "many").packs, 1)

    # -- steps

    def _measure(self, name: str, act: Callable[[], object]) -> None:
        say(f"{self._way.label}: {name}")
        _, self._found.costs[name, self._way.name] = measured(self._way.proxy, self._found.rtt, act)

    def _expect(self, name: str, came: object, expected: object) -> None:
        if came != expected:
            self._found.problems.append(f"{name}, {self._way.label}: came to {came!r}, expected {expected!r}")

    def _git(self, folder: Path, *words: str) -> None:
        run(["git", *words], folder, self._environment)

    def _commit(self, clone: Path) -> None:
        with (clone / "a00").open("a", encoding="utf-8") as file:
            file.write("one more\n" * 20)
        self._git(clone, "commit", "--quiet", "--all", "-m", "one more")

    def _tip(self, clone: Path) -> str:
        return attempt(["git", "rev-parse", "HEAD"], clone, self._environment).stdout.strip()

    def _there(self, ref: str, name: str = "project") -> str:
        return look(self._way.served, name).refs.get(ref, "")

    def _stored(self) -> PackRepository:
        return opened(self._way.served, "project")

    def _is_locked(self) -> bool:
        """Whether somebody has the lock of the repository, as it looks beside its disk."""
        return self._stored().lock_holder() is not None


def _swap_nothing(file: RootFile, look: Callable[[], object]) -> None:
    with file.swapping():
        look()


def markdown(found: Baseline) -> str:
    """The table, then what must be known to read it."""
    return f"{_table(found)}\n\n{listed(notes(found))}"


def page(found: Baseline) -> str:
    """The same, and what became of the round trips."""
    saved = [f"**{row.name[0].upper()}{row.name[1:]}.** {row.saved}" for row in ROWS if row.saved]
    return "\n\n".join([markdown(found), *saved])


def _table(found: Baseline) -> str:
    head = ["operation"]
    for way in found.ways:
        head += [way.label, "bar", *(["Breezy"] if way.name != RPC else [])]
    cells = [[cell for way in found.ways for cell in _cells(found, row, way)] for row in ROWS]
    return table(
        head, [[f"{row.name}{' *' if row.opened else ''}", *each] for row, each in zip(ROWS, cells, strict=True)]
    )


def _cells(found: Baseline, row: Row, way: type[Way]) -> list[str]:
    """`38, 11.1 KB + 11.6 KB, 39.2 s`, its bar and Breezy's round trips; a dash for what there is no such thing of."""
    cost, bar, breezy = found.costs.get((row.name, way.name)), row.bars.get(way.name), row.breezy.get(way.name)
    if cost is None:
        cells = ["-", ""]
    else:
        missed = bar is not None and cost.round_trips > bar
        connecting = 0 if row.opened else CONNECTING.get(way.name, 0)
        rounds = f"{cost.round_trips} ({connecting} of them to connect)" if connecting else f"{cost.round_trips}"
        cells = [
            f"{rounds}, {size(cost.bytes_up)} + {size(cost.bytes_down)}, {cost.seconds:.1f} s",
            "" if bar is None else f"{bar}{' MISSED' if missed else ''}",
        ]
    return cells if way.name == RPC else [*cells, "" if breezy is None else str(breezy)]


def notes(found: Baseline) -> list[str]:
    return [
        f"Each cell: round trips counted on the link, bytes up + down, seconds at {found.rtt * 1000:g} ms. git pushes "
        "and pulls, each command a fresh process with a fresh connection: its handshake, and SSH's login, are in the "
        "count. *: there they are not, the connection is open",
        "Breezy: round trips of Breezy 3.3 for the same operation over its own file verbs and over SFTP, as another "
        "instrument counted them on 300 revisions; a bar is a third of that. For put and append 2008 counted 3",
        "The link is `netem proxy`: on real TCP a file that takes more than 14,480 bytes with its request takes more "
        "round trips, by slow start; one that takes no more takes one there, too",
        "A count is an upper bound where answers come while something is still being sent, as at an RTT of a few "
        "milliseconds: what is sent after an answer is taken to have waited for it. So 1 MB by SFTP, whose pieces do "
        "not wait, counts as 3 to 5 at 2 ms, and as 2 from 20 ms on",
        found.circumstances,
    ]


PAGES = (options.PERFORMANCE, Path("doc/explanation/why-rpc.md"))


@click.command()
@options.quantity("--rtt", options.TIME, "1000ms", "Round-trip time of the link.")
@options.only([way.name for way in WAYS], "WAY", "Some ways: rpc, vfs, sftp")
@options.outputs(f"{PAGES[0]} and {PAGES[1]}")
def command(rtt: float, only: Sequence[str], as_json: bool, write: bool) -> None:
    """The same operations three ways over the same link: by SFTP, by the file-level (VFS) verbs, and by RPC.

    It starts its own servers on loopback, an OpenSSH server among them, with an emulated link in front, and counts what
    passes: round trips, bytes, seconds. Beside them stands what Breezy needs. Each outcome is looked at. Exit status 1
    when one is wrong or takes more round trips than it may. Takes about six minutes; with --rtt 20ms, one. With less,
    what is answered while more is being sent counts as more round trips than it takes.

    \b
    bench baseline
    bench baseline --rtt 20ms --only sftp
    """
    if write and only:
        raise click.UsageError("--write takes no --only: the pages show every way")
    pages = options.Pages("baseline", *(PAGES if write else ()))
    found = measure(rtt, only)
    pages.write(markdown(found), page(found))
    finish(found, markdown(found), as_json=as_json)
