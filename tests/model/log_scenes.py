"""Actors at one log that run the real code: writers, readers, another server, a cleaner, a loss of power."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from functools import partial

from interleaving import Actor, Body, Run, SteppingTransport
from log_builders import begin_log, contents, judge, record_of
from memory_transport import Aftermath, MemoryTransport

from smartserver.errors import CorruptFile, OutcomeUnknown
from smartserver.store import checkpoint
from smartserver.store.format import CHECKPOINTS, INCOMING, LOG
from smartserver.store.log import Log
from smartserver.store.log_view import Head
from smartserver.store.record import hash_of, record_path
from smartserver.store.state import first_state
from transports.base import Step, Transport
from transports.errors import TransportFailed
from transports.steps import Publish, SyncDirectory


def alone(step: Step) -> bool:
    """Tell whether no actor notices a step. Without a loss of power, a sync changes nothing."""
    return isinstance(step, SyncDirectory) or (step.path.startswith(INCOMING) and not isinstance(step, Publish))


class Fate(enum.Enum):
    """The outcome of a publication whose reply is lost."""

    DONE = "done"
    UNDONE = "undone"


class LosingTransport(SteppingTransport):
    """Loses the reply to the first publication."""

    fate: Fate | None = None

    def do(self, step: Step) -> None:
        fate = self.fate if isinstance(step, Publish) else None
        if fate is not Fate.UNDONE:
            super().do(step)
        if fate is not None:
            self.fate = None
            raise TransportFailed("", "the reply was lost")


class Scene:
    """A log on a store in memory, and the requests that were acknowledged."""

    def __init__(self, alone: Callable[[Step], bool] = alone) -> None:
        """`alone`: tells whether an actor can make a step without a stop."""
        self.now = 0.0
        self.store = MemoryTransport(clock=lambda: self.now)
        self._alone = alone
        begin_log(self.store)
        self.first = first_state(hash_of(self.store.get(record_path(1))))
        self.acknowledged: set[int] = set()
        self._names = itertools.count()

    def random(self, size: int) -> bytes:
        return next(self._names).to_bytes(size, "big")

    def log(self, store: Transport | None = None) -> Log:
        """Return a new log, which has read nothing yet."""
        return Log(store or self.store, "r", self.random, lambda: 0.0)

    def warm(self, actor: Actor, fate: Fate | None = None) -> Log:
        """Return a log that has read record 1, and stops before each call from then on."""
        stepping = LosingTransport(actor, lambda: self.store, self._alone)
        log = self.log(stepping)
        log.look()
        stepping.stops, stepping.fate = True, fate
        return log

    # -- actors

    def writer(self, *numbers: int, by: int = 0, fate: Fate | None = None) -> Body:
        """Return a body that carries out requests in turn; `fate`: of the first publication, if its reply is lost."""

        def body(actor: Actor) -> None:
            log = self.warm(actor, fate)
            for number in numbers:
                try:
                    log.append(log.look(), partial(judge, number, by=by))
                except (OutcomeUnknown, TransportFailed):
                    continue
                self.acknowledged.add(number)

        return body

    def reader(self, looks: int) -> Body:
        """Return a body that reads, and must see the changes acknowledged before, unless the store cannot be read."""

        def body(actor: Actor) -> None:
            log = self.warm(actor)
            for _ in range(looks):
                actor("begin to look")
                before = set(self.acknowledged)
                actor.answers.append(sorted(before))
                try:
                    seen = contents(log.look().state)
                except TransportFailed:
                    continue
                assert before <= set(seen), f"stale: it shows {seen} though {sorted(before)} were acknowledged before"

        return body

    def world(self, *what: int | str) -> Body:
        """Return a body that does each of `what` at once: another server's request, or the method of this name."""

        def body(actor: Actor) -> None:
            for each in what:
                actor(f"{each}")
                self.do(each)

        return body

    def do(self, what: int | str) -> None:
        """Carry out a request of another server, or call a method by name."""
        if isinstance(what, str):
            getattr(self, what)()
            return
        log = self.log()
        log.append(log.look(), lambda state: record_of(what, state))
        self.acknowledged.add(what)

    def cleaner(self, *what: int | str) -> Body:
        """Return a body that first does `what`, then cleans the log call by call."""

        def body(actor: Actor) -> None:
            actor(f"{what}")
            for each in what:
                self.do(each)
            stepping = SteppingTransport(actor, lambda: self.store, self._alone)
            stepping.stops = True
            self.clean(stepping)

        return body

    def clean(self, store: Transport | None = None) -> None:
        """Make a checkpoint and clean, hours after the last time."""
        self.now += 2 * checkpoint.FLOOR_AGE
        checkpoint.make_checkpoint(self.store, self.log().look().state, self.random)
        checkpoint.clean_log(store or self.store, self.random)

    def zombie(self) -> None:
        """Publish as a writer that was frozen after record 1, if record 2 does not exist."""
        path = record_path(2)
        if not self.store.exists(path):
            self.store.put(path, [record_of(99, self.first)[0]])
            self.store.sync_directory(LOG)

    def rot(self) -> None:
        """Damage the newest checkpoint."""
        path = f"{CHECKPOINTS}/{self.store.list_directory(CHECKPOINTS)[-1]}"
        content = self.store.get(path)
        self.store.delete(path)
        self.store.put(path, [content[:-1]])

    def lose_power(self) -> None:
        """Lose the store's power, and with it everything that was not synced."""
        self.store = self.store.crash(Aftermath.DURABLE_ONLY)

    # -- what holds

    def truth(self) -> Head:
        """Return the head that an undisturbed reader sees now."""
        return self.log().look()

    def check(self) -> None:
        """Check that each acknowledged request is in the log once, and that the head reports no damage."""
        try:
            head = self.truth()
        except (CorruptFile, TransportFailed) as wrong:
            raise AssertionError(f"it cannot be opened: {wrong}") from wrong
        found = contents(head.state)
        assert len(set(found)) == len(found), f"done twice: {found}"
        assert self.acknowledged <= set(found), f"lost: {sorted(self.acknowledged)} acknowledged, {found} there"
        assert not head.damage, f"everybody stops: {head.damage}"

    def run(self, **actors: Body) -> Run:
        return Run(actors, self.check, self.content)

    def content(self) -> object:
        """Return the readable files, now and after a loss of power, and the acknowledged requests."""
        files = [f"{folder}/{name}" for folder in (LOG, CHECKPOINTS) for name in self.store.list_directory(folder)]
        durable = [] if self._alone is alone else sorted(self.store._disk.find_folder(LOG).durable)
        return tuple((path, self.store.get(path)) for path in files), *durable, frozenset(self.acknowledged)
