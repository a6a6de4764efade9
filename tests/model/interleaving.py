"""Every interleaving of several actors that use one store, call by call.

An actor runs in a thread of its own and stops before each call of the store; only one runs at a time. A list of
choices, which actor continues at each stop, determines a run. `explore` makes one run after the other until every list
was tried; actors and store begin empty each time. A run ends early if store and actors are as they were in an earlier
one: an actor's next step depends only on the answers that it got.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from transports.base import Step, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import TransportError, TransportFailed
from transports.steps import Query, SyncDirectory

PATIENCE = 60.0
"""Seconds after which an actor counts as hanging."""


Body = Callable[["Actor"], None]


class _Worker:
    """A thread that runs bodies, one after the other. To start a thread for each run would take a third of the time."""

    free: ClassVar[list[_Worker]] = []

    def __init__(self) -> None:
        # Locks that one thread acquires and the other releases: semaphores take three times as long.
        self.go, self.stopped = threading.Lock(), threading.Lock()
        self.go.acquire()
        self.stopped.acquire()
        self.body: Callable[[], None] = lambda: None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            self.body()
            self.stopped.release()


class Actor:
    """A thread that continues when told, up to its next call of the store."""

    def __init__(self, name: str, body: Body, trace: list[str]) -> None:
        self.name = name
        self.trace = trace
        self.ended = False
        self.answers: list[object] = []
        """The store's answers to it, and anything else that its next step depends on."""
        self.error: BaseException | None = None
        self._body = body
        self._worker = _Worker.free.pop() if _Worker.free else _Worker()
        self._worker.body = self._run
        self.is_quiet = False
        """True if its next call changes no answer to another actor: it reads, or syncs."""
        self._leave = False
        self._passes = 0

    def go_on(self, calls: int = 1) -> None:
        """Make `calls` calls, and continue to the next; at first continue to the first call."""
        self._passes = calls - 1
        self._worker.go.release()
        if not self._worker.stopped.acquire(timeout=PATIENCE):
            raise AssertionError(f"{self.name} hangs")

    def end(self) -> None:
        """Stop the actor at any point."""
        if not self.ended:
            self._leave = True
            self.go_on()
        _Worker.free.append(self._worker)

    def __call__(self, what: str, is_quiet: bool = False) -> None:
        """In the actor's own thread: wait until it is told to continue with the call that `what` describes."""
        self.is_quiet = is_quiet
        if self._passes:
            self._passes -= 1
        else:
            self._worker.stopped.release()
            self._worker.go.acquire()
        if self._leave:
            raise _Ended
        self.trace.append(f"{self.name}: {what}")

    def _run(self) -> None:
        try:
            if not self._leave:
                self._body(self)
        except _Ended:
            pass
        except BaseException as wrong:  # Told by `explore`.
            self.error = wrong
        self.ended = True


class _Ended(BaseException):
    """Raised in an actor's thread when the run is over."""


class SteppingTransport(PassingTransport):
    """Stops its actor before each step that other actors may notice, or whose answer depends on them.

    After the store was replaced, as by a loss of power, the next step finds that the connection was lost.
    """

    def __init__(self, actor: Actor, store: Callable[[], Transport], alone: Callable[[Step], bool]) -> None:
        """`alone`: tells whether a step can be made without a stop."""
        super().__init__(store())
        self.stops = False
        self._actor = actor
        self._store = store
        self._alone = alone

    def perform(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if self.stops and not self._alone(step):
                is_quiet = isinstance(step, Query | SyncDirectory)
                self._actor(f"{type(step).__name__} {' '.join(step.paths)}", is_quiet)
            try:
                self.do(step)
            except TransportError as wrong:
                self._actor.answers.append(str(wrong))
                raise
            self._actor.answers.append(step.result if isinstance(step, Query) else "done")

    def do(self, step: Step) -> None:
        """Perform one step."""
        before, self.inner = self.inner, self._store()
        if before is not self.inner:
            raise TransportFailed("", "the connection was lost")
        self.inner.perform([step])


@dataclass
class Run:
    """A run: its actors, and the condition to check after each call."""

    actors: Mapping[str, Body]
    """By name: the body of each actor. It calls its actor to stop; between two stops it runs at once."""
    check: Callable[[], None]
    """Raises AssertionError if the condition does not hold."""
    store: Callable[[], object]
    """Returns the content of the store, to be compared."""
    trace: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Explored:
    """The result of an exploration."""

    runs: int
    violation: str = ""
    trace: tuple[str, ...] = ()


def explore(begin: Callable[[], Run], most: int = 1_000_000) -> Explored:
    """Try all lists of choices in turn, until none is left, `most` runs were made, or a check fails."""
    stops: list[_Stop] = []
    seen: set[int] = set()
    sound: set[int] = set()
    for runs in range(1, most + 1):
        run = begin()
        if violation := _one(run, stops, seen, sound):
            return Explored(runs, violation, tuple(run.trace))
        # The last choice that may be another is.
        while stops and stops[-1].choice + 1 == len(stops[-1].able):
            stops.pop()
        if not stops:
            return Explored(runs)
        stops[-1].choice += 1
    return Explored(most)


@dataclass
class _Stop:
    """A stop of a run, at which one actor is chosen to continue."""

    able: Sequence[int]
    """The actors that can continue."""
    quiet: Sequence[bool]
    """By actor: its `is_quiet` at this stop."""
    choice: int = 0

    @property
    def goes_on(self) -> int:
        return self.able[self.choice]

    def has_seen(self, actor: int) -> bool:
        """Tell whether an earlier run made these two steps in the other order; it does not matter if both are quiet."""
        return actor in self.able[: self.choice] and self.quiet[actor] and self.quiet[self.goes_on]


def _one(run: Run, stops: list[_Stop], seen: set[int], sound: set[int]) -> str:
    """Make a run that follows `stops`, and append the stops after these. Return the violation, or an empty text.
    `seen`: hashes of earlier states of store and actors; `sound`: hashes of checked stores."""
    actors = [Actor(name, body, run.trace) for name, body in run.actors.items()]
    try:
        for actor in actors:
            actor.go_on()
            if actor.error is not None:
                raise actor.error
        # As in the run before, up to the last choice: nobody has to look.
        for index, same in itertools.groupby(stop.goes_on for stop in stops[:-1]):
            actors[index].go_on(len(list(same)))
        chosen = bool(stops)
        while able := [index for index, actor in enumerate(actors) if not actor.ended]:
            if not chosen:
                here = hash((run.store(), *(repr(actor.answers) for actor in actors)))
                if here in seen:
                    return ""
                seen.add(here)
                if stops:
                    able = [index for index in able if not stops[-1].has_seen(index)]
                if not able:
                    return ""
                stops.append(_Stop(able, [actor.is_quiet for actor in actors]))
            chosen = False
            actor = actors[stops[-1].goes_on]
            actor.go_on()
            if actor.error is not None:
                return f"{actor.name}: {actor.error!r}"
            if (there := hash(run.store())) not in sound:
                try:
                    run.check()
                except AssertionError as wrong:
                    return str(wrong)
                sound.add(there)
        return ""
    finally:
        for actor in actors:
            actor.end()
