"""Repeated requests: the same bytes sent more than once, or one line of the program that waits again and again."""

from __future__ import annotations

from collections.abc import Sequence

from netem.callsites import CallSites, show
from netem.counter import Message
from netem.units import plural

SAME_LINE = 3
"""The least number of waits at one line that is reported: two may be a request and its continuation."""


def repeats(messages: Sequence[Message]) -> list[str]:
    """Return a line of text for each suspected repetition, the most frequent first."""
    asked = [message for message in messages if message.up and message.size]
    same_bytes: dict[bytes, list[Message]] = {}
    same_line: dict[CallSites, list[Message]] = {}
    for message in asked:
        if message.size == len(message.content):  # the content is complete
            same_bytes.setdefault(message.content, []).append(message)
        if message.sites:
            same_line.setdefault(message.sites, []).append(message)
    found: list[tuple[int, str]] = []
    told: list[list[Message]] = []
    for content, group in same_bytes.items():
        if len(group) > 1:
            found.append(
                (len(group), f"the same {plural(len(content), 'byte')} were sent {len(group)} times{_from(group)}")
            )
            told.append(group)
    for group in same_line.values():
        waits = len({message.depth for message in group})  # concurrent requests are not a loop
        if waits >= SAME_LINE and group not in told:
            found.append((waits, f"{waits} round trips were made one after the other{_from(group)}"))
    return [f"{line}: an N+1?" for _, line in sorted(found, key=lambda each: -each[0])]


def _from(group: Sequence[Message]) -> str:
    sites = dict.fromkeys(message.sites for message in group if message.sites)
    return f" from {' and from '.join(map(show, sites))}" if sites else ""
