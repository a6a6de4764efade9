"""`Map.update` over the wire agrees with dictionaries: any entries, of any ref or none, any rule, repeats, deletes."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
from builders import MAIN, History
from dialogs import Dialog, Served, message, numbered
from hypothesis import given, settings

from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.map_update import (
    EntryChange,
    How,
    MapKind,
    MapUpdateRequest,
    MapUpdateResult,
    Verdict,
    map_update,
)
from smartserver.wire.messages import Failure, KnownVersion, Reply, State, entries_of

HISTORY = History()
LINE = HISTORY.line(2)
SIDE = b"refs/heads/side"
KEYS = [b"a", b"b", b"", b"\xff", b"n" * 1024, b"a\0b"]
VALUES = [b"1", b"2", b"v" * 20_000]

KINDS = {"tags": MapKind.IDS, "notes": MapKind.OPAQUE}
"""The maps of the test system; entries of notes belong to no ref, those of tags to one."""

values = st.none() | st.sampled_from(VALUES)
changes = st.builds(EntryChange, st.sampled_from(KEYS), values, st.sampled_from(How), values)
updates = st.builds(
    MapUpdateRequest,
    st.sampled_from(["tags", "notes"]),
    st.sampled_from(MapKind),
    st.lists(changes, max_size=5),
    st.none() | st.sampled_from([MAIN, SIDE, b"absent"]),
    st.booleans(),
)
steps = st.lists(updates | st.just("delete") | st.just("repeat"), min_size=1, max_size=12)

Maps = dict[str, dict[bytes, bytes]]


def expected(maps: Maps, refs: set[bytes], asked: MapUpdateRequest) -> list[str] | None:
    """Apply the entries to the model, and return their verdicts; None if the call is refused, and changes nothing."""
    if KINDS[asked.map] is not asked.kind or (asked.of is None) is not (asked.map == "notes"):
        return None
    if asked.of is not None and asked.of not in refs:
        return None
    held = dict(maps.get(asked.map, {}))
    verdicts = []
    for change in asked.entries:
        if b"\0" in change.key or (asked.of is None and not change.key):
            return None
        if asked.kind is MapKind.IDS and change.value is not None and len(change.value) > 1024:
            return None
        key = change.key if asked.of is None else asked.of + b"\0" + change.key
        old = held.get(key)
        allowed = {How.ADD: old is None, How.EQUAL: old == change.expected, How.SET: True}[change.how]
        verdict = Verdict.UNCHANGED if old == change.value else Verdict.DONE if allowed else Verdict.CONFLICT
        if verdict is Verdict.CONFLICT and asked.strict:
            return None
        verdicts.append(verdict.value)
        if verdict is Verdict.DONE and change.value is None:
            del held[key]
        elif verdict is Verdict.DONE and change.value is not None:
            held[key] = change.value
    maps[asked.map] = held
    return verdicts


@given(steps)
@settings(max_examples=120, deadline=None)
def test_it_does_what_dictionaries_do(moves: list[MapUpdateRequest | str]) -> None:
    served = Served(history=HISTORY)
    served.push(LINE, {MAIN: LINE[1], SIDE: LINE[0]})
    dialog = Dialog(served.site)
    maps: Maps = {}
    refs = {MAIN, SIDE}
    known: State | None = None
    told: Maps = {}
    last: tuple[MapUpdateRequest, int, Reply] | None = None
    for number, move in enumerate(moves, 1):
        seen = None if known is None else KnownVersion(known.incarnation, known.version, known.mark)
        if move == "delete":
            answer = dialog.ask(
                message((branch_delete, BranchDeleteRequest(SIDE)), request=numbered(number), known=seen)
            )
            refs.discard(SIDE)
            for held in maps.values():
                for key in [key for key in held if key.startswith(SIDE + b"\0")]:
                    del held[key]
        elif move == "repeat":
            if last is None:
                continue
            asked, first, reply = last
            again = dialog.ask(message((map_update, asked), request=numbered(first), age=500, known=seen))
            assert isinstance(again, Reply)
            assert again.outcomes == reply.outcomes
            answer = again
        else:
            assert isinstance(move, MapUpdateRequest)
            answer = dialog.ask(message((map_update, move), request=numbered(number), known=seen))
            verdicts = expected(maps, refs, move)
            assert isinstance(answer, Reply) is (verdicts is not None)
            if isinstance(answer, Reply):
                result = msgspec.msgpack.decode(answer.outcomes[0].result, type=MapUpdateResult)
                assert [each.verdict.value for each in result.entries] == verdicts
                if verdicts and Verdict.DONE.value in verdicts:
                    last = move, number, answer
            else:
                assert isinstance(answer, Failure)
        state = answer.state
        assert state is not None
        told = told if state.since is not None else {}
        for name, entries in entries_of(state).items():
            held = told.setdefault(name, {})
            for key, value in entries.items():
                if value is None:
                    held.pop(key, None)
                else:
                    held[key] = value
        known = state
        full = {name: dict(each.items()) for name, each in served.repository().snapshot().state.maps.items()}
        present = {name: held for name, held in maps.items() if held}
        assert {name: held for name, held in full.items() if held} == present
        assert {name: held for name, held in told.items() if held} == present
    assert served.repository().verify().problems == ()
