"""Operations on a repository, each with its preparation and its outcome: a fault is tried at every call of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from builders import MAIN, Clock, History, check_whole, push, refs_of, request_id
from changes import change, push_each

from smartserver.errors import CorruptRecord, OutcomeUnknown
from smartserver.store import checkpoint, prune
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.errors import CodedError

SIDE = b"refs/heads/side"
FEW = 8
"""Records after which a checkpoint is due here."""
MOST_PACKS = 4
"""Packs after which a repack is due here."""

State = dict[bytes, bytes] | None
"""Ref -> tip, and map and key -> value; None: there is no repository."""


@dataclass(frozen=True)
class Operation:
    """The preparation without faults, the operation with faults, and the refs after it."""

    prepare: Callable[[PackRepository, History, Clock], None]
    run: Callable[[PackRepository, History], object]
    after: Callable[[History], State]


def line(history: History, name: str, count: int, parent: bytes | None = None) -> list[bytes]:
    """Add commits that are the same each time for the same arguments."""
    return history.line(count, parent, name)


def nothing(_repository: PackRepository, _history: History, _clock: Clock) -> None:
    """Leave the repository missing."""


def three(repository: PackRepository, history: History, _clock: Clock) -> None:
    """Push three commits and two refs."""
    base = line(history, "base", 3)
    push(repository, history, base, {MAIN: base[2], SIDE: base[0]})


def many(repository: PackRepository, history: History, _clock: Clock) -> None:
    """Push so many packs that a repack is due."""
    push_each(repository, history, line(history, "base", MOST_PACKS + 1))


def logged(repository: PackRepository, history: History, clock: Clock) -> None:
    """Make so many records over an old checkpoint that another is due, and older records are to be deleted."""
    (first,) = line(history, "base", 1)
    push(repository, history, [first], {MAIN: first})
    checkpoint.make_checkpoint(repository.folder, repository.log.look().state, repository.randomness)
    for number in range(FEW):
        push(repository, history, [], {SIDE: first if number % 2 else None, b"refs/tags/%d" % number: first})
    clock.now += checkpoint.FLOOR_AGE + 1


def tidy(repository: PackRepository, history: History) -> None:
    """Write a checkpoint, and delete the records that it makes useless."""
    refs_of(repository)
    repository.tidy()


def summarise_all(repository: PackRepository, history: History) -> None:
    """Write the summaries of all packs, from which a log is read."""
    refs_of(repository)
    repository.summarise()


def deleted(repository: PackRepository, history: History, clock: Clock) -> None:
    """Delete a repository."""
    three(repository, history, clock)
    delete(repository, history)


def joined(repository: PackRepository, history: History, clock: Clock) -> None:
    """Leave old packs that are due to be deleted."""
    many(repository, history, clock)
    assert repository.repack_if_needed()
    clock.now += 24 * 3600 + 1


def forced(repository: PackRepository, history: History, clock: Clock) -> None:
    """Leave revisions that no ref reaches: part of a pack, and all of another. A later pack is based on the first."""
    base = line(history, "base", 3)
    beside = history.commit({**history.files(base[0]), "secret": b"hunter2\n"}, base[:1], "secret")
    push(repository, history, [base[0], beside, base[1]], {MAIN: base[1], b"refs/heads/wrong": beside})
    other = history.commit({**history.files(beside), "more": b"of it\n"}, (beside,), "more")
    push(repository, history, [other], {b"refs/heads/wrong": other})
    push(repository, history, base[2:], {MAIN: base[2], SIDE: base[0], b"refs/heads/wrong": None})


def bring(repository: PackRepository, history: History) -> None:
    new = line(history, "new", 2, line(history, "base", 3)[2])
    push(repository, history, new, {MAIN: new[1], b"refs/heads/new": new[0]}, graph_first=True)


def bring_much(repository: PackRepository, history: History) -> None:
    """Push a pack that is larger than the rest of the repository."""
    push(repository, history, [much(history)], {MAIN: much(history)})


def much(history: History) -> bytes:
    return history.commit({"much": random.Random(1).randbytes(1 << 20)}, line(history, "base", 3)[2:], "much")


def brought(history: History) -> State:
    base = line(history, "base", 3)
    new = line(history, "new", 2, base[2])
    return {MAIN: new[1], b"refs/heads/new": new[0], SIDE: base[0]}


def refuse(repository: PackRepository, history: History) -> None:
    """Push a broken body, which is refused."""
    new = line(history, "new", 2, line(history, "base", 3)[2])
    segment = history.segment(new[1])
    history._made[new[1]] = segment[:-1] + bytes((segment[-1] ^ 1,))
    try:
        push(repository, history, new, {MAIN: new[1]})
    except CorruptRecord:
        pass
    finally:
        history._made[new[1]] = segment


def bring_nothing(repository: PackRepository, history: History) -> None:
    """Create a repository, or recreate a deleted one."""
    push(repository, history, [])


def delete(repository: PackRepository, _history: History) -> None:
    """Delete the repository as a whole."""
    repository.delete(request_id(), 0, "user")


def three_refs(history: History) -> State:
    base = line(history, "base", 3)
    return {MAIN: base[2], SIDE: base[0]}


def many_refs(history: History) -> State:
    return {MAIN: line(history, "base", MOST_PACKS + 1)[-1]}


def noted(repository: PackRepository, history: History, clock: Clock) -> None:
    """Push three commits, and set entries of maps."""
    three(repository, history, clock)
    note(repository, b"1")


def note(repository: PackRepository, number: bytes, delete: bytes | None = None) -> None:
    """Set an entry that belongs to no ref, one of a ref, and a large one."""

    def do(transaction: Transaction) -> None:
        transaction.set_map("notes", "opaque", number, number)
        transaction.set_map("config", "opaque", SIDE + b"\0" + number, number)
        transaction.set_map("config", "opaque", SIDE + b"\0", number * 65_536)
        if delete is not None:
            transaction.set_ref(delete, None)
            transaction.remove_entries(delete)

    change(repository, do)


OPERATIONS = {
    "create with content": Operation(
        nothing, lambda repository, history: three(repository, history, Clock()), three_refs
    ),
    "create empty": Operation(nothing, bring_nothing, lambda history: {}),
    "push": Operation(three, bring, brought),
    "push much": Operation(three, bring_much, lambda history: {MAIN: much(history), SIDE: line(history, "base", 3)[0]}),
    "refused push": Operation(three, refuse, three_refs),
    "move a ref": Operation(
        three,
        lambda repository, history: push(repository, history, [], {SIDE: line(history, "base", 3)[1]}),
        lambda history: {MAIN: line(history, "base", 3)[2], SIDE: line(history, "base", 3)[1]},
    ),
    "delete a ref and what belongs to it": Operation(
        noted,
        lambda repository, history: note(repository, b"2", SIDE),
        lambda history: {MAIN: line(history, "base", 3)[2], b"notes/1": b"1", b"notes/2": b"2"},
    ),
    "delete the repository": Operation(three, delete, lambda history: None),
    "repack": Operation(many, lambda repository, history: repository.repack_if_needed(), many_refs),
    "recreate": Operation(deleted, bring_nothing, lambda history: {}),
    "checkpoint and clean": Operation(
        logged,
        tidy,
        lambda history: {
            MAIN: line(history, "base", 1)[0],
            SIDE: line(history, "base", 1)[0],
            **{b"refs/tags/%d" % number: line(history, "base", 1)[0] for number in range(FEW)},
        },
    ),
    "summarise": Operation(three, summarise_all, three_refs),
    "prune": Operation(forced, lambda repository, history: prune.prune(repository), three_refs),
    "collect": Operation(joined, lambda repository, history: repository.collect_garbage_files(), many_refs),
}


def state_of(repository: PackRepository) -> State:
    if not repository.exists():
        return None
    maps = repository.snapshot().state.maps
    entries = {f"{name}/".encode() + key: value for name, found in maps.items() for key, value in found.items()}
    hidden = prune.unreached(repository.snapshot()).ordinals
    return {**refs_of(repository), **entries, **({b"unreached": b"%d" % len(hidden)} if hidden else {})}


def check_answer(
    repository: PackRepository, history: History, error: CodedError | None, before: State, after: State, what: object
) -> State:
    """Check that the state is before or after, as the answer says, and whole; return it."""
    found = state_of(repository)
    if error is None:
        assert found == after, what
    else:
        assert found == before or (isinstance(error, OutcomeUnknown) and found == after), what
    if found is None:
        assert repository.describe_place() == "", what
    else:
        check_whole(repository, history)
    return found


def check_next(repository: PackRepository, history: History, found: State, what: object) -> None:
    """Check that a next push works."""
    more = line(history, "more", 1, (found or {}).get(MAIN))
    push(repository, history, more, {MAIN: more[0]})
    assert state_of(repository) == {**(found or {}), MAIN: more[0]}, what
    check_whole(repository, history)
