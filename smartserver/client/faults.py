"""The line about faults of a push that are no reason to refuse it. Loaded when a server tells of some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smartserver.client.plain import plain
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.messages import Advice as Advice
from smartserver.wire.messages import named

MOST_FAULTS = 8
"""Faults that one line names."""


def lines(found: Sequence[Advice], url: str, checker: str) -> Iterator[str]:
    """The line for the user about the advice `faults`. `checker`: the tool's command that finds such faults."""
    for advice in found:
        try:
            faults = named(advice).get("faults")
        except RemoteProtocolError:
            continue
        if advice.kind == "faults" and isinstance(faults, dict) and faults:
            yield plain(f"hpss: {url}: taken with faults that {checker} finds: {_counted(faults)}")


def _counted(faults: dict[object, object]) -> str:
    """Faults by name: the number of records that have each, and the first of them."""
    parts = []
    for fault, told in list(faults.items())[:MOST_FAULTS]:
        match told:
            case [int(count), str(first)]:
                parts.append(f"{fault} in {first}" + (f" and {count - 1:,} more" if count > 1 else ""))
            case _:
                parts.append(str(fault))
    return ", ".join(parts)
