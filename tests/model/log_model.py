"""A model of the log of a repository: every order in which servers, crashes and failures of the store can meet.

The log is a folder of records, numbered from 1; here number N is slot N. A record has the change of one request and
names the record before it, its parent, so it fixes all records before. A server publishes a change by creating the
record after the newest one. The store creates a record exclusively: of two servers that publish the same number, one
fails. No record is ever replaced. A cleaner writes checkpoints (the whole state after a record) and deletes old
records.

A server keeps the state that it read, and looks for newer records when a request comes. So a server that stops for days
can wake up in a log whose records it knows are deleted, and find the next slot free: the rules are about that.

The actors: slow writers (each call of the store is one step), readers, a cleaner, a fast server (a whole change is one
step), and a creator that saw no repository. The environment: crashes, replies that are lost or late, creations that the
store repeats, old listings, damage of the newest checkpoint, loss of power of the store, a restored backup. A server
that stops for days between two calls is one more order of steps.

The conditions in every state: a reader that opens the repository cold sees every acknowledged change, and each change
once. A reader shows every change that was acknowledged before it asked, and a state that the log had.

Not modelled: damaged records, several requests in one record, and requests that are too old for the entries that a
state keeps. Packs have a model of their own, `pack_model`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, product
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from state_search import Model, Violation

LOST = "lost"
"""An acknowledged change is not in the log."""
TWICE = "twice"
"""A request was carried out twice."""
STALE = "stale"
"""A reader shows less than was acknowledged before it asked."""
OTHER_LINE = "other line"
"""A reader shows a state that the log never had."""
UNREADABLE = "unreadable"
"""Nobody can open the repository."""
STUCK = "stuck"
"""A record does not fit: every change is refused."""

CREATOR_REQUEST = 999
FIRST_FAST_REQUEST = 100


@dataclass(frozen=True)
class Rules:
    """The rules that the actors follow; a test turns one off."""

    exclusive: bool = True
    """A record is created exclusively. Otherwise the later of two writers replaces an acknowledged record."""
    find_own: bool = True
    """A writer looks for its request in the state before it publishes: a lost reply may have hidden its success."""
    writer_looks_back: bool = True
    """After a writer published, it checks that the parent still exists. Otherwise its slot may be a cleaned one."""
    reader_looks_back: bool = True
    """After a server found no newer record, it checks that its own exists. Otherwise newer ones may be deleted."""
    by_content: bool = True
    """These checks compare the content: a slow writer may have put another record into a cleaned slot."""
    passed_again: bool = True
    """A reader checks the records that it passed, here only the last: a restored backup may join two lines."""
    rising: bool = True
    """Records are deleted in rising order, so where a record still exists, no newer one was deleted."""
    last_but_one: bool = True
    """Only records below the last checkpoint but one are deleted: the newest checkpoint may be damaged later."""
    from_record_1: bool = True
    """Record 1 is deleted too. Otherwise a server at record 1 never learns that the next ones are deleted."""
    exclusive_format: bool = True
    """A creation counts once `format` was created exclusively, after record 1: in a cleaned log that slot is free."""
    synced_repeat: bool = True
    """A writer that finds its request in the log syncs the log before it answers: the record may not be durable."""
    outlives_repeats: bool = True
    """Records are kept for an hour, longer than a store repeats a creation. Otherwise a deleted one may come back."""
    cold_after_loss: bool = True
    """A server that lost the connection to its store opens it cold: the store may have lost power, and records."""


@dataclass(frozen=True)
class Scene:
    """The actors of a scene, and the number of times that each failure may happen."""

    slots: int
    """The highest number of the log."""
    writers: tuple[tuple[int, ...], ...] = ()
    """The requests of each slow writer; the same one twice is a retry. Writer 0 reaches the store over a link."""
    fast: int = 0
    """The number of changes of the fast server."""
    readers: int = 0
    reads: int = 1
    """The number of requests of each reader."""
    cleanings: int = 0
    quick_cleaner: bool = False
    """A checkpoint and all deletions are one step."""
    is_cold: bool = False
    """The servers have not opened the repository yet."""
    has_creator: bool = False
    lost_replies: bool = False
    late_creations: bool = False
    old_listings: bool = False
    crashes: int = 0
    repeated_creations: int = 0
    """The number of creations that the store itself may repeat at any later time."""
    power_losses: int = 0
    damages: int = 0
    """The number of times that the newest checkpoint may be damaged."""
    backup: Literal["", "whole", "over"] = ""
    """The way in which a backup is restored: as the whole folder, or copied over the living one."""


@dataclass(frozen=True, eq=False)
class Record:
    """A record; equal ones are one object. `line`: the requests of all records up to this one."""

    slot: int
    parent: Record | None
    line: tuple[int, ...]
    serial: int

    def age(self) -> tuple[int, int]:
        """Return the sort key of checkpoints; of two with one number the later record is newer."""
        return self.slot, self.serial


class Head(NamedTuple):
    """The state that a cold reader sees; None: the log is unreadable. `is_stuck`: the next record does not fit."""

    record: Record | None
    is_stuck: bool = False

    @property
    def healthy(self) -> Record | None:
        """The record, if a change can follow it."""
        return None if self.is_stuck else self.record


Phase: TypeAlias = Literal[
    "idle", "list", "first", "ahead", "misfit", "back", "judge", "sync", "confirm", "repeat", "measure",
    "delete",
]  # fmt: skip


class Server(NamedTuple):
    """A writer, a reader or the cleaner."""

    todo: tuple[int, ...]
    """The remaining requests; the first is in progress. Reads and cleanings are requests, too, with only a number."""
    at: Phase = "idle"
    state: Record | None = None
    """The record whose state the server has; None: it opens cold."""
    base: Record | None = None
    """The record after which it looks for newer ones, or on which it publishes."""
    slot: int = 0
    """The next slot to look at, to publish, or to delete."""
    floor: int = 0
    """The cleaner's limit: records below it are deleted."""
    acknowledged: frozenset[int] = frozenset()
    """The reader's requirement: the requests that were acknowledged when it asked."""

    def cold(self) -> Server:
        """Forget the state, and open the repository."""
        return Server(self.todo, "list", acknowledged=self.acknowledged)

    def looking(self, base: Record) -> Server:
        """Look for newer records after `base`."""
        return self._replace(at="ahead", state=base, base=base, slot=base.slot + 1)

    def done(self) -> Server:
        """Finish the request. Without a further request the server needs no state."""
        return Server(self.todo[1:], state=self.state if self.todo[1:] else None)


