"""store.prune: what nothing reaches is removed, with its bytes, and the rest is as it was."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from builders import GIT, KINDS, MAIN, Clock, Far, History, check_whole, locate, push, refs_of
from changes import change
from memory_transport import MemoryTransport
from pack_texts import texts_in

from smartserver.errors import IncompleteRepository, MissingRevision
from smartserver.store import open_pack, summarise
from smartserver.store import prune as module
from smartserver.store.caches import TextCache
from smartserver.store.prune import prune, unreached
from smartserver.store.repository import PackRepository
from smartserver.store.summaries import summaries_path
from smartserver.store.transaction import Transaction
from transports.base import Transport
from transports.errors import TransportFailed

SIDE = b"refs/heads/side"
SECRET = b"hunter2, which nobody may know\n"
DAY = 24 * 3600


@pytest.fixture(params=[lambda store: store, Far], ids=["near", "far"])
def repository(request: pytest.FixtureRequest, storage: MemoryTransport, clock: Clock) -> PackRepository:
    reach: Callable[[Transport], Transport] = request.param
    return PackRepository(reach(storage), clock=clock)


def with_secret(repository: PackRepository, history: History) -> tuple[bytes, bytes]:
    """A history whose second revision was pushed with a secret, then without, and was built upon. The one with it, and
    the newest."""
    (first,) = history.line(1)
    files = history.files(first)
    wrong = history.commit({**files, "a": b"of both\n" * 9, "secret": SECRET * 99}, (first,), "wrong")
    right = history.commit({**files, "a": b"of both\n" * 9}, (first,), "right")
    newest = right
    push(repository, history, [first], {MAIN: first})
    push(repository, history, [wrong], {MAIN: wrong})
    push(repository, history, [right], {MAIN: right})
    for number in range(3):  # Each rests on the copy that `wrong` brought, and then on that of `right`.
        newest = history.commit({**files, "a": b"of both\n" * 9 + b"%d\n" % number}, (newest,), f"on {number}")
        push(repository, history, [newest], {MAIN: newest})
    return wrong, newest


def test_without_a_server_all_old_files_go_at_once(
    repository: PackRepository, storage: MemoryTransport, history: History
) -> None:
    with_secret(repository, history)
    repository.repack()
    storage.put("incoming/of-a-dead-writer.pack", (SECRET,))
    before = repository.snapshot().state.incarnation
    assert prune(repository) == 1
    assert repository.snapshot().state.incarnation != before
    assert repository.collect_garbage_files(0) > 0
    assert storage.list_directory("incoming") == []
    assert SECRET * 99 not in texts_in(storage)
    assert len(storage.list_directory("packs")) == 2
    check_whole(repository, history)


def test_a_secret_is_nowhere_a_day_later(
    repository: PackRepository, storage: MemoryTransport, history: History, clock: Clock
) -> None:
    wrong, newest = with_secret(repository, history)
    key = history.key_at(wrong, "a")
    assert len(locate(repository.snapshot(), 0, key)) == 2
    assert unreached(repository.snapshot()).heads == [wrong]
    assert SECRET * 99 in texts_in(storage)
    before = repository.snapshot().state
    assert prune(repository) == 1
    snapshot = check_whole(repository, history)
    assert len(locate(snapshot, 0, key)) == 1
    assert snapshot.ordinal(wrong) is None
    assert snapshot.first(0, history.key_at(wrong, "secret")) is None
    assert refs_of(repository) == {MAIN: newest}
    assert snapshot.state.incarnation != before.incarnation
    assert SECRET * 99 in texts_in(storage), "the old pack is kept for a day"
    repository.collect_garbage_files()
    assert SECRET * 99 in texts_in(storage)
    clock.now += DAY + 1
    repository.collect_garbage_files()
    assert SECRET * 99 not in texts_in(storage)
    assert not repository.snapshot().state.dropped
    check_whole(repository, history)
    assert repository.repack().after == 1
    check_whole(repository, history)
    assert prune(repository) == 0


def test_a_copy_that_is_not_done_keeps_all(repository: PackRepository, history: History) -> None:
    """Its refs come last."""
    (first,) = history.line(1)

    def create(transaction: Transaction) -> None:
        transaction.create(GIT, KINDS, {}, incomplete=True)

    push(repository, history, [first], first=create)
    with pytest.raises(IncompleteRepository, match="a copy into it was interrupted"):
        prune(repository)
    assert repository.snapshot().ordinal(first) == 0


class _Remote(dict[bytes, bytes]):
    """A cache on another machine, which keeps all."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value


