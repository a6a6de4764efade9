"""The file of budgets: operation -> the most round trips that it may take. A budget is lowered when fewer round trips
were measured, and is never raised.

The file is TOML that a person edits: any tables, each budget on a line of its own, `"push" = 1`, its reason in a
comment. A name may occur only once in the file, even in different tables. Only the number of a line is ever rewritten,
in the newest content of the file: edits made while the tests ran stay.
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
    """The file of budgets is malformed, or lacks a name."""


class Budgets:
    """The budgets of one file, and the round trips that were measured for them."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            OSError: the file cannot be read.
            BudgetsError: the file is not TOML, a line is not a budget, or a name occurs twice.
        """
        self.path = path
        self._budgets: dict[str, int] = {}
        self._expected: Counter[str] = Counter()
        self._measured: dict[str, list[int]] = {}
        try:
            text = path.read_bytes().decode("utf-8")  # not `read_text`, which would change line endings
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
            raise BudgetsError(f"{self.path}:{number}: {name!r} appears twice")
        self._budgets[name] = int(found["budget"])

    def __getitem__(self, name: str) -> int:
        """Return the budget of an operation.

        Raises:
            BudgetsError: the file has no such name.
        """
        try:
            return self._budgets[name]
        except KeyError:
            raise BudgetsError(f"{self.path} has no budget of {name!r}") from None

    def expect(self, name: str) -> None:
        """Expect one more measurement of an operation. If it is missing because a test failed, the budget cannot be
        lowered."""
        self._expected[name] += 1

    def measured(self, name: str, rounds: int) -> None:
        """Record that an operation took `rounds` round trips. Of several measurements the greatest counts."""
        self._measured.setdefault(name, []).append(rounds)

    def falls(self) -> dict[str, tuple[int, int]]:
        """Return each name whose budget may fall, in the order of the file, with (budget, measured)."""
        return {
            name: (budget, max(measured))
            for name, budget in self._budgets.items()
            if (measured := self._measured.get(name))
            and len(measured) >= self._expected[name]
            and max(measured) < budget
        }

    def lower(self) -> None:
        """Lower the budgets that may fall, here and in the file. Without any, the file is not written.

        Raises:
            OSError: the file cannot be read or written.
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
    """Replace a file atomically by a rename, so that a reader sees the old or the new content, never a part."""
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
