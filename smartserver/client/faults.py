"""The line for the user about faults in a push that was accepted. Imported when a server reports some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smartserver.client.plain import plain
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.messages import Advice as Advice
from smartserver.wire.messages import named

MOST_FAULTS = 8
"""The most kinds of faults that one message lists."""


def lines(found: Sequence[Advice], url: str, checker: str) -> Iterator[str]:
    """Yield a line for the user about each advice of the kind `faults`. `checker`: the tool's command that finds such
    faults."""
    for advice in found:
        try:
            faults = named(advice).get("faults")
        except RemoteProtocolError:
            continue
        if advice.kind == "faults" and isinstance(faults, dict) and faults:
            yield plain(f"hpss: {url}: taken with faults that {checker} finds: {_counted(faults)}")


def _counted(faults: dict[object, object]) -> str:
    """Return the faults by name, each with the number of records that have it and the first of them."""
    parts = []
    for fault, told in list(faults.items())[:MOST_FAULTS]:
        match told:
            case [int(count), str(first)]:
                parts.append(f"{fault} in {first}" + (f" and {count - 1:,} more" if count > 1 else ""))
            case _:
                parts.append(str(fault))
    return ", ".join(parts)
