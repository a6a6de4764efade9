"""Debug flags, separated by commas. They are in the options `smartserver -D` and `brz -D`, in SMARTSERVER_DEBUG, and in
the setting `hpss.debug` of Mercurial and Breezy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

VARIABLE = "SMARTSERVER_DEBUG"
"""The environment variable with debug flags for every tool."""

BAN = "hpss-ban="
"""The prefix of the flag that bans calls; its rules follow, separated by commas."""

FILE = "hpss-json="
"""The prefix of the flag that names a file for the trace."""

KNOWN = ("hpss", "hpssdetail", "hpssvfs", "hpssbytes")
"""The flags that select which calls are shown, and how much of each."""


class BadFlag(Exception):
    """A flag is unknown, or cannot be applied."""


class Flags(NamedTuple):
    """The flags that decide which calls are shown, banned and recorded."""

    words: frozenset[str] = frozenset()
    """All words except rules and the file: the flags of `KNOWN`, and flags of other programs."""
    rules: tuple[str, ...] = ()
    file: str = ""
    """The file to which the trace is appended; empty if no file is named."""

    @property
    def shows(self) -> bool:
        """True if calls are shown."""
        return not self.words.isdisjoint(KNOWN)

    def told(self) -> list[str]:
        """Return the flags as words, for a server that a command starts."""
        found = [word for word in KNOWN if word in self.words]
        found += [BAN + ",".join(self.rules)] if self.rules else []
        return [*found, FILE + self.file] if self.file else found

    def check(self, where: str) -> None:
        """Check that all flags are known. `where`: the source of the flags, for messages.

        Raises:
            BadFlag: a flag is unknown.
        """
        unknown = next((word for word in sorted(self.words) if word not in KNOWN), "")  # Also an empty FILE.
        if unknown:
            raise BadFlag(f"no such debug flag in {where}: {unknown!r} (there are {', '.join(KNOWN)}, {FORMS})")


def combined(flags: Iterable[str], variable: str) -> Flags:
    """Return the flags of a command line and those of `VARIABLE` together.

    Raises:
        BadFlag: the variable has an unknown flag.
    """
    read([variable]).check(VARIABLE)
    return read([*flags, variable])


FORMS = f"{FILE}FILE and {BAN}RULE[,RULE]"


def read(given: Iterable[str]) -> Flags:
    """Return the flags in some words. After `hpss-ban=` each word is a rule, up to the next word that begins with
    `hpss`."""
    words: set[str] = set()
    rules: dict[str, None] = {}
    file = ""
    for flags in given:
        is_rule = False
        for word in flags.split(","):
            if word.startswith("hpss"):
                is_rule = word.startswith(BAN)
            if word.startswith(FILE) and word != FILE:
                file = os.path.abspath(os.path.expanduser(word.removeprefix(FILE)))  # No shell reads a setting.
            elif is_rule:
                rules[word.removeprefix(BAN)] = None
            elif word:
                words.add(word)
    return Flags(frozenset(words), tuple(rules), file)
