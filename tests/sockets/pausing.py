"""`paused_server.py` as tests have it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from serving import Server

PAUSED = str(Path(__file__).with_name("paused_server.py"))


class Paused:
    """A server that stops before the n-th sync, rename or link, and says so."""

    def __init__(self, root: Path) -> None:
        orders, self._orders = os.pipe()
        reports, theirs = os.pipe()
        self._reports: IO[str] = os.fdopen(reports)
        try:
            program = (PAUSED, str(orders), str(theirs))
            self.server = Server(root, program=program, pass_fds=(orders, theirs))
        finally:
            os.close(orders)
            os.close(theirs)

    def arm(self, number: int) -> None:
        """From now on; what happens before it has happened."""
        os.write(self._orders, b"%d\n" % number)
        assert self._until("armed") == []

    def paused(self) -> list[str]:
        """Wait for the pause; the calls up to the one that is not made."""
        return self._until("paused")

    def go_on(self) -> None:
        """Make the call before which it is paused."""
        self.passed()

    def passed(self) -> list[str]:
        """All calls since the order."""
        os.write(self._orders, b"0\n")
        return self._until("armed")

    def _until(self, word: str) -> list[str]:
        lines: list[str] = []
        for line in self._reports:
            if line.rstrip("\n") == word:
                return lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the server ended before {word!r}: {lines} {self.server.log}")

    def close(self) -> None:
        self.server.kill()
        os.close(self._orders)
        self._reports.close()
