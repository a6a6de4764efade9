"""A repository against a dict: pushes, forced moves, deletions, slow uploads, repacks, reopening, loss of power, and
copies that are put back below servers that run, or are copied over a living repository."""

from __future__ import annotations

import hypothesis.strategies as st
from builders import MAIN, Clock, History, Repeatable, check_whole, push, refs_of, request_id, upload
from changes import change, files
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_transport import Aftermath, MemoryTransport

from smartserver.records.model import Tip
from smartserver.store.checkpoint import clean_log, make_checkpoint
from smartserver.store.commit import CommitOutcome
from smartserver.store.format import FOLDERS, INCOMING, PACKS
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Upload

NAMES = [MAIN, b"refs/heads/a", b"refs/heads/b", b"refs/tags/t"]
names = st.sampled_from(NAMES)
KEYS = [MAIN + b"\0", MAIN + b"\0a", b"refs/heads/a\0a", b"refs/heads/b\0\xff"]
LONG = st.integers(0, 9).map(lambda number: bytes([number]) * 20_000)
picks = st.integers(0, 1 << 16)


class RepositoryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        self.clock = Clock()
        self.storage = MemoryTransport(self.clock)
        self.seed = 0
        self.refs: dict[bytes, bytes] = {}
        self.notes: dict[bytes, bytes] = {}
        """The entries of a map."""
        self.stored: list[bytes] = []
        """Every revision that was acknowledged."""
        self.pending: list[tuple[Upload, list[bytes], bytes]] = []
        self.answered: list[tuple[bytes, list[bytes], dict[bytes, bytes | None], CommitOutcome]] = []
        self.files = 0
        self.copies: list[dict[str, bytes]] = []
        self.is_copied_over = False
        self.open()

    def open(self) -> None:
        self.repository, self.idle = (self.opened() for _ in range(2))

    def opened(self) -> PackRepository:
        self.seed += 1
        return PackRepository(self.storage, "project", clock=self.clock, randomness=Repeatable(self.seed))

    def pick(self, number: int) -> bytes | None:
        return self.stored[number % len(self.stored)] if self.stored else None

    def new_line(self, count: int, parents: list[bytes]) -> list[bytes]:
        """Commits nobody has seen; some texts come back."""
        made: list[bytes] = []
        for _ in range(count):
            self.files += 1
            before = self.history.files(parents[0]) if parents else {}
            text = b"".join(b"line %d of the text\n" % line for line in range(20)) + b"%d\n" % (self.files % 7)
            files = {**before, f"dir/{self.files % 4}": text}
            made.append(self.history.commit(files, tuple(parents), f"number {self.files}"))
            parents = [made[-1]]
        return made

    def done(
        self, committed: CommitOutcome, revisions: list[bytes], refs: dict[bytes, bytes | None], ask: bytes
    ) -> None:
        for name, tip in refs.items():
            if tip is None:
                self.refs.pop(name, None)
            else:
                self.refs[name] = tip
        self.stored += [each for each in revisions if each not in self.stored]
        if committed.changed:
            self.answered.append((ask, revisions, refs, committed))

    @initialize(links=st.booleans())
    def create(self, links: bool) -> None:
        """Without links a record is published as a folder."""
        self.storage = MemoryTransport(self.clock, links=links)
        self.open()
        push(self.repository, self.history, [])

    @rule(name=names, count=st.integers(1, 3), on=picks, merged=st.booleans(), other=picks, first=st.booleans())
    def bring(self, name: bytes, count: int, on: int, merged: bool, other: int, first: bool) -> None:
        parents = [each for each in (self.pick(on), self.pick(other) if merged else None) if each]
        revisions = self.new_line(count, list(dict.fromkeys(parents)))
        ask = request_id()
        refs: dict[bytes, bytes | None] = {name: revisions[-1]}
        committed = push(self.repository, self.history, revisions, refs, graph_first=first, request=ask)
        assert committed.changed
        self.done(committed, revisions, refs, ask)

    @rule(name=names, to=picks)
    def force(self, name: bytes, to: int) -> None:
        tip = self.pick(to)
        if tip is None:
            return
        ask = request_id()
        refs: dict[bytes, bytes | None] = {name: tip}
        self.done(push(self.repository, self.history, [], refs, request=ask), [], refs, ask)

    @rule(name=names)
    def delete(self, name: bytes) -> None:
        ask = request_id()
        refs: dict[bytes, bytes | None] = {name: None}
        self.done(push(self.repository, self.history, [], refs, request=ask), [], refs, ask)

    @rule(entries=st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=9) | LONG, max_size=4))
    def note(self, entries: dict[bytes, bytes | None]) -> None:
        def noted(transaction: Transaction) -> None:
            for key, value in entries.items():
                transaction.set_map("config", "opaque", key, value)

        before = dict(self.notes)
        self.notes = {key: value for key, value in {**self.notes, **entries}.items() if value is not None}
        assert change(self.repository, noted).changed is (self.notes != before)

    @rule(of=names)
    def forget_what_belongs_to(self, of: bytes) -> None:
        change(self.repository, lambda made: made.remove_entries(of))
        self.notes = {key: value for key, value in self.notes.items() if not key.startswith(of + b"\0")}

    @rule(to=picks)
    def push_what_is_there(self, to: int) -> None:
        tip = self.pick(to)
        revisions = [tip] if tip is not None else []
        assert not push(self.repository, self.history, revisions).changed

    @rule(name=names, count=st.integers(1, 3), on=picks)
    def begin_slow_push(self, name: bytes, count: int, on: int) -> None:
        parent = self.pick(on)
        revisions = self.new_line(count, [parent] if parent else [])
        self.pending.append((upload(self.repository, self.history.body(revisions), count), revisions, name))

    @precondition(lambda self: self.pending)
    @rule(which=picks, whole=st.booleans())
    def another_brings_some_of_it(self, which: int, whole: bool) -> None:
        _, revisions, _ = self.pending[which % len(self.pending)]
        some = revisions if whole else revisions[:1]
        ask = request_id()
        self.done(push(self.repository, self.history, some, request=ask), some, {}, ask)

    @precondition(lambda self: self.pending)
    @rule(which=picks)
    def end_slow_push(self, which: int) -> None:
        sent, revisions, name = self.pending.pop(which % len(self.pending))

        def plan(transaction: Transaction) -> bytes:
            transaction.check_parents()
            transaction.set_ref(name, (Tip(revisions[-1]),))
            return b"slow"

        ask = request_id()
        committed = self.repository.commit(ask, 0, "user", plan, sent)
        self.done(committed, revisions, {name: revisions[-1]}, ask)

    @precondition(lambda self: self.pending)
    @rule(which=picks)
    def abandon_slow_push(self, which: int) -> None:
        self.pending.pop(which % len(self.pending))[0].abandon()

    @precondition(lambda self: self.answered)
    @rule(which=picks)
    def repeat(self, which: int) -> None:
        ask, revisions, refs, first = self.answered[which % len(self.answered)]
        again = push(self.repository, self.history, revisions, refs, request=ask, age=1)
        assert (again.changed, again.outcome) == (False, first.outcome)

    @rule(wants=st.lists(picks, max_size=3), haves=st.lists(picks, max_size=3))
    def pull(self, wants: list[int], haves: list[int]) -> None:
        wanted = [each for each in map(self.pick, wants) if each]
        had = [each for each in map(self.pick, haves) if each]
        transaction = self.repository.begin()
        plan = transaction.plan_pull(wanted, had)
        snapshot = self.repository.snapshot()
        found = {snapshot.revision(ordinal) for start, stop in plan.ranges for ordinal in range(start, stop)}
        assert found == self.history.ancestors(wanted) - self.history.ancestors(had)
        assert (plan.segments, plan.common) == (len(found), (True,) * len(had))
        assert len(transaction.open_body(plan).read(1 << 30)) == plan.size

    @rule()
    def repack(self) -> None:
        before = len(self.repository.snapshot().packs)
        assert self.repository.repack_if_needed() == (len(self.repository.snapshot().packs) < before)

    @rule(days=st.integers(0, 2))
    def collect(self, days: int) -> None:
        self.clock.now += days * 24 * 3600 + 1
        if days:  # A push does not stay a day between its body and its commit.
            self.forget_uploads()
        self.repository.collect_garbage_files()

    @rule()
    def checkpoint(self) -> None:
        make_checkpoint(self.repository.folder, self.repository.log.look().state, self.repository.randomness)
        clean_log(self.repository.folder, self.repository.randomness)

    @rule()
    def reopen(self) -> None:
        self.repository = self.opened()

    @rule()
    def ask_the_other_server(self) -> None:
        self.repository, self.idle = self.idle, self.repository

    @rule(name=names, on=picks, tidied=st.booleans())
    def put_back(self, name: bytes, on: int, tidied: bool) -> None:
        """The repository is what it was before a push, and nothing tells the servers, which have seen that."""
        self.forget_uploads()
        there = {path: content for path, content in files(self.storage).items() if f"/{INCOMING}/" not in path}
        before = dict(self.refs), dict(self.notes), list(self.stored)
        self.bring(name=name, count=1, on=on, merged=False, other=0, first=False)
        if tidied:
            self.repack()
            self.checkpoint()
        self.refs_are_as_told()
        for path in files(self.storage):
            self.storage.delete(path)
            self.storage.sync_directory(path.rpartition("/")[0])
        self.add(there)
        self.refs, self.notes, self.stored = before
        self.copies = [there]  # Others may be of the line that is gone.
        self.answered.clear()

    @precondition(lambda self: self.copies)
    @rule(which=picks)
    def copy_over(self, which: int) -> None:
        """It undoes nothing, since no file is ever replaced."""
        self.add(self.copies[which % len(self.copies)])
        self.is_copied_over = True  # Packs that nothing names any more may be back, which are kept.

    def add(self, copy: dict[str, bytes]) -> None:
        for path, content in copy.items():
            folder = path.rpartition("/")[0]
            if not self.storage.exists(folder):
                self.storage.make_directory(folder)
            if not self.storage.exists(path):
                self.storage.put(path, [content])
            self.storage.sync_directory(folder)
        for folder in ("", *FOLDERS):
            self.storage.sync_directory(f"project/{folder}".rstrip("/"))

    def forget_uploads(self) -> None:
        while self.pending:
            self.pending.pop()[0].abandon()

    @rule(aftermath=st.sampled_from(Aftermath), seed=picks)
    def lose_power(self, aftermath: Aftermath, seed: int) -> None:
        self.storage = self.storage.crash(aftermath, seed)
        self.forget_uploads()
        self.open()
        self.repository.collect_garbage_files()

    @invariant()
    def refs_are_as_told(self) -> None:
        for server in (self.repository, self.idle):
            if server.exists():
                assert refs_of(server) == self.refs
                assert dict(server.snapshot().state.map("config").items()) == self.notes

    def teardown(self) -> None:
        if not self.repository.exists():
            return
        self.forget_uploads()
        snapshot = check_whole(self.repository, self.history)
        assert sorted(map(snapshot.revision, range(snapshot.graph.count))) == sorted(self.stored)
        for _ in range(2):  # What is superseded is dropped, and deleted a day later.
            self.clock.now += 24 * 3600 + 1
            self.repository.collect_garbage_files()
        assert self.storage.list_directory(f"project/{INCOMING}") == []
        state = self.repository.snapshot().state
        assert not state.dropped
        assert self.is_copied_over or len(self.storage.list_directory(f"project/{PACKS}")) == 2 * len(state.packs)
        assert max((row.depth for pack in snapshot.packs for row in pack.index.rows()), default=0) <= 64


RepositoryMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRepository = RepositoryMachine.TestCase
