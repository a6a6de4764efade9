"""A root through any swaps, folds, reopenings, deletions and crashes, against plain dictionaries."""

from __future__ import annotations

import random
from operator import attrgetter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from smartserver.records.model import Kind, RefValue, Tip
from smartserver.store.creation import Creation
from smartserver.store.document import decode_value, empty_root, encode_root
from smartserver.store.model import RootVersion
from smartserver.store.root import FOLD_AT, RootView, next_root, tombstone
from smartserver.store.swap import RootFile
from smartserver.store.swap_log import NewLogEntry
from transports.memory import Aftermath, MemoryTransport

DAY = 24 * 3600
NAMES = st.one_of(
    st.integers(0, 400).map(lambda number: b"refs/heads/%d" % number),
    st.binary(min_size=1, max_size=40).map(lambda name: name.replace(b"\0", b"0")),
)
KEYS = NAMES | st.builds(lambda of, key: of + b"\0" + key, NAMES, NAMES | st.just(b""))
LONG = st.integers(1, 3).map(lambda number: b"v" * 20_000 * number)
IDS = st.integers(0, 50).map(lambda number: number.to_bytes(20, "big"))
VALUES = st.lists(
    st.builds(Tip, IDS, st.binary(max_size=5), st.booleans()), min_size=1, max_size=3, unique_by=lambda tip: tip.id
).map(lambda tips: tuple(sorted(tips, key=attrgetter("id"))))


class RootMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000.0
        self.storage = MemoryTransport(clock=lambda: self.now)
        self.random = random.Random(1)
        self.file = RootFile(self.storage, "a", randomness=self.random.randbytes)
        self.refs: dict[bytes, RefValue] = {}
        self.tags: dict[bytes, bytes] = {}
        self.requests: dict[bytes, tuple[int, float]] = {}
        """Request id -> version it made, when."""
        self.history: list[tuple[bytes, int, int, dict[bytes, RefValue], dict[bytes, bytes]]] = []
        """What clients may know: incarnation, version, refs, tags."""

    # -- steps

    def log(self) -> NewLogEntry:
        self.request = self.random.randbytes(16)
        return NewLogEntry("joe", self.request, b"outcome of " + self.request)

    def remember(self, view: RootView) -> None:
        self.requests[self.request] = (view.root.version, self.now)
        root = view.root
        self.history.append((root.incarnation, root.version, view.mark(root.version), dict(self.refs), dict(self.tags)))

    def view(self) -> RootView:
        return RootView(self.file.read(), self.file.folder)

    @property
    def deleted(self) -> bool:
        return self.file.read().deleted

    def create(self) -> None:
        self.refs, self.tags, self.requests = {}, {}, {}
        kinds = [Kind("object", "git-sha1", True)]
        Creation(self.file).hold_place("git sha1", kinds)
        with self.file.swapping() as swap:
            empty = empty_root(self.random.randbytes(16), "git sha1", kinds, now=self.now, over=swap.current)
            view = RootView(empty, self.file.folder)
            made = next_root(
                view, now=self.now, declare={"tags": "ids"}, log=self.log(), randomness=self.random.randbytes
            ).finish()
            swap.replace(*made)
        self.remember(self.view())

    def push(self, refs: dict[bytes, RefValue | None], tags: dict[bytes, bytes | None], outcomes: bytes = b"") -> None:
        log = self.log()
        if outcomes:
            log = NewLogEntry(log.user, log.request, outcomes)
        with self.file.swapping() as swap:
            view = RootView(swap.current, self.file.folder)
            swap.replace(
                *next_root(
                    view, now=self.now, refs=refs, maps={"tags": tags}, log=log, randomness=self.random.randbytes
                ).finish()
            )
        held: list[tuple[dict[bytes, Any], dict[bytes, Any]]] = [(self.refs, refs), (self.tags, tags)]
        for model, changes in held:
            for key, value in changes.items():
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = value
        self.remember(self.view())

    # -- rules

    @initialize()
    def begin(self) -> None:
        self.create()

    @precondition(lambda self: not self.deleted)
    @rule(
        refs=st.dictionaries(NAMES, st.none() | VALUES, max_size=4),
        tags=st.dictionaries(KEYS, st.none() | st.binary(max_size=30) | LONG, max_size=4),
    )
    def a_small_push(self, refs: dict[bytes, RefValue | None], tags: dict[bytes, bytes | None]) -> None:
        self.push(refs, tags)

    @precondition(lambda self: not self.deleted)
    @rule(first=st.integers(0, 400), count=st.integers(1, 500), value=VALUES)
    def a_push_of_many(self, first: int, count: int, value: RefValue) -> None:
        self.push({b"refs/heads/%d" % number: value for number in range(first, first + count)}, {})

    @precondition(lambda self: not self.deleted)
    @rule(share=st.integers(1, 4))
    def many_are_removed(self, share: int) -> None:
        self.push(dict.fromkeys(sorted(self.refs)[::share]), dict.fromkeys(self.tags))

    @precondition(lambda self: not self.deleted)
    @rule(size=st.integers(1000, 30_000))
    def a_long_answer(self, size: int) -> None:
        self.push({}, {b"long": b"%d" % size}, b"x" * size)

    @precondition(lambda self: not self.deleted)
    @rule(count=st.integers(1, 60))
    def a_row_of_pushes(self, count: int) -> None:
        for number in range(count):
            self.push({b"refs/heads/%d" % number: (Tip(self.random.randbytes(20)),)}, {})

    @rule(names=st.integers(1, 40))
    def packs_are_dropped(self, names: int) -> None:
        with self.file.swapping() as swap:
            dropped = [self.random.randbytes(16) for _ in range(names)]
            view = RootView(swap.current, self.file.folder)
            swap.replace(*next_root(view, now=self.now, dropped=dropped, randomness=self.random.randbytes).finish())
        assert {entry.name for entry in self.view().dropped()} >= set(dropped)

    @rule(seconds=st.sampled_from([1, 3600, DAY // 2, DAY + 1]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def another_process_opens_it(self) -> None:
        self.file = RootFile(self.storage, "a", randomness=self.random.randbytes)

    @rule(aftermath=st.sampled_from(list(Aftermath)), seed=st.integers(0, 5))
    def the_power_fails(self, aftermath: Aftermath, seed: int) -> None:
        self.storage = self.storage.crash(aftermath, seed)
        self.file = RootFile(self.storage, "a", randomness=self.random.randbytes)

    @precondition(lambda self: not self.deleted)
    @rule()
    def it_is_deleted(self) -> None:
        with self.file.swapping() as swap:
            view = RootView(swap.current, self.file.folder)
            swap.replace(*tombstone(view, now=self.now, log=self.log(), randomness=self.random.randbytes).finish())
        self.refs, self.tags = {}, {}
        self.requests[self.request] = (self.file.read().version, self.now)
        self.history = []

    @precondition(lambda self: self.deleted)
    @rule()
    def it_is_made_anew(self) -> None:
        self.create()

    # -- what holds

    @invariant()
    def the_refs_are_the_models(self) -> None:
        view = self.view()
        assert list(view.refs().items()) == sorted(self.refs.items())
        assert len(view.refs()) == len(self.refs)
        for name in [*list(self.refs)[:3], b"absent"]:
            assert view.ref(name) == self.refs.get(name)
        if not self.deleted:
            assert list(view.maps["tags"].items()) == sorted(self.tags.items())

    @invariant()
    def the_root_is_small_and_its_files_whole(self) -> None:
        root = self.file.read()
        assert len(encode_root(root)) <= FOLD_AT + 64
        assert RootView(root, self.file.folder).verify() == []

    @invariant()
    def a_client_that_knew_an_older_root_comes_up_to_date(self) -> None:
        if self.deleted:
            return
        view = self.view()
        for incarnation, version, mark, refs, tags in self.history[-3:] + self.history[:2]:
            changes = view.changes_since(RootVersion(incarnation, version, mark))
            values = {name: None if value is None else decode_value(value) for name, value in changes.refs.items()}
            known: list[tuple[dict[bytes, Any], Any]] = [(refs, values), (tags, changes.maps.get("tags", {}))]
            for before, changed in known:
                told = {} if changes.since is None else dict(before)
                told.update(changed.items())
                now = {key: value for key, value in told.items() if value is not None}
                assert now == (self.refs if before is refs else self.tags)

    @invariant()
    def a_request_is_found_or_known_to_be_out_of_reach(self) -> None:
        view = self.view()
        for request, (version, at) in list(self.requests.items())[-2:] + list(self.requests.items())[:2]:
            entry = view.find_request(request, in_files=True)
            if entry is None:
                assert not view.log_covers(int((self.now - at) * 1000), self.now)
                assert self.now - at > DAY
            else:
                assert entry.version == version
        assert view.find_request(b"never asked for!", in_files=True) is None


TestRootMachine = RootMachine.TestCase
TestRootMachine.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
