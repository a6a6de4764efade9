"""A model of the packs of a repository: which files may be deleted, and when.

A push writes its pack as a file first; then a record of the log names it. A file that no record names may be left from
a dead push, or belong to a change that is about to be published. So a cleaner never deletes a file for its age: a
record drops it first, and a day later it is deleted. A change that names a pack reads the state, opens the pack, and
publishes its record only if nothing was published since.

The actors: two writers that carry out the same request, each with its own pack; a repack, which joins packs A and B to
J; and a cleaner. Each call of the store is one step, and a day may pass between any two.

The conditions in every state: the files of all packs that the log names exist, and the request is carried out once.

Not modelled: the log itself, whose head is exact here (`log_model` is about it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from state_search import Model, Violation

MISSING = "missing"
"""The log names a missing file."""
TWICE = "twice"
"""Two packs of one request are in the log."""

REQUEST_PACKS = frozenset("PQ")
"""The packs of the two writers, both with the same request."""
OLD_PACKS = frozenset("AB")
JOINED = "J"


@dataclass(frozen=True)
class PackRules:
    """The rules that the actors follow; a test turns one off."""

    drop_first: bool = True
    """A record drops a file before it is deleted. Otherwise a concurrent record may name it."""
    open_after_read: bool = True
    """A pack is opened after the state was read. Otherwise it may have been dropped, deleted and forgotten before."""
    refuse_dropped: bool = True
    """A pack that the state calls dropped is not named, because its file will be deleted."""


class Change(NamedTuple):
    """A writer or the repack, which publishes its pack."""

    pack: str
    at: Literal["begin", "read", "open", "publish", "end"] = "begin"
    head: int = 0
    """The head whose state it read."""
    was_done: bool = False
    was_dropped: bool = False
    """The facts in that state: its request was carried out, its pack was dropped."""


class Cleaner(NamedTuple):
    """Drops unnamed files; `left`: the number that it may drop."""

    left: int
    pack: str = ""
    """The unnamed file that it found."""
    head: int = 0


class Packs(NamedTuple):
    """A state of the model. `dropped`: files that records dropped, and that are not forgotten yet."""

    first: Change
    retry: Change
    repack: Change
    cleaner: Cleaner
    head: int = 0
    named: frozenset[str] = OLD_PACKS
    dropped: frozenset[str] = frozenset()
    files: frozenset[str] = OLD_PACKS
    is_done: bool = False

    def publish(self) -> Packs:
        """Return the state after the next record; the caller adds its content."""
        return self._replace(head=self.head + 1)


Step: TypeAlias = tuple[str, Packs]


def pack_model(rules: PackRules | None = None) -> Model[Packs]:
    """Return the model under some rules."""
    first = Packs(Change("P"), Change("Q"), Change(JOINED), Cleaner(2))
    return Model(first, _Steps(rules or PackRules()).steps, check)


def check(packs: Packs) -> Violation | None:
    """Return the violation in a state, if any."""
    if gone := packs.named - packs.files:
        return Violation(MISSING, f"the log names {sorted(gone)}")
    if packs.named >= REQUEST_PACKS:
        return Violation(TWICE, f"the log names {sorted(packs.named)}")
    return None


class _Steps:
    """The steps that can happen next."""

    def __init__(self, rules: PackRules) -> None:
        self.rules = rules

    def steps(self, packs: Packs) -> Iterator[Step]:
        """Yield each next state with its name."""
        for step, change, after in self._put_in(packs, packs.first):
            yield f"writer {step}", after._replace(first=change)
        for step, change, after in self._put_in(packs, packs.retry):
            yield f"retry {step}", after._replace(retry=change)
        for step, change, after in self._put_in(packs, packs.repack):
            yield f"repack {step}", after._replace(repack=change)
        yield from self._cleaner(packs)
        yield from self._a_day_later(packs)

    def _put_in(self, packs: Packs, change: Change) -> Iterator[tuple[str, Change, Packs]]:
        """Yield a step of a writer or of the repack."""
        pack = change.pack
        if change.at == "begin":
            yield f"writes {pack}", change._replace(at="read"), packs._replace(files=packs.files | {pack})
        elif change.at == "read":
            if pack != JOINED or packs.named >= OLD_PACKS:
                read = Change(pack, "open", packs.head, pack != JOINED and packs.is_done, pack in packs.dropped)
                yield f"reads state {packs.head}", read, packs
        elif change.at == "open":
            yield self._open(packs, change)
        elif change.at == "publish":
            if change.head == packs.head:
                yield f"publishes {packs.head + 1}", Change(pack, "end"), _with_pack(packs, pack)
            else:
                yield f"finds {change.head + 1} taken", Change(pack, "read"), packs

    def _open(self, packs: Packs, change: Change) -> tuple[str, Change, Packs]:
        pack = change.pack
        if change.was_done:
            return "finds its request done", Change(pack, "end"), packs
        if change.was_dropped and self.rules.refuse_dropped:
            return f"finds {pack} dropped, gives up", Change(pack, "end"), packs
        if pack not in packs.files and self.rules.open_after_read:
            return f"finds {pack} gone, gives up", Change(pack, "end"), packs
        return f"opens {pack}", Change(pack, "publish", change.head), packs

    def _cleaner(self, packs: Packs) -> Iterator[Step]:
        """Drop a file that no record names, if it is a joined pack or its request is carried out."""
        cleaner = packs.cleaner
        if not cleaner.left:
            return
        if not cleaner.pack:
            for pack in sorted(packs.files - packs.named - packs.dropped):
                if pack == JOINED or packs.is_done:
                    found = cleaner._replace(pack=pack, head=packs.head)
                    yield f"cleaner reads {packs.head}, finds {pack} unnamed", packs._replace(cleaner=found)
        elif not self.rules.drop_first:
            after = packs._replace(files=packs.files - {cleaner.pack}, cleaner=Cleaner(cleaner.left - 1))
            yield f"cleaner deletes {cleaner.pack}", after
        elif cleaner.head == packs.head:
            after = packs.publish()._replace(dropped=packs.dropped | {cleaner.pack}, cleaner=Cleaner(cleaner.left - 1))
            yield f"cleaner publishes {after.head}, which drops {cleaner.pack}", after
        else:
            yield f"cleaner finds {cleaner.head + 1} taken", packs._replace(cleaner=Cleaner(cleaner.left))

    def _a_day_later(self, packs: Packs) -> Iterator[Step]:
        for pack in sorted(packs.dropped & packs.files):
            yield f"a day later {pack} is deleted", packs._replace(files=packs.files - {pack})
        for pack in sorted(packs.dropped - packs.files):
            yield f"{pack} is forgotten", packs.publish()._replace(dropped=packs.dropped - {pack})


def _with_pack(packs: Packs, pack: str) -> Packs:
    """Name the pack by a record; the joined pack replaces the old ones, which the record drops."""
    if pack == JOINED:
        return packs.publish()._replace(named=packs.named - OLD_PACKS | {pack}, dropped=packs.dropped | OLD_PACKS)
    return packs.publish()._replace(named=packs.named | {pack}, is_done=True)
