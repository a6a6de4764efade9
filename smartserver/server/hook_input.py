"""The input of a hook: a change, as JSON.

    {"path": "project", "vcs": "...", "user": "anna", "request": "1f...", "repository": "changed", "options": [],
     "changes": [{"ref": "main", "old": ["1f..."], "new": ["09..."]}]}

Each change is of a ref, with the ids of its revisions; of an entry of a map, with the ref that it belongs to; or of a
setting. A missing value is an empty list of ids, or null.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

from smartserver.records.system import system_of
from smartserver.store.record import Change
from smartserver.store.state import MAP, REFS, SETTINGS, State, decode_value


def change_fields(vcs: str, changes: Sequence[Change]) -> Iterator[dict[str, object]]:
    """Yield the fields of each change. `vcs`: the system of the repository."""
    for change in changes:
        if change.table == REFS:
            yield {"ref": _text(change.key), "old": _ids(vcs, change.old), "new": _ids(vcs, change.new)}
        elif change.table == SETTINGS:
            yield {"setting": _text(change.key), "old": _value(change.old), "new": _value(change.new)}
        elif change.table.startswith(MAP):
            yield _entry(vcs, change)


def ref_fields(state: State) -> dict[str, list[str]]:
    """Return all refs of a state, with the ids of their revisions."""
    return {_text(name): _ids(state.vcs, value) for name, value in state.table(REFS).items()}


def _entry(vcs: str, change: Change) -> dict[str, object]:
    """Return the fields of a change of a map's entry. The values are ids, text, or else base64."""
    word = change.table.removeprefix(MAP)
    of, belongs, key = change.key.partition(b"\0")
    where = {"of": _text(of), "key": _text(key)} if belongs else {"key": _text(of)}
    system = system_of(vcs)
    is_ids = word in system.maps and system.maps[word].kind == "ids"

    def said(value: bytes | None) -> str | None:
        return system.id_text(value) if is_ids and value is not None else _value(value)

    return {"map": word, **where, "old": said(change.old), "new": said(change.new)}


def _ids(vcs: str, value: bytes | None) -> list[str]:
    return [] if value is None else [system_of(vcs).id_text(tip.id) for tip in decode_value(value)]


def _value(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