class Left(NamedTuple):
    """The numbers of failures that may still happen."""

    crashes: int
    power_losses: int
    damages: int
    restores: int
    repeated_creations: int


Slots: TypeAlias = tuple[Record | None, ...]
Checkpoints: TypeAlias = frozenset[Record]


class World(NamedTuple):
    """A state of the model."""

    slots: Slots
    synced: Slots
    """The slots that a loss of power leaves; empty if no power will be lost."""
    late: frozenset[Record]
    """Creations that the store will carry out at some later time."""
    checkpoints: Checkpoints
    writers: tuple[Server, ...]
    readers: tuple[Server, ...]
    cleaner: Server
    fast: tuple[int, ...]
    """The requests of the fast server."""
    acknowledged: frozenset[int]
    left: Left
    backup: tuple[Slots, Checkpoints] | None = None

    def publish(self, record: Record) -> World:
        """Put the record into its slot, whether free or not."""
        return self._replace(slots=put(self.slots, record.slot, record))

    def sync(self) -> World:
        """Sync the folder of the log."""
        return self._replace(synced=self.slots) if self.left.power_losses else self

    def acknowledge(self, request: int) -> World:
        """Note that a request was answered as carried out."""
        return self._replace(acknowledged=self.acknowledged | {request})

    def reduce(self, **left: int) -> World:
        """Set the numbers of failures that are left."""
        return self._replace(left=self.left._replace(**left))


