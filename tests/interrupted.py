"""A store in whose calls something else happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from builders import Stepwise

from transports.base import Transport


class Interrupted(Stepwise):
    """A store with something else that happens once, before the first call that `when` picks."""

    def __init__(self, inner: Transport, when: Callable[[str, str], bool], act: Callable[[], object]) -> None:
        """`when`: it is given the name of a call, and its path."""
        super().__init__(inner)
        self._when = when
        self.acts = [act]
        """Empty once that happened; shared with the children."""

    def before(self, call: str, path: str) -> None:
        if self.acts and self._when(call, path):
            self.acts.pop()()


def call_number(at: int) -> Callable[[str, str], bool]:
    """Pick the call of this number."""
    calls = itertools.count(1)
    return lambda call, path: next(calls) == at
