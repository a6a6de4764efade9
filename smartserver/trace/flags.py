"""Debug flags, as SMARTSERVER_DEBUG and Breezy's `hpss.debug` have them, with commas between them."""

from __future__ import annotations

VARIABLE = "SMARTSERVER_DEBUG"
"""Of the environment; it has such flags for every tool."""

BAN = "hpss-ban="
"""Begins the flag that bans calls; its rules follow, with commas between them."""

KNOWN = ("hpss", "hpssdetail", "hpssvfs")
"""The others: which calls are shown, and how much of each."""


class BadFlag(Exception):
    """A flag asks for what there is not."""


def parted(flags: str) -> tuple[list[str], list[str]]:
    """The flags but those that ban, and the rules of these: behind `hpss-ban=` each word is one, up to the next word
    that begins as a flag of ours."""
    words: list[str] = []
    rules: list[str] = []
    found = words
    for word in flags.split(","):
        if word.startswith("hpss"):
            found = rules if word.startswith(BAN) else words
        found.append(word.removeprefix(BAN))
    return words, rules


def check(flags: str, where: str) -> None:
    """Accept flags that are known. `where`: what has them, in messages.

    Raises:
        BadFlag: one is not.
    """
    unknown = next((word for word in parted(flags)[0] if word and word not in KNOWN), "")
    if unknown:
        raise BadFlag(f"no such debug flag in {where}: {unknown!r} (there are {', '.join(KNOWN)} and {BAN}RULE[,RULE])")