Step: TypeAlias = tuple[str, World | Violation]
Move: TypeAlias = tuple[str, Server, World]
"""A step of a server: its name, the server after it, and the rest of the world."""

Item = TypeVar("Item")


def put(items: tuple[Item, ...], index: int, item: Item) -> tuple[Item, ...]:
    """Return the items with another one at an index."""
    return (*items[:index], item, *items[index + 1 :])


def log_model(scene: Scene, rules: Rules | None = None) -> Model[World]:
    """Return the model of a scene."""
    log = _Log(scene, rules or Rules())
    return Model(log.first(), log.steps, log.check)


def cold_head(world: World) -> Head:
    """Return the head for a reader that opens the repository cold while no other server acts."""
    return _cold_head(world.slots, world.checkpoints)


@lru_cache(maxsize=10_000)
def _cold_head(slots: Slots, checkpoints: Checkpoints) -> Head:
    head = _cold_start(slots, checkpoints)
    if head is None:
        return Head(None)
    for record in slots[head.slot + 1 :]:
        if record is None:
            break
        if record.parent is not head:
            return Head(head, is_stuck=True)
        head = record
    return Head(head)


def _cold_start(slots: Slots, checkpoints: Checkpoints) -> Record | None:
    for record in sorted(checkpoints, key=Record.age, reverse=True):
        if slots[record.slot] is record:
            return record
    return None if checkpoints else _first_record(slots)


def _first_record(slots: Slots) -> Record | None:
    record = slots[1]
    return record if record is not None and record.parent is None else None


def newest(checkpoints: Checkpoints) -> Record | None:
    """Return the newest checkpoint."""
    return max(checkpoints, key=Record.age, default=None)