def test_no_cache_gives_it(storage: MemoryTransport, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches of a server's memory, of its workers and of other machines, and the summaries of logs."""
    for owner in (open_pack, summarise):
        monkeypatch.setattr(owner, "LEAST", 1)
    texts, common, remote = TextCache(), _Remote(), _Remote()
    texts.common, texts.remote = common, remote
    repository = PackRepository(storage, texts=texts)
    wrong, newest = with_secret(repository, history)
    key = history.key_at(wrong, "secret")
    old = repository.snapshot()
    assert old.text(0, key) is not None
    assert old.lookup(0, key) is not None
    assert remote
    assert common
    repository.summarise()
    place = old.state.packs[old.graph.part_at(old.graph.ordinal(wrong) or 0)].name
    assert storage.exists(summaries_path(place))
    prune(repository)
    new = repository.snapshot()
    assert new.text(0, key) is None
    assert new.lookup(0, key) is None
    repository.summarise()
    storage.put("incoming/of-a-dead-writer.pack", (SECRET,))
    repository.collect_garbage_files(0)
    assert storage.list_directory("incoming") == []
    names = {pack.name.hex() for pack in new.state.packs}
    assert {name.partition(".")[0] for name in storage.list_directory("packs")} == names
    assert refs_of(repository) == {MAIN: newest}


def test_whoever_had_the_repository_open_goes_on(
    repository: PackRepository, storage: MemoryTransport, history: History
) -> None:
    """Another server, which had all packs open: its next request sees what is left, and a push that rests on what went
    is told so."""
    wrong, newest = with_secret(repository, history)
    other = PackRepository(storage)
    old = other.snapshot()
    late = history.commit({"late": b"x\n"}, (wrong,))
    prune(repository)
    assert old.ordinal(wrong) is not None
    assert check_whole(other, history).ordinal(wrong) is None
    with pytest.raises(MissingRevision):
        other.begin().plan_pull([wrong], [])
    after = history.commit({"after": b"x\n"}, (newest,))
    push(other, history, [after], {MAIN: after})
    push(repository, history, [wrong, late], {SIDE: late})  # Whoever has it may push it again.
    check_whole(other, history)


def test_tags_keep_what_they_are_on(repository: PackRepository, history: History) -> None:
    wrong, _ = with_secret(repository, history)
    tag = history.tag(wrong)
    push(repository, history, [tag], {b"refs/tags/v1": tag})
    assert prune(repository) == 0
    push(repository, history, [], {b"refs/tags/v1": None})
    assert unreached(repository.snapshot()).heads == [tag]
    assert prune(repository) == 2
    check_whole(repository, history)


def test_who_pushes_meanwhile_is_not_lost(
    repository: PackRepository, storage: MemoryTransport, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes a ref on what was to go: that stays."""
    wrong, newest = with_secret(repository, history)
    record, other = module._Pruning._record, PackRepository(storage)
    left = 1

    def late(self: module._Pruning, *arguments: object) -> object:
        nonlocal left
        if left:
            left -= 1
            push(other, history, [], {SIDE: wrong})
        return record(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Pruning, "_record", late)
    assert prune(repository) == 0
    assert refs_of(repository) == {MAIN: newest, SIDE: wrong}
    check_whole(repository, history)
    assert storage.list_directory("incoming") == []
    push(other, history, [], {SIDE: None})
    left = 99
    tips = iter(range(99))

    def busy(self: module._Pruning, *arguments: object) -> object:
        push(other, history, [], {b"refs/heads/%d" % next(tips): newest})
        return record(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Pruning, "_record", busy)
    with pytest.raises(TransportFailed, match="other processes kept changing the repository"):
        prune(repository)
    assert repository.snapshot().ordinal(wrong) is not None
    check_whole(repository, history)


@pytest.mark.parametrize("seed", range(12))
def test_any_history(seed: int) -> None:
    """Pushes by force, deletions and repacks in any order; what is left is whole, and as small as a copy of it."""
    chance, history = random.Random(seed), History()
    repository = PackRepository(MemoryTransport())
    known: list[bytes] = []
    brought: set[bytes] = set()
    refs: dict[bytes, bytes] = {}
    for step in range(40):
        parents = tuple(dict.fromkeys(chance.choices(known, k=chance.choice((0, 1, 1, 1, 2))))) if known else ()
        files = dict(history.files(parents[0])) if parents else {}
        name = f"file{chance.randrange(4)}"
        files[name] = files.get(name, b"") + b"line %d\n" % chance.randrange(5)
        new = history.commit(files, parents, f"{step}")
        known.append(new)
        ref = b"refs/heads/%d" % chance.randrange(3)
        stored = history.ancestors([new]) - brought
        push(repository, history, [each for each in history.parents if each in stored], {ref: new})
        refs[ref] = new
        brought |= stored
        if chance.random() < 0.2:
            repository.repack_if_needed() if chance.random() < 0.5 else repository.repack()
        if chance.random() < 0.15:
            push(repository, history, [], {ref: None})
            del refs[ref]
        if chance.random() < 0.2:
            gone = brought - history.ancestors(refs.values())
            assert prune(repository) == len(gone)
            brought -= gone
            assert refs_of(repository) == refs
            assert check_whole(repository, history).graph.count == len(brought)
    assert prune(repository) == len(brought - history.ancestors(refs.values()))
    assert check_whole(repository, history).graph.count == len(history.ancestors(refs.values()))


def test_an_entry_of_a_map_about_what_goes_goes_too(history: History) -> None:
    """One that keeps a revision alive keeps it."""
    repository = PackRepository(MemoryTransport())
    line = history.line(2)
    push(repository, history, line, {MAIN: line[0]})
    change(repository, lambda made: made.set_map("tags", "ids", MAIN + b"\0v1", line[1]))
    assert prune(repository) == 0
    change(repository, lambda made: made.set_map("tags", "ids", MAIN + b"\0v1", None))
    assert prune(repository) == 1
    assert repository.snapshot().state.vcs == GIT
    check_whole(repository, history)
