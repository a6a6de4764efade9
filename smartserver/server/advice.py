"""What a server has its users know, in an answer that goes anyway: one kind of advice, one function.

Each gives nothing where there is nothing to say, which is nearly always: an answer without advice is no longer for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from smartserver.errors import shown
from smartserver.records.model import Key
from smartserver.store.repack import joinable
from smartserver.store.state import State
from smartserver.wire.messages import Advice, raw

MANY_PACKS = 20
"""Packs that could be joined, and are not, from which it is said: a server joins them itself when there are more than
12, so that something keeps it from doing so."""

OLDEST_CLIENT = "0.1.0"
"""The release of a client that this one expects at least; raised when older ones have a fault worth an update."""

AGENT = re.compile(r"smartserver/(\d{1,9}(?:\.\d{1,9}){1,3})")
"""How our own clients say what they are."""


def of_packs(state: State) -> Advice | None:
    """What is said of a repository with many packs."""
    return None if joinable(state.packs) <= MANY_PACKS else Advice("packs", raw({"packs": len(state.packs)}))


def of_log(records: int) -> Advice | None:
    """What is said of a repository with records that wait for a checkpoint: 0 where none do."""
    return Advice("log", raw({"records": records})) if records else None


def of_client(agent: msgspec.Raw | None) -> Advice | None:
    """What is said to a client that calls itself older than this server expects; `agent`: as it was sent."""
    if agent is None:
        return None
    try:
        said = AGENT.search(msgspec.msgpack.decode(agent, type=str))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # What it is called is nothing a request is refused for.
    if said is None or _numbers(said[1]) >= _numbers(OLDEST_CLIENT):
        return None
    return Advice("client", raw({"client": said[1], "expected": OLDEST_CLIENT}))


def of_faults(found: Mapping[str, tuple[int, Key]]) -> Advice | None:
    """What is said of a push whose records have faults that are no reason to refuse it."""
    if not found:
        return None
    return Advice("faults", raw({"faults": faults_of(found)}))


def faults_of(found: Mapping[str, tuple[int, Key]]) -> dict[str, list[object]]:
    """How often each fault was found, and the first record that has it."""
    return {fault: [count, shown(first)] for fault, (count, first) in found.items()}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
