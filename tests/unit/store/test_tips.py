"""store.transaction.TipProof: the attributes of tips that a commit stores, whatever a client says, and its reads."""

from __future__ import annotations

import pytest
from builders import MAIN, History, create, push
from bzr_builders import TRUNK, BzrHistory
from memory_transport import MemoryTransport

from smartserver.records.model import RefValue, Tip
from smartserver.store import transaction as module
from smartserver.store.allowance import Allowance
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import TipProof, Transaction

TAGS = b"refs/tags/"


def stored(repository: PackRepository) -> dict[bytes, RefValue]:
    return dict(repository.snapshot().state.refs().items())


def claim(repository: PackRepository, history: History, **refs: Tip) -> bool:
    """Set refs with what a client says of their tips; whether the repository changed."""

    def first(transaction: Transaction) -> None:
        for name, tip in refs.items():
            transaction.set_ref(TAGS + name.encode(), (tip,))

    return push(repository, history, [], first=first).changed


@pytest.fixture
def repository(history: History) -> PackRepository:
    repository = PackRepository(MemoryTransport(), "project")
    push(repository, history, [history.line(1)[0]], first=create)
    return repository


def test_what_a_tag_peels_to_is_proved_when_it_comes_and_later(repository: PackRepository, history: History) -> None:
    (commit,) = history.parents
    tag = history.tag(commit)
    nested, blob = history.tag(tag, "nested"), history.tag(history.key_at(commit, "README"), "blob")
    new = {b"a": tag, b"b": nested, b"c": blob, b"d": commit}

    def first(transaction: Transaction) -> None:
        for name, tip in new.items():
            transaction.set_ref(TAGS + name, (Tip(tip, b"claimed", closed=True),))
        transaction.set_ref(MAIN, (Tip(commit, commit),))

    push(repository, history, [tag, nested, blob], first=first)
    right = {
        TAGS + b"a": (Tip(tag, commit),),
        TAGS + b"b": (Tip(nested, commit),),
        TAGS + b"c": (Tip(blob, history.key_at(commit, "README")),),
        TAGS + b"d": (Tip(commit),),
        MAIN: (Tip(commit),),
    }
    assert stored(repository) == right
    later = {"e": Tip(nested, tag), "f": Tip(blob), "g": Tip(commit, tag), "a": Tip(nested, b"x")}
    assert claim(repository, history, **later)
    right |= {TAGS + b"e": right[TAGS + b"b"], TAGS + b"f": right[TAGS + b"c"], TAGS + b"g": right[TAGS + b"d"]}
    assert stored(repository) == right | {TAGS + b"a": right[TAGS + b"b"]}


def test_a_claim_about_the_same_tip_changes_nothing_and_is_remembered(
    repository: PackRepository, history: History
) -> None:
    """Were it not, a repetition of the request could be carried out after somebody else's change."""
    tag = history.tag(next(iter(history.parents)))
    push(repository, history, [tag], {TAGS + b"a": tag})
    before = stored(repository)
    assert claim(repository, history, a=Tip(tag, b"claimed"))
    assert (stored(repository), list(repository.snapshot().state.history)[-1].changes) == (before, ())


def test_numbers_are_counted_in_what_comes_and_in_what_is_stored() -> None:
    history, repository = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(4)
    grafted = history.commit({b"f": b"grafted"}, [line[1]], [b"ghost"], ghost_first=True)
    history.push(repository, history.parents, {TRUNK: Tip(line[3], b"2"), b"grafted": Tip(grafted, b"9" * 3000)})
    assert stored(repository) == {TRUNK: (Tip(line[3], b"4"),), b"grafted": (Tip(grafted, b"1"),)}
    more = [history.commit({b"f": b"more"}, [line[3]]), history.commit({b"f": b"later"}, [grafted])]
    history.push(repository, more, {TRUNK: Tip(more[0]), b"grafted": Tip(more[1], b"1"), b"old": Tip(line[2], b"7")})
    assert {name: value[0].attributes for name, value in stored(repository).items()} == {
        TRUNK: b"5",
        b"grafted": b"2",
        b"old": b"3",
    }


def test_a_push_on_top_reads_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    history, repository = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(30)
    history.push(repository, line, {TRUNK: Tip(line[-1])})
    new = history.commit({b"f": b"new"}, [line[-1]])
    monkeypatch.setattr(Snapshot, "first_parent", None)
    history.push(repository, [new], {TRUNK: Tip(new)})
    assert stored(repository) == {TRUNK: (Tip(new, b"31"),)}


@pytest.mark.parametrize("ahead", [256, 8, 1])
def test_headers_behind_a_link_are_read_together(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    history, repository = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(20)
    line.append(history.commit({b"f": b"merge"}, [line[-1], line[3]]))
    line.append(history.commit({b"f": b"grafted"}, [line[-1]], [b"ghost"], ghost_first=True))
    line.append(history.commit({b"f": b"later"}, [line[-1]]))
    history.push(repository, line, {})
    snapshot = repository.snapshot()
    expected = [snapshot.first_parent(ordinal) for ordinal in range(len(line))]
    reads = 0
    together = Snapshot.first_parents

    def counted(self: Snapshot, ordinals: range) -> dict[int, int | None]:
        nonlocal reads
        reads += 1
        return together(self, ordinals)

    monkeypatch.setattr(module, "AHEAD", ahead)
    monkeypatch.setattr(Snapshot, "first_parents", counted)
    monkeypatch.setattr(snapshot, "is_remote", True)
    transaction = Transaction("project", snapshot)
    proof: TipProof = transaction.tips
    assert [proof.first_parent(ordinal) for ordinal in reversed(range(len(line)))] == expected[::-1]
    assert reads == -(-len(line) // ahead)


def test_what_it_reads_is_charged(repository: PackRepository, history: History) -> None:
    tag = history.tag(next(iter(history.parents)))
    push(repository, history, [tag], {TAGS + b"a": tag})
    allowance = Allowance()
    transaction = Transaction("project", repository.snapshot(), allowance=allowance)
    transaction.set_ref(TAGS + b"b", (Tip(tag),))
    before = allowance.steps
    transaction.prove_tips()
    assert (allowance.steps - before, allowance.decoded >= 1024) == (3, True)


def test_each_ref_is_looked_at_once(repository: PackRepository, history: History) -> None:
    compared = 0

    class Name(bytes):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = bytes.__hash__

    claimed: dict[bytes, RefValue] = {
        Name(TAGS + b"%d" % number): (Tip(next(iter(history.parents))),) for number in range(100)
    }
    assert Transaction("project", repository.snapshot()).tips.values(claimed, {}) == claimed
    assert compared <= 3 * len(claimed)
