"""A `RepositoryView` that says what it was charged for."""

from __future__ import annotations

from smartserver.store.allowance import Allowance


class Charged:
    """The base of a `RepositoryView` of records in memory: charges an allowance for what a system tells it."""

    def __init__(self) -> None:
        self.allowance = Allowance()

    def charge(self, steps: int, size: int = 0) -> None:
        """Charge, as the store does."""
        self.allowance.charge(steps)
        self.allowance.decode(size)