class _Log:
    """The steps of one scene under some rules."""

    def __init__(self, scene: Scene, rules: Rules) -> None:
        self.scene, self.rules = scene, rules
        # Where a backup is put back while they run, writers read their own record again before they answer. Servers do
        # not: an answer that is on its way meanwhile is lost under any rules, and here would hide other violations.
        self.own_again = bool(scene.backup)
        self._records: dict[tuple[int, int | None, Record | None, str], Record] = {}
        self._writer: dict[Phase, Callable[[World, Server, str], Iterable[Move]]] = {
            "idle": self._begin_request,
            "back": self._writer_looks_back,
            "judge": self._judge,
            "sync": self._sync_own,
            "confirm": self._confirm,
            "repeat": self._answer_repeat,
        }

    def record(self, slot: int, request: int | None, parent: Record | None, writer: str) -> Record:
        """Return the record with this content."""
        key = slot, request, parent, writer
        if key not in self._records:
            line = (() if parent is None else parent.line) + (() if request is None else (request,))
            self._records[key] = Record(slot, parent, line, len(self._records))
        return self._records[key]

    def first(self) -> World:
        """Return a world whose log has record 1."""
        scene = self.scene
        first = self.record(1, None, None, "creator")
        slots = (None, first, *[None] * (scene.slots - 1))
        known = None if scene.is_cold else first
        left = Left(
            scene.crashes, scene.power_losses, scene.damages, 1 if scene.backup else 0, scene.repeated_creations
        )
        return World(
            slots=slots,
            synced=slots if scene.power_losses else (),
            late=frozenset(),
            checkpoints=frozenset(),
            writers=tuple(Server(requests, state=known) for requests in scene.writers),
            readers=tuple(Server(tuple(range(scene.reads)), state=known) for _ in range(scene.readers)),
            cleaner=Server(tuple(range(scene.cleanings))),
            fast=tuple(range(FIRST_FAST_REQUEST, FIRST_FAST_REQUEST + scene.fast)),
            acknowledged=frozenset(),
            left=left,
        )

    # -- what must hold

    def check(self, world: World) -> Violation | None:
        """Return the violation in a state, if any. While a backup is restored, the log may be unreadable or stuck."""
        head, is_stuck = cold_head(world)
        if head is None:
            return None if self.scene.backup else Violation(UNREADABLE, "the records at the checkpoints are gone")
        if is_stuck and not self.scene.backup:
            return Violation(STUCK, f"a record after {head.line} does not fit")
        if len(set(head.line)) != len(head.line):
            return Violation(TWICE, f"{head.line}")
        if not world.acknowledged.issubset(head.line):
            return Violation(LOST, f"acknowledged: {sorted(world.acknowledged)}; in the log: {head.line}")
        return None

    def _check_answer(self, world: World, server: Server) -> Violation | None:
        """Return the violation in the answer of a reader, if any."""
        assert server.state is not None
        shown, head = server.state.line, cold_head(world).healthy
        missing = (server.acknowledged & world.acknowledged).difference(shown)
        if missing:
            return Violation(STALE, f"shown: {shown}; acknowledged before: {sorted(missing)}")
        one_line = not (self.scene.backup or self.scene.power_losses)
        if one_line and head is not None and head.line[: len(shown)] != shown:
            return Violation(OTHER_LINE, f"shown: {shown}; in the log: {head.line}")
        return None

    # -- who does what

    def steps(self, world: World) -> Iterator[Step]:
        """Yield every possible next step."""
        if world.late:
            yield from self._late_creations(world)
        for index, server in enumerate(world.writers):
            if server.todo:
                yield from self._writer_steps(world, index)
        if world.fast:
            yield from self._fast_server(world)
        if self.scene.has_creator:
            yield from self._creator(world)
        for index, server in enumerate(world.readers):
            if server.todo:
                yield from self._reader_steps(world, index)
        if world.cleaner.todo:
            yield from self._quick_cleaner(world) if self.scene.quick_cleaner else self._cleaner_steps(world)
        if world.left.damages:
            yield from self._damage(world)
        if world.left.power_losses:
            yield from self._power_loss(world)
        if world.left.restores:
            yield from self._backup(world)

    def _is_there(self, world: World, record: Record) -> bool:
        found = world.slots[record.slot]
        return found is record if self.rules.by_content else found is not None

    def _read(self, world: World, server: Server) -> Iterator[tuple[str, Server]]:
        """Yield a step of a cold open or of a look ahead, the same for writers, readers and the cleaner."""
        if server.at == "list":
            listed = {newest(world.checkpoints)}
            if self.scene.old_listings and server is not world.cleaner:
                listed |= {None, *world.checkpoints}
            for checkpoint in sorted(listed, key=lambda each: (0, 0) if each is None else each.age()):
                yield (
                    ("lists no checkpoint", server._replace(at="first"))
                    if checkpoint is None
                    else (f"lists checkpoint {checkpoint.slot}", server.looking(checkpoint))
                )
        elif server.at == "first":
            first = _first_record(world.slots)
            yield "reads record 1", server.cold() if first is None else server.looking(first)
        elif server.at == "ahead":
            yield f"looks for {server.slot}", self._look_ahead(world, server)
        elif server.at == "misfit":
            assert server.base is not None
            if not self._is_there(world, server.base):
                yield "looks back: gone", server.cold()

    def _look_ahead(self, world: World, server: Server) -> Server:
        record = world.slots[server.slot] if server.slot < len(world.slots) else None
        if record is None:
            return server._replace(at="back")
        if record.parent is server.state:
            return server._replace(state=record, slot=server.slot + 1)
        return server._replace(at="misfit")

    # -- writers

    def _writer_steps(self, world: World, index: int) -> Iterator[Step]:
        server, name = world.writers[index], f"W{index}"
        if world.left.crashes and server.at != "idle":
            crashed = world.reduce(crashes=world.left.crashes - 1)
            yield f"{name} crashes", crashed._replace(writers=put(world.writers, index, Server(server.todo)))
        act = self._writer.get(server.at)
        moves = act(world, server, name) if act else ((step, read, world) for step, read in self._read(world, server))
        for step, moved, after in moves:
            yield f"{name} {step}", after._replace(writers=put(world.writers, index, moved))

    def _begin_request(self, world: World, server: Server, name: str) -> Iterator[Move]:
        """Begin a request. The beginning is no step of its own, as no other actor notices it."""
        begun = server.cold() if server.state is None else server.looking(server.state)
        yield from ((f"begins {server.todo[0]}, {step}", read, world) for step, read in self._read(world, begun))

    def _writer_looks_back(self, world: World, server: Server, name: str) -> Iterator[Move]:
        assert server.base is not None
        if self._is_there(world, server.base) or not self.rules.reader_looks_back:
            yield f"looks back at {server.base.slot}", server._replace(at="judge", base=server.state), world
        else:
            yield f"looks back at {server.base.slot}: gone", server.cold(), world

    def _judge(self, world: World, server: Server, name: str) -> Iterator[Move]:
        """Judge the request on the state, and publish it in the next slot."""
        request = server.todo[0]
        assert server.state is not None
        if self.rules.find_own and request in server.state.line:
            found = Server(server.todo, "repeat", server.state)
            if self.rules.synced_repeat:
                yield f"finds {request}, syncs", found, world.sync()
            else:
                yield from self._answer_repeat(world, found, name)
        elif server.slot <= self.scene.slots:
            yield from self._publish(world, server, self.record(server.slot, request, server.state, name))

    def _publish(self, world: World, server: Server, record: Record) -> Iterator[Move]:
        what = f"{record.slot} = {server.todo[0]}"
        unclear, late = server._replace(at="ahead"), world._replace(late=world.late | {record})
        if world.slots[record.slot] and self.rules.exclusive:
            yield f"finds {record.slot} taken", server._replace(at="ahead"), world
        else:
            published = server._replace(at="sync", state=record)
            yield f"publishes {what}", published, world.publish(record)
            if repeats := world.left.repeated_creations:
                repeated = late.publish(record).reduce(repeated_creations=repeats - 1)
                yield f"publishes {what}, which the store will repeat", published, repeated
            if self.scene.lost_replies:
                yield f"publishes {what}, reply lost", unclear, world.publish(record)
                yield f"publishes {what}, request lost", unclear, world
        if self.scene.late_creations:
            yield f"publishes {what}, which is late", unclear, late

    def _sync_own(self, world: World, server: Server, name: str) -> Iterator[Move]:
        yield "syncs", server._replace(at="confirm"), world.sync()

    def _confirm(self, world: World, server: Server, name: str) -> Iterator[Move]:
        """Look back after publishing, and answer."""
        assert server.base is not None
        assert server.state is not None
        stands = self._is_there(world, server.base) or not self.rules.writer_looks_back
        if stands and (world.slots[server.slot] is server.state or not self.own_again):
            request = server.todo[0]
            yield f"looks back at {server.base.slot}, answers {request}", server.done(), world.acknowledge(request)
        else:
            yield f"looks back at {server.base.slot}: gone", server.cold(), world

    def _answer_repeat(self, world: World, server: Server, name: str) -> Iterator[Move]:
        """Answer from a record that exists already."""
        assert server.state is not None
        if self.own_again and world.slots[server.state.slot] is not server.state:
            yield "looks back: gone", server.cold(), world
        else:
            yield f"answers {server.todo[0]} from the log", server.done(), world.acknowledge(server.todo[0])

    def _fast_server(self, world: World) -> Iterator[Step]:
        """Make a whole change in one step."""
        head = cold_head(world).healthy
        if head is not None and head.slot < self.scene.slots:
            request, *rest = world.fast
            published = world.publish(self.record(head.slot + 1, request, head, "fast")).sync()
            after = published.acknowledge(request)._replace(fast=tuple(rest))
            yield f"fast server publishes and answers {head.slot + 1} = {request}", after

    def _creator(self, world: World) -> Iterator[Step]:
        """Publish record 1 as a creator that saw no repository. Once `format` exists, the creator gives up."""
        if world.slots[1] is None and CREATOR_REQUEST not in world.acknowledged:
            published = world.publish(self.record(1, CREATOR_REQUEST, None, "creator 2"))
            yield (
                "creator publishes 1",
                published if self.rules.exclusive_format else published.acknowledge(CREATOR_REQUEST),
            )

    # -- readers

    def _reader_steps(self, world: World, index: int) -> Iterator[Step]:
        server = world.readers[index]
        for step, moved in self._reader(world, server):
            if isinstance(moved, Violation):
                yield f"R{index} {step}", moved
            else:
                yield f"R{index} {step}", world._replace(readers=put(world.readers, index, moved))

    def _reader(self, world: World, server: Server) -> Iterator[tuple[str, Server | Violation]]:
        if server.at == "idle":
            asked = server._replace(acknowledged=world.acknowledged)
            yield "asks", asked.cold() if server.state is None else asked.looking(server.state)
        elif server.at == "back":
            if not self._reader_may_answer(world, server):
                yield "looks back: gone", server.cold()
            else:
                yield "looks back and answers", self._check_answer(world, server) or server.done()
        else:
            yield from self._read(world, server)

    def _reader_may_answer(self, world: World, server: Server) -> bool:
        """Tell whether the reader's base, and the last record that it passed after that, still exist."""
        base, head = server.base, server.state
        assert base is not None
        assert head is not None
        if not self.rules.reader_looks_back:
            return True
        passed = head.parent if head is not base and self.rules.passed_again else None
        return self._is_there(world, base) and (passed is None or self._is_there(world, passed))

    # -- the cleaner

    def _cleaner_steps(self, world: World) -> Iterator[Step]:
        for step, moved, after in self._cleaner(world, world.cleaner):
            yield f"cleaner {step}", after._replace(cleaner=moved)

    def _cleaner(self, world: World, server: Server) -> Iterator[Move]:
        if server.at == "idle":
            yield "opens cold", server.cold(), world
        elif server.at == "back":
            yield self._checkpoint(world, server)
        elif server.at == "measure":
            if not self._is_young(world):
                floor = self._floor(world.checkpoints)
                deletes = Server(server.todo, "delete", slot=self._lowest(), floor=floor)
                yield f"will delete below {floor}", deletes, world
        elif server.at == "delete":
            yield from self._delete(world, server)
        elif server.at == "first" and _first_record(world.slots) is None:
            yield "reads record 1: gone", Server(server.todo[1:]), world
        else:
            yield from ((step, read, world) for step, read in self._read(world, server))

    def _checkpoint(self, world: World, server: Server) -> Move:
        assert server.base is not None
        assert server.state is not None
        if not self._is_there(world, server.base):
            return "looks back: gone", Server(server.todo[1:]), world
        written = world._replace(checkpoints=world.checkpoints | {server.state}).sync()
        return f"writes checkpoint {server.state.slot}", Server(server.todo, "measure"), written

    def _floor(self, checkpoints: Checkpoints) -> int:
        """Return the number below which records may be deleted."""
        slots = sorted(record.slot for record in checkpoints)
        kept = 2 if self.rules.last_but_one else 1
        return slots[-kept] if len(slots) >= kept else 0

    def _is_young(self, world: World) -> bool:
        """Tell whether the store may still repeat the creation of a record, because no hour has passed."""
        return bool(world.late) and self.rules.outlives_repeats

    def _lowest(self) -> int:
        return 1 if self.rules.from_record_1 else 2

    def _delete(self, world: World, server: Server) -> Iterator[Move]:
        """Delete one record. The deletions are synced together, at the end."""
        first = server.slot if self.rules.rising else self._lowest()
        there = [slot for slot in range(first, server.floor) if world.slots[slot]]
        for slot in there[:1] if self.rules.rising else there:
            following = slot + 1 if self.rules.rising else server.slot
            deleted = world._replace(slots=put(world.slots, slot, None))
            yield f"deletes {slot}", server._replace(slot=following), deleted
        if not there:
            yield "is done", Server(server.todo[1:]), world.sync()

    def _quick_cleaner(self, world: World) -> Iterator[Step]:
        """Make a checkpoint and all deletions in one step; the deletions are not synced."""
        head, rounds = cold_head(world).healthy, world.cleaner.todo
        if head is not None and head not in world.checkpoints and not self._is_young(world):
            written = world._replace(checkpoints=world.checkpoints | {head}, cleaner=Server(rounds[1:])).sync()
            floor = self._floor(written.checkpoints)
            kept = (None if self._lowest() <= slot < floor else each for slot, each in enumerate(world.slots))
            yield f"cleaner writes checkpoint {head.slot}, deletes below {floor}", written._replace(slots=tuple(kept))

    # -- the environment

    def _late_creations(self, world: World) -> Iterator[Step]:
        for record in sorted(world.late, key=Record.age):
            after = world._replace(late=world.late - {record})
            if world.slots[record.slot] is None:
                yield f"late creation of {record.slot} = {record.line[-1]}", after.publish(record)
            else:
                yield f"late creation of {record.slot} is refused", after

    def _damage(self, world: World) -> Iterator[Step]:
        checkpoint = newest(world.checkpoints)
        if checkpoint is not None:
            after = world._replace(checkpoints=world.checkpoints - {checkpoint})
            yield f"checkpoint {checkpoint.slot} is damaged", after.reduce(damages=world.left.damages - 1)

    def _power_loss(self, world: World) -> Iterator[Step]:
        """Lose the store's power: each slot is as seen or as synced. Servers on the store's machine stop."""
        slots, rounds = world.slots, world.cleaner
        unsynced = [slot for slot, record in enumerate(slots) if record is not world.synced[slot]]
        stopped = world._replace(
            writers=tuple(self._after_power_loss(index, server) for index, server in enumerate(world.writers)),
            readers=tuple(Server(each.todo) if self.rules.cold_after_loss else each for each in world.readers),
            cleaner=Server(rounds.todo if rounds.at == "idle" else rounds.todo[1:]),
        ).reduce(power_losses=world.left.power_losses - 1)
        for chosen in product((False, True), repeat=len(unsynced)):
            lost = list(compress(unsynced, chosen))
            kept = tuple(world.synced[slot] if slot in lost else record for slot, record in enumerate(slots))
            yield f"power is lost, {lost} are as synced", stopped._replace(slots=kept, synced=()).sync()

    def _after_power_loss(self, index: int, server: Server) -> Server:
        """Return a server after a loss of power. Writer 0, on another machine, only reconnects; others restart."""
        if index or server.at == "idle":
            return server if index == 0 and not self.rules.cold_after_loss else Server(server.todo)
        return server.cold() if self.rules.cold_after_loss else server

    def _backup(self, world: World) -> Iterator[Step]:
        if world.backup is None:
            yield "backup", world._replace(backup=(world.slots, world.checkpoints))
        else:
            yield self._restore(world, *world.backup)

    def _restore(self, world: World, slots: Slots, checkpoints: Checkpoints) -> Step:
        """Restore a backup. Changes after it are lost, unless it is copied over the living folder."""
        if self.scene.backup == "over":
            slots = tuple(old or new for old, new in zip(slots, world.slots, strict=True))
            checkpoints |= world.checkpoints
        restored = world._replace(slots=slots, checkpoints=checkpoints, backup=None).reduce(restores=0)
        head = cold_head(restored).healthy
        kept = world.acknowledged.intersection(() if head is None else head.line)
        if self.scene.backup == "over" and kept != world.acknowledged:
            return "backup is copied over", Violation(LOST, f"{sorted(world.acknowledged - kept)}")
        return "backup is put back", restored._replace(acknowledged=kept)
