"""What a server advises, as one line for a person, and when each kind was last shown of a remote: once a day is enough.

Loaded when a server advises something. What was shown lies beside what is known of the remote, in a file of its own,
changed only under its lock: of two commands at once one shows it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Sequence

import msgspec

from smartserver.client.plain import plain
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.messages import Advice as Advice
from smartserver.wire.messages import named

DAY = 24 * 3600
"""Seconds until the same is shown again of the same remote."""

ENDING = ".advice"
"""What the name of the file ends with; it begins as that of the knowledge."""

MOST_FAULTS = 8
"""Faults that one line names."""

MOST = 4096
"""Bytes of the file that are read: it holds a time for each kind there is."""


def line(advice: Advice, url: str, pack: str, checker: str = "") -> str | None:
    """What one says of the repository at `url`; nothing where its kind or what it needs is not known here.

    `pack`: the command that joins a repository's packs. `checker`: the one that finds faults, where the system has one.
    """
    try:
        said = named(advice)
    except RemoteProtocolError:
        return None
    match advice.kind, said:
        case "packs", {"packs": int(packs)}:
            words = f"it lies in {packs:,} packs: `{pack} {url}` joins them"
        case "log", {"records": int(records)}:
            words = f"{records:,} changes are read each time it is opened: `{pack} {url}` saves their result"
        case "client", {"client": str(client), "expected": str(expected)}:
            words = f"its server expects smartserver {expected} or newer here, this is {client}: update it"
        case "faults", {"faults": dict(faults)}:
            words = f"taken with faults{checker and f' that {checker} finds'}: {_counted(faults)}"
        case _:
            return None
    return plain(f"hpss: {url}: {words}")


def lines(
    found: Sequence[Advice],
    url: str,
    pack: str,
    knowledge: str | None,
    *,
    checker: str = "",
    always: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[str]:
    """What is to be shown now: one line for each kind that nobody was shown within a day. Faults are of this push, and
    are always shown.

    `checker`: as of `line`. `knowledge`: the file in which the remote is known; where nothing can be kept nothing is
    shown. `always`: whatever was shown before.
    """
    said: dict[str, str] = {}
    for advice in found:
        words = line(advice, url, pack, checker)
        if words is not None:
            said.setdefault(advice.kind, words)
    if not said:
        return []
    news = said.pop("faults", None)
    shown = [] if news is None else [news]
    if not said:
        return shown
    due = _due(list(said), knowledge + ENDING, int(clock())) if knowledge is not None else []
    return shown + (list(said.values()) if always else [said[kind] for kind in due])


def _counted(faults: dict[object, object]) -> str:
    """Faults by name: how many records have each, and the first of them."""
    parts = []
    for fault, said in list(faults.items())[:MOST_FAULTS]:
        match said:
            case [int(count), str(first)]:
                parts.append(f"{fault} in {first}" + (f" and {count - 1:,} more" if count > 1 else ""))
            case _:
                parts.append(str(fault))
    return ", ".join(parts)


def _due(kinds: Sequence[str], path: str, now: int) -> list[str]:
    """Those that were not shown within a day: they count as shown from now on."""
    with contextlib.suppress(OSError), open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Who has it is showing what there is.
        shown: dict[str, int] = {}
        with contextlib.suppress(msgspec.DecodeError):
            shown = msgspec.msgpack.decode(file.read(MOST), type=dict[str, int])
        due = [kind for kind in kinds if kind not in shown or not 0 <= now - shown[kind] < DAY]
        if due:
            file.seek(0)
            file.truncate()
            file.write(msgspec.msgpack.encode({**shown, **dict.fromkeys(due, now)}))
        return due
    return []
