"""Actors at one log, as the real code has them: writers, readers, another server, a cleaner, a loss of power."""

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
    """Whether nobody notices a step: where no power is lost, a sync does nothing."""
    return isinstance(step, SyncDirectory) or (step.path.startswith(INCOMING) and not isinstance(step, Publish))


class Fate(enum.Enum):
    """What becomes of a publication whose reply is lost."""

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
    """A log on a store in memory, and what was acknowledged of it."""

    def __init__(self, alone: Callable[[Step], bool] = alone) -> None:
        """`alone`: of the steps of actors, those before which they need not stop."""
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
        """A log that was opened before anything happens."""
        return Log(store or self.store, "r", self.random, lambda: 0.0)

    def warm(self, actor: Actor, fate: Fate | None = None) -> Log:
        """A log that stands on record 1, and stops before its calls from then on."""
        stepping = LosingTransport(actor, lambda: self.store, self._alone)
        log = self.log(stepping)
        log.look()
        stepping.stops, stepping.fate = True, fate
        return log

    # -- actors

    def writer(self, *numbers: int, by: int = 0, fate: Fate | None = None) -> Body:
        """Carries out requests, one after the other; `fate`: of the first publication, if its reply is lost."""

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
        """Looks, and must see what was acknowledged before, unless the store cannot be read."""

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
        """What goes on meanwhile, each at once: another server carries out a request, or what a method is called."""

        def body(actor: Actor) -> None:
            for each in what:
                actor(f"{each}")
                self.do(each)

        return body

    def do(self, what: int | str) -> None:
        """One of the things that go on meanwhile."""
        if isinstance(what, str):
            getattr(self, what)()
            return
        log = self.log()
        log.append(log.look(), lambda state: record_of(what, state))
        self.acknowledged.add(what)

    def cleaner(self, *what: int | str) -> Body:
        """After all that has gone on, cleans the log call by call."""

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
        """A writer that was frozen after record 1 publishes now, if that place is free again."""
        path = record_path(2)
        if not self.store.exists(path):
            self.store.put(path, [record_of(99, self.first)[0]])
            self.store.sync_directory(LOG)

    def rot(self) -> None:
        """The newest checkpoint is damaged."""
        path = f"{CHECKPOINTS}/{self.store.list_directory(CHECKPOINTS)[-1]}"
        content = self.store.get(path)
        self.store.delete(path)
        self.store.put(path, [content[:-1]])

    def lose_power(self) -> None:
        """Of the store: what was not synced is gone."""
        self.store = self.store.crash(Aftermath.DURABLE_ONLY)

    # -- what holds

    def truth(self) -> Head:
        """What a reader sees who opens it now, undisturbed."""
        return self.log().look()

    def check(self) -> None:
        """All that was acknowledged is there once, and nothing above."""
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
        """What others can read, now and after a loss of power, and what was acknowledged."""
        files = [f"{folder}/{name}" for folder in (LOG, CHECKPOINTS) for name in self.store.list_directory(folder)]
        durable = [] if self._alone is alone else sorted(self.store._disk.find_folder(LOG).durable)
        return tuple((path, self.store.get(path)) for path in files), *durable, frozenset(self.acknowledged)
