"""The cases of Mercurial's test files: each command of a file, with what it prints, is one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from suites import Cases

START = "  $ "
FURTHER = "  > "


class Case(NamedTuple):
    """One command, and the output that follows it."""

    line: int
    command: str
    printed: tuple[str, ...]


def cases_in(text: str) -> list[Case]:
    """Read the cases of a test file, or of a run's output."""
    found: list[Case] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(START):
            found.append(Case(number, line[len(START) :], ()))
        elif line.startswith(FURTHER) and found and not found[-1].printed:
            case = found[-1]
            found[-1] = case._replace(command=f"{case.command}\n{line[len(FURTHER) :]}")
        elif found and line.startswith("  "):
            case = found[-1]
            found[-1] = case._replace(printed=(*case.printed, line))
    return found


def compared(expected: str, printed: str | None) -> Cases:
    """Return the cases of a file, with those that printed something else; None: the run printed the expected output."""
    cases = Cases()
    wanted = cases_in(expected)
    given = wanted if printed is None else cases_in(printed)
    if [case.command for case in given] != [case.command for case in wanted][: len(given)]:
        cases.problem = "printed lines that look like commands"
        return cases
    if len(given) < len(wanted):
        cases.problem = f"ended at line {wanted[len(given)].line}"
    for want, got in zip(wanted, given, strict=False):
        if want.printed == got.printed:
            cases.passed.add(want.line)
        else:
            cases.failed[want.line] = want.command.partition("\n")[0]
    return cases


def outcome(tests: Path, results: Path, name: str, result: str) -> Cases:
    """Return the outcomes of a test, by its name and the verdict of run-tests.py."""
    expected = (tests / name.partition("#")[0]).read_text(errors="replace")
    if result == "success":
        return compared(expected, None)
    error = results / f"{name}.err"
    if result == "failure" and error.exists():
        return compared(expected, error.read_text(errors="replace"))
    return Cases(problem=result)


def bridged(log: Path) -> Counter[str]:
    """Count the operations over hpss, by test: the bridge writes a line for each."""
    return Counter(log.read_text().splitlines() if log.exists() else ())
