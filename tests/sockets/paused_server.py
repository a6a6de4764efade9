"""`smartserver serve` that stops at one chosen sync, rename or link of its store, for a test that kills it there.

    python paused_server.py ORDERS REPORTS serve ROOT ...

ORDERS and REPORTS are descriptors of pipes. An order is a number on a line: 0 lets all pass, n stops before the n-th
such call that follows, until the next order. Each line of a report is one of them, before it is made; `armed` answers
an order, `paused` follows the call that is not made yet.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Self

from smartserver.cli.main import main
from smartserver.server import site
from transports.base import Transport, WriteFile
from transports.decorators.passing import PassingTransport


class Gate:
    """Where calls are counted and one of them ends."""

    def __init__(self, orders: int, reports: int) -> None:
        self._orders = orders
        self._reports = reports
        self._guard = threading.Lock()
        self._armed = False
        self._left = 0
        self._go_on = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def passing(self, call: str) -> None:
        """Note a call; does not return before the next order when it is the one."""
        with self._guard:
            if not self._armed:
                return
            self._say(call)
            self._left -= 1
            if self._left == 0:
                self._say("paused")
                self._go_on.clear()
                self._go_on.wait()  # With the guard: no other thread gets past either.

    def _listen(self) -> None:
        with os.fdopen(self._orders) as orders:
            for line in orders:
                self._go_on.set()
                with self._guard:
                    self._armed, self._left = True, int(line)
                    self._say("armed")

    def _say(self, line: str) -> None:
        os.write(self._reports, f"{line}\n".encode())


class PausingFile(WriteFile):
    """A file whose sync passes the gate."""

    def __init__(self, inner: WriteFile, name: str, gate: Gate) -> None:
        self._inner = inner
        self._name = name
        self._gate = gate

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._inner.write(data)

    def sync(self) -> None:
        self._gate.passing(f"sync {self._name}")
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()


class PausingTransport(PassingTransport):
    """A file store whose syncs, renames and links pass the gate."""

    def __init__(self, inner: Transport, gate: Gate, *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self._gate = gate

    def wrap(self, inner: Transport, prefix: str) -> Self:
        return type(self)(inner, self._gate, prefix=prefix)

    def create(self, path: str) -> WriteFile:
        return PausingFile(super().create(path), self.full(path), self._gate)

    def rename(self, source: str, target: str) -> None:
        self._gate.passing(f"rename {self.full(target)}")
        super().rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._gate.passing(f"link {self.full(target)}")
        super().link(source, target)

    def sync_directory(self, path: str) -> None:
        self._gate.passing(f"sync {self.full(path) or '.'}/")
        super().sync_directory(path)


def serve() -> None:
    """Run the command with such a store in the place of the real one."""
    orders, reports = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    gate = Gate(orders, reports)
    whole = site.Site

    def pausing(root: Transport, **others: Any) -> site.Site:
        return whole(PausingTransport(root, gate), **others)

    site.Site = pausing  # type: ignore[misc, assignment]
    main()


if __name__ == "__main__":
    serve()
