"""A store behind a link that records its trips: each `perform` is one, and so is each single call."""

from __future__ import annotations

from collections.abc import Sequence

from builders import Stepwise

from transports.base import Capability, ReadFile, Step, Transport, WriteFile


class Trips(Stepwise):
    """Records the trips; `log` has a line for each."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.capabilities = Capability.ROUND_TRIPS
        self.log: list[str] = []
        """The request of each trip; shared with the children."""

    def wrap(self, inner: Transport, prefix: str) -> Trips:
        made = Trips(inner)
        made.prefix, made.log = prefix, self.log
        return made

    def before(self, call: str, path: str) -> None:
        self.log.append(f"{call} {path}")

    def perform(self, steps: Sequence[Step]) -> None:
        if steps:
            self.log.append(", ".join(f"{type(step).__name__} {self.full(step.path)}" for step in steps))
        self.inner.perform(steps)

    def open_read(self, path: str) -> ReadFile:
        raise AssertionError(f"{path} is opened, and not asked for with others")

    def create(self, path: str) -> WriteFile:
        self.log.append(f"create {self.full(path)}")  # What is written, synced and closed goes with it.
        return self.inner.create(path)
