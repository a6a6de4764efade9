"""The file of budgets: operation -> the most round trips it may take. Budgets fall when less was measured; none rises.

The file is TOML that a person keeps: tables as they like, each budget a line of its own, `"push" = 1`, its reason in a
comment. A name stands once in the file, whatever table it is in. Only the number of a line is ever rewritten, in the
file as it is by then: what a person changed while the tests ran stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

LINE = re.compile(
    r"""(?P<before>\s*(?P<key>"[^"\\]*"|'[^']*'|[A-Za-z0-9_-]+)\s*=\s*)(?P<budget>[0-9]+)(?P<after>\s*(#.*)?)"""
)


class BudgetsError(ValueError):
    """The file of budgets is not one, or lacks a name."""


class Budgets:
    """The budgets of one file, and what was measured under them."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            OSError: it cannot be read.
            BudgetsError: it is no TOML; a line of it is no budget; a name stands twice.
        """
        self.path = path
        self._budgets: dict[str, int] = {}
        self._expected: Counter[str] = Counter()
        self._measured: dict[str, list[int]] = {}
        try:
            text = path.read_bytes().decode("utf-8")  # not `read_text`, which would change the ends of lines
            tomllib.loads(text)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise BudgetsError(f"{path}: {error}") from None
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith(("#", "[")):
                self._add(number, line)

    def _add(self, number: int, line: str) -> None:
        found = LINE.fullmatch(line.rstrip("\r\n"))
        if found is None:
            raise BudgetsError(f'{self.path}:{number}: expected a budget, `"name" = 1`, on a line of its own')
        name = found["key"].strip("\"'")
        if name in self._budgets:
            raise BudgetsError(f"{self.path}:{number}: {name!r} stands twice")
        self._budgets[name] = int(found["budget"])

    def __getitem__(self, name: str) -> int:
        """The budget of an operation.

        Raises:
            BudgetsError: it has none.
        """
        try:
            return self._budgets[name]
        except KeyError:
            raise BudgetsError(f"{self.path} has no budget of {name!r}") from None

    def expect(self, name: str) -> None:
        """An operation is going to be measured once more. If it is not (a test failed), its budget may not fall."""
        self._expected[name] += 1

    def measured(self, name: str, rounds: int) -> None:
        """An operation took so many; of several times the greatest counts."""
        self._measured.setdefault(name, []).append(rounds)

    def falls(self) -> dict[str, tuple[int, int]]:
        """Each name whose budget may fall, with what it is and what it may be, as in the file."""
        return {
            name: (budget, max(measured))
            for name, budget in self._budgets.items()
            if (measured := self._measured.get(name))
            and len(measured) >= self._expected[name]
            and max(measured) < budget
        }

    def lower(self) -> None:
        """Let them fall, in the file too; all else in it stays as it is by now, and no fall writes nothing.

        Raises:
            OSError: it cannot be read any more, or not be written.
        """
        falls = self.falls()
        before = self.path.read_bytes() if falls else b""
        lines = before.decode("utf-8", "surrogateescape").splitlines(keepends=True)
        for at, line in enumerate(lines):
            found = LINE.match(line)
            if found is not None and found["key"].strip("\"'") in falls:
                _, rounds = falls[found["key"].strip("\"'")]
                if rounds < int(found["budget"]):
                    lines[at] = f"{found['before']}{rounds}{line[found.end('budget') :]}"
        self._budgets |= {name: rounds for name, (_, rounds) in falls.items()}
        after = "".join(lines).encode("utf-8", "surrogateescape")
        if after != before:
            _replace(self.path.resolve(), after)


def _replace(path: Path, content: bytes) -> None:
    """Write a file by renaming another over it: who reads it sees the old or the new, and never a part."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(number, "wb") as written:
            written.write(content)
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
