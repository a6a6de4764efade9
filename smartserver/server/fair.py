"""A fair queue for the threads of one lane: addresses take turns, and so do the connections of one address.

The problem: an address that sends many requests must not delay others, and the users behind one address must not be
locked out. The rule: no job is ever refused here; it waits. An address begins a further job only while it has fewer
threads than are free (the dynamic threshold of Choudhury and Hahne's switches): alone it gets half of them, two busy
ones get a third each, and a newcomer finds a free one. The addresses that may begin a job take turns.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Tenant:
    """Identifies a connection in the fair queue. Connections of the same `address` share the threads; a connection
    without an address shares them with no other."""

    __slots__ = ("address",)

    def __init__(self, address: str = "") -> None:
        self.address = address

    @property
    def share(self) -> object:
        """A value that is equal for connections that share threads."""
        return self.address or self


class FairQueue(Generic[T]):
    """The waiting jobs, and the number of running jobs of each address. It must be used by one thread at a time."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._waiting: OrderedDict[object, OrderedDict[Tenant, deque[T]]] = OrderedDict()
        """The jobs by address, then by connection, in the order of their turns."""
        self._running: Counter[object] = Counter()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return self._count

    def put(self, client: Tenant, job: T) -> None:
        """Add a job after the other jobs of its connection."""
        self._count += 1
        self._waiting.setdefault(client.share, OrderedDict()).setdefault(client, deque()).append(job)

    def take(self) -> tuple[Tenant, T] | None:
        """Take the next job, which counts as running until `ended` is called; None if none may begin now."""
        free = self._threads - self._running.total()
        for share, clients in self._waiting.items():
            if self._running[share] < free:
                client, jobs = next(iter(clients.items()))
                job = jobs.popleft()
                clients.move_to_end(client)
                self._waiting.move_to_end(share)
                if not jobs:
                    del clients[client]
                if not clients:
                    del self._waiting[share]
                self._running[share] += 1
                self._count -= 1
                return client, job
        return None

    def ended(self, client: Tenant) -> None:
        """Record that a job of a connection has ended."""
        self._running[client.share] -= 1
        if not self._running[client.share]:
            del self._running[client.share]

    def clear(self) -> None:
        """Drop the waiting jobs."""
        self._waiting.clear()
        self._count = 0
