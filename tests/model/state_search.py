"""Search the states of a model: all that can be reached, in breadth, or some of the deep ones, at random."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)


class Violation(NamedTuple):
    """A promise that does not hold: which one, and how."""

    kind: str
    text: str


class Model(NamedTuple, Generic[State]):
    """A first state; the steps from a state, each with its name; what is wrong with a state.

    A step may itself be wrong.
    """

    first: State
    steps: Callable[[State], Iterable[tuple[str, State | Violation]]]
    check: Callable[[State], Violation | None]


class Result(NamedTuple):
    """The states that were found until the violation, or until the end."""

    states: int
    is_exhausted: bool
    violation: Violation | None = None
    path: tuple[str, ...] = ()
    """The steps that lead to the violation: no shorter way does."""

    @property
    def kind(self) -> str:
        """The kind of the violation; empty where there is none."""
        return "" if self.violation is None else self.violation.kind

    def __str__(self) -> str:
        lines = [f"{self.states} states, exhausted: {self.is_exhausted}, {self.violation}", *self.path]
        return "\n    ".join(lines)


def explore(model: Model[State], bound: int) -> Result:
    """Every state that can be reached, the nearest first, until there are `bound`."""
    gc.disable()  # States form no cycles, and a collection walks them all.
    try:
        return _explore(model, bound)
    finally:
        gc.enable()


def _explore(model: Model[State], bound: int) -> Result:
    origins: dict[State, tuple[State, str] | None] = {model.first: None}
    queue = deque([model.first])
    while queue:
        state = queue.popleft()
        for name, following in model.steps(state):
            if not isinstance(following, Violation):
                if following in origins:
                    continue
                violation = model.check(following)
                if violation is None:
                    origins[following] = (state, name)
                    queue.append(following)
                    if len(origins) == bound:
                        return Result(bound, False)
                    continue
                following = violation
            path = [name, *_way_back(origins, state)]
            return Result(len(origins), False, following, tuple(reversed(path)))
    return Result(len(origins), True)


def _way_back(origins: dict[State, tuple[State, str] | None], state: State) -> Iterator[str]:
    while origin := origins[state]:
        state, name = origin
        yield name


def walk(model: Model[State], steps: int, seed: int) -> Result:
    """Random walks, each until nothing more can happen; `steps` in all."""
    choice = random.Random(seed).choice
    state, path = model.first, list[str]()
    for taken in range(steps):
        options = list(model.steps(state))
        if not options:
            state, path = model.first, []
            continue
        name, following = choice(options)
        path.append(name)
        violation = following if isinstance(following, Violation) else model.check(following)
        if violation is not None:
            return Result(taken, False, violation, tuple(path))
        assert not isinstance(following, Violation)
        state = following
    return Result(steps, False)
