"""store.upload: what landed beside an upload, and storage that fails."""

from __future__ import annotations

from collections.abc import Set

import pytest
from builders import MAIN, History, create, push, request_id, upload
from calls import raising
from incoming_uploads import left_in_quarantine, receive

from smartserver.errors import MissingParents, WrongTip
from smartserver.records.model import Tip
from smartserver.store.commit import PlanAgain
from smartserver.store.format import PACKS
from smartserver.store.quarantine import DraftPack
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.store.upload import unreported
from transports.errors import NoSpace

pytestmark = pytest.mark.usefixtures("proving")


@pytest.mark.parametrize("new", [0, 1])
@pytest.mark.parametrize("anew", [False, True])
def test_what_was_left_out_must_still_be_there(
    repository: PackRepository, history: History, new: int, anew: bool
) -> None:
    """The revisions were stored already, all or some: they may not be acknowledged once those are gone."""
    line = history.line(4)
    push(repository, history, line[:3], {MAIN: line[2]})
    slow = upload(repository, history.body(line[: 3 + new]), 3 + new)
    assert not slow.stale(repository.snapshot())
    repository.delete(request_id(), 0, "user")
    transaction = repository.begin()
    if anew:
        push(repository, History(), [], {})
        assert slow.stale(repository.snapshot())
        transaction = repository.begin()
    else:
        assert slow.stale(None)
        create(transaction)
    with pytest.raises(MissingParents) as caught:
        slow.check_again(transaction, unreported, frozenset())
    assert caught.value.revisions == line[:3]
    slow.abandon()


def test_what_is_cut_out_must_stay_too(repository: PackRepository, history: History) -> None:
    line = history.line(5)
    push(repository, history, line[:1], {MAIN: line[0]})
    slow = upload(repository, history.body(line[:4]), 4)
    push(repository, history, line[1:3], {MAIN: line[2]})
    slow.check_again(repository.begin(), unreported, frozenset())
    repository.delete(request_id(), 0, "user")
    push(repository, history, [], {})
    with pytest.raises(MissingParents) as caught:
        slow.check_again(repository.begin(), unreported, frozenset())
    assert set(caught.value.revisions) == set(line[:3])
    slow.abandon()


def test_what_was_refused_and_is_accepted_now_comes_again(repository: PackRepository, history: History) -> None:
    """The request is planned twice: what was cut out as a refused ref's is wanted after another change."""
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    side, other = b"refs/heads/side", history.commit({"other": b"x\n"}, line[:1])
    sent = upload(repository, history.body([line[1], other]), 2)
    plans: list[Set[bytes]] = []

    def plan(transaction: Transaction) -> bytes:
        plans.append(sent.unwanted)
        transaction.set_ref(side, (Tip(other),))
        transaction.is_partial = len(plans) < 2
        if not transaction.is_partial:
            transaction.set_ref(MAIN, (Tip(line[1]),))
        return b""

    def judge(transaction: Transaction) -> None:
        push(repository, history, [], {b"refs/heads/a": line[0]})

    with pytest.raises(MissingParents) as caught:
        repository.commit(request_id(), 0, "user", plan, sent, approve=judge)
    assert caught.value.revisions == [line[1]]
    assert plans == [frozenset(), {line[1]}]
    assert repository.snapshot().ordinal(other) is None
    assert left_in_quarantine(repository) == []


@pytest.mark.parametrize("is_moved", [False, True], ids=["judged", "on a newer state"])
def test_a_refused_ref_is_refused_again(repository: PackRepository, history: History, is_moved: bool) -> None:
    """Its tip was cut out of the pack by then, and is still known to be an annotated tag, which no branch may have."""
    first, second = history.line(2)
    push(repository, history, [first], {MAIN: first})
    tag, judged = history.tag(second), []
    sent = upload(repository, history.body([second, tag]), 2)
    facts = [sent.fact(tag)]

    def plan(transaction: Transaction) -> bytes:
        transaction.set_ref(MAIN, (Tip(second),))
        with pytest.raises(WrongTip):
            transaction.set_ref(b"refs/heads/x", (Tip(tag),))
        transaction.is_partial = True
        return b""

    def judge(transaction: Transaction) -> None:
        judged.append(transaction)
        facts.append(sent.fact(tag))
        if len(judged) == 1:
            if is_moved:
                push(repository, history, [], {b"refs/heads/a": first})
            raise PlanAgain

    with pytest.raises(PlanAgain):
        repository.commit(request_id(), 0, "user", plan, sent, approve=judge)
    repository.commit(request_id(), 0, "user", plan, sent, approve=judge)
    assert len(set(facts)) == 1 < len(facts)
    assert facts[0]
    snapshot = repository.snapshot()
    assert (snapshot.ordinal(second) is not None, snapshot.ordinal(tag)) == (True, None)


def test_a_file_that_fails_when_it_is_closed_is_deleted_all_the_same(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tip,) = history.line(1)
    push(repository, History(), [])
    sent = receive(repository)
    sent.write(history.segment(tip))
    assert len(left_in_quarantine(repository)) == 1
    monkeypatch.setattr(DraftPack, "close", raising(NoSpace("what a network file system says as late as this")))
    sent.abandon()
    assert left_in_quarantine(repository) == []


def test_a_record_that_landed_meanwhile_is_looked_at_again(repository: PackRepository, history: History) -> None:
    root = history.commit({"a": b"a"})
    push(repository, history, [root], {MAIN: root})
    left = history.commit({"a": b"a", "b": b"the same text"}, (root,))
    right = history.commit({"a": b"a", "c": b"the same text"}, (root,))
    slow = upload(repository, history.body([left]), 1)
    push(repository, history, [right], {MAIN: right})
    assert slow.stale(repository.snapshot())
    slow.abandon()


def test_nothing_new_is_never_stale(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    empty = upload(repository, history.body(line[:1]), 1)
    assert empty.entry is None
    push(repository, history, line[1:], {MAIN: line[1]})
    assert not empty.stale(repository.snapshot())
    empty.check_again(repository.begin(), unreported, frozenset())
    assert empty.quarantine is None
    empty.leave()
    assert len(repository.folder.list_directory(PACKS)) == 4
