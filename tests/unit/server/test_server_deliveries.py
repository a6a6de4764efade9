"""server.deliveries, store.cursor: receivers are told of each change at least once, in order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from builders import MAIN, Clock, Far, History, push
from faulty_transport import FaultMode, FaultyTransport
from memory_transport import MemoryTransport
from scripts import script

from smartserver.errors import CorruptFile
from smartserver.server import deliveries as module
from smartserver.server.deliveries import Deliveries, deliver, tell
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.hook_url import ReceiverFailed
from smartserver.server.hooks import Hooks
from smartserver.store import history as store_history
from smartserver.store.cursor import CursorContent, CursorFile
from smartserver.store.prune import prune
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.errors import CodedError
from transports.local import LocalTransport

PATIENCE = 60
HOOK = Hook(HookText("**", after=["/receiver"], time_limit=20))
OWN, OTHER = b"this one", b"another "


class Receiver:
    """Takes messages until it is told to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.took: list[dict[str, object]] = []
        self.fails_at: set[int] = set()
        self.calls = 0
        self.then: Callable[[], None] = lambda: None
        monkeypatch.setattr(module, "tell", self._tell)

    def _tell(self, hook: Hook, message: dict[str, object], environment: Mapping[str, str], store: str | None) -> None:
        self.calls += 1
        if self.calls in self.fails_at:
            raise ReceiverFailed("it is away")
        self.took.append(message)
        self.then()

    def news(self) -> list[list[str]]:
        """The new tip of `MAIN`, by message."""
        return [change["new"] for each in self.took for change in each.get("changes", ())]  # type: ignore[attr-defined]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    return Receiver(monkeypatch)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(clock: Clock) -> MemoryTransport:
    return MemoryTransport(clock=clock)


@pytest.fixture(params=[lambda store: store, Far], ids=["near", "far"])
def repository(request: pytest.FixtureRequest, storage: MemoryTransport, clock: Clock) -> PackRepository:
    reach: Callable[[Transport], Transport] = request.param
    return PackRepository(reach(storage), clock=clock)


@pytest.fixture
def line(repository: PackRepository) -> list[bytes]:
    """A repository with a first revision."""
    history = History()
    made = history.line(30)
    push(repository, history, made, {MAIN: made[0]})
    return made


def move(repository: PackRepository, tip: bytes) -> None:
    push(repository, History(), [], {MAIN: tip})


def cursors(storage: MemoryTransport) -> list[str]:
    return [each for each in storage.list_directory("packs") if each.startswith("after-")]


def test_all_refs_first_and_each_change_then(
    repository: PackRepository, line: list[bytes], receiver: Receiver, storage: MemoryTransport
) -> None:
    assert deliver(repository, HOOK, {}, OWN)
    (first,) = receiver.took
    assert first == {
        "path": "", "vcs": "git sha1", "version": 2, "repository": "whole", "refs": {MAIN.decode(): [line[0].hex()]},
    }  # fmt: skip
    for tip in line[1:4]:
        move(repository, tip)
    assert deliver(repository, HOOK, {}, OWN)
    assert deliver(repository, HOOK, {}, OWN)
    assert receiver.news() == [[tip.hex()] for tip in line[1:4]]
    last = receiver.took[-1]
    assert last["changes"] == [{"ref": MAIN.decode(), "old": [line[2].hex()], "new": [line[3].hex()]}]
    assert (last["user"], last["repository"], last["version"], last["options"]) == ("user", "changed", 5, [])
    assert len(cursors(storage)) == 1
    assert storage.list_directory("incoming") == []


def test_a_message_that_failed_is_told_again_before_the_next(
    repository: PackRepository, line: list[bytes], receiver: Receiver
) -> None:
    deliver(repository, HOOK, {}, OWN)
    for tip in line[1:5]:
        move(repository, tip)
    receiver.fails_at = {4, 5}
    for _ in range(2):
        with pytest.raises(ReceiverFailed):
            deliver(repository, HOOK, {}, OWN)
    assert deliver(repository, HOOK, {}, OTHER), "the lease was given back"
    assert receiver.news() == [[tip.hex()] for tip in line[1:5]]


def test_what_came_meanwhile_is_told_too(repository: PackRepository, line: list[bytes], receiver: Receiver) -> None:
    deliver(repository, HOOK, {}, OWN)

    def meanwhile() -> None:
        if receiver.calls < 4:
            move(repository, line[receiver.calls])

    receiver.then = meanwhile
    move(repository, line[1])
    assert deliver(repository, HOOK, {}, OWN)
    assert receiver.news() == [[tip.hex()] for tip in line[1:4]]


def test_one_server_tells_at_a_time(
    repository: PackRepository, storage: MemoryTransport, clock: Clock, line: list[bytes], receiver: Receiver
) -> None:
    """One that died with the lease is waited for until its time is over."""
    deliver(repository, HOOK, {}, OWN)
    move(repository, line[1])
    other = PackRepository(storage, clock=clock)
    ended: list[bool] = []
    receiver.then = lambda: ended.append(deliver(other, HOOK, {}, OTHER))
    deliver(repository, HOOK, {}, OWN)
    assert ended == [False]
    receiver.then = lambda: None
    move(repository, line[2])
    file = CursorFile(repository.folder, HOOK.receiver, repository.randomness)
    cursor = file.read()
    assert file.move(cursor, CursorContent(cursor.content.position, OTHER, 80)) is not None
    clock.now += 79
    assert not deliver(repository, HOOK, {}, OWN)
    clock.now += 2
    assert deliver(repository, HOOK, {}, OWN)
    assert receiver.news() == [[tip.hex()] for tip in line[1:3]]


def test_one_that_is_slow_and_lost_its_lease_stops(
    repository: PackRepository, storage: MemoryTransport, clock: Clock, line: list[bytes], receiver: Receiver
) -> None:
    deliver(repository, HOOK, {}, OWN)
    for tip in line[1:4]:
        move(repository, tip)
    other = PackRepository(storage, clock=clock)

    def meanwhile() -> None:
        receiver.then = lambda: None
        clock.now += 1000
        assert deliver(other, HOOK, {}, OTHER)

    receiver.then = meanwhile
    assert not deliver(repository, HOOK, {}, OWN)
    told = receiver.news()
    assert told == [[line[at].hex()] for at in (1, 1, 2, 3)], "once too often, and in order"
    assert deliver(repository, HOOK, {}, OWN)
    assert receiver.news() == told


@pytest.mark.parametrize("how", ["old", "pruned", "deleted"])
def test_where_the_log_does_not_reach_back_all_refs_are_told(
    repository: PackRepository, line: list[bytes], receiver: Receiver, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    deliver(repository, HOOK, {}, OWN)
    if how == "old":
        monkeypatch.setattr(store_history, "KEPT_BYTES", 500)
        for tip in line[1:]:
            move(repository, tip)
    elif how == "pruned":
        move(repository, line[1])
        assert prune(repository) == 28
    else:
        repository.delete(bytes(16), 0, "user")
    assert deliver(repository, HOOK, {}, OWN)
    last = receiver.took[-1]
    assert len(receiver.took) == 2
    tip = {"old": line[-1], "pruned": line[1], "deleted": b""}[how]
    assert last["refs"] == ({MAIN.decode(): [tip.hex()]} if tip else {})
    assert last["repository"] == ("whole" if tip else "deleted")
    assert deliver(repository, HOOK, {}, OWN)
    assert len(receiver.took) == 2


@pytest.mark.parametrize("mode", ["fail", "lose", "die"])
def test_a_fault_at_any_call_leaves_nothing_out(
    storage: MemoryTransport, clock: Clock, line: list[bytes], receiver: Receiver, mode: FaultMode
) -> None:
    """Another server goes on, once the lease is over."""
    whole = PackRepository(storage, clock=clock)
    deliver(whole, HOOK, {}, OWN)
    at, tips = 0, iter(range(1, 30))
    while True:
        at += 1
        told = len(receiver.news())
        places = [next(tips), next(tips)] if at < 14 else []
        for place in places:
            move(whole, line[place])
        faulty = FaultyTransport(storage, fail_at=at, mode=mode)
        with contextlib.suppress(CodedError):
            deliver(PackRepository(faulty, clock=clock), HOOK, {}, OWN)
        done = faulty.calls < at
        clock.now += 1000
        assert deliver(PackRepository(storage, clock=clock), HOOK, {}, OTHER)
        seen = list(dict.fromkeys(each for (each,) in receiver.news()[told:]))
        assert seen == [line[place].hex() for place in places], (at, faulty.log)
        if done or not places:
            break
    assert at > 8, "each call had its fault"


def test_a_damaged_cursor_is_told(repository: PackRepository, line: list[bytes], storage: MemoryTransport) -> None:
    storage.put(f"packs/after-{HOOK.receiver.hex()}-0000000007", (b"\xc1",))
    with pytest.raises(CorruptFile, match="delete the file, then the hooks run for all refs again"):
        deliver(repository, HOOK, {}, OWN)


def test_the_rest_of_the_repository_does_not_mind(
    repository: PackRepository, line: list[bytes], receiver: Receiver, clock: Clock, storage: MemoryTransport
) -> None:
    deliver(repository, HOOK, {}, OWN)
    clock.now += 2 * 24 * 3600
    repository.collect_garbage_files()
    repository.repack()
    assert len(cursors(storage)) == 1
    assert repository.verify().problems == ()


# -- receivers


@pytest.mark.parametrize(
    ("text", "why"),
    [("cat > told; echo $SMARTSERVER_REPOSITORY >> told; cp told $1", None), ("echo no; exit 1", "no"),
     ("exit 2", "it ended with status 2"), ("sleep 60", "it did not end within 1 s")],
)  # fmt: skip
def test_a_command_gets_it_as_its_input(tmp_path: Path, text: str, why: str | None) -> None:
    command = [script(tmp_path / "receiver", text), str(tmp_path / "told")]
    hook = Hook(HookText("**", after=command, time_limit=1 if "sleep" in text else 30))
    if why is not None:
        with pytest.raises(ReceiverFailed, match=f"^{why}$"):
            tell(hook, {}, {"PATH": "/usr/bin:/bin"}, None)
        return
    tell(hook, {"path": "x"}, {"PATH": "/usr/bin:/bin"}, "/srv/code/x")
    assert (tmp_path / "told").read_text() == '{"path": "x"}\n/srv/code/x\n'


# -- when


def waits_of(made: Deliveries) -> list[float]:
    """The seconds after which receivers are to be told, which do not pass."""
    later, waits = made._later, list[float]()

    def noted(path: str, receiver: bytes, seconds: float) -> None:
        waits.append(seconds)
        later(path, receiver, 0.0)

    made._later = noted  # type: ignore[method-assign]
    return waits


def test_who_failed_is_tried_again_later_each_time() -> None:
    """And what is new while a receiver is told is told afterwards."""
    ended, tried = threading.Event(), list[str]()

    def work(repository: PackRepository, hook: Hook, environment: Mapping[str, str], own: bytes) -> bool:
        tried.append(hook.after[0])
        if len(tried) < 4:
            raise ReceiverFailed("it is away")
        if len(tried) == 5:
            ended.set()
        return len(tried) == 5

    made = Deliveries(
        Hooks(lambda: [HOOK]), lambda path: PackRepository(MemoryTransport(), path), clock=lambda: 0.0, work=work
    )
    waits = waits_of(made)
    made.add("project")
    assert ended.wait(PATIENCE)
    made.stop()
    assert waits == [0.0, 1.0, 2.0, 4.0, 5.0]


def test_a_bug_ends_no_thread_and_loses_no_message() -> None:
    ended, tried = threading.Event(), list[int]()

    def work(*_: object) -> bool:
        tried.append(1)
        if len(tried) == 1:
            raise ZeroDivisionError
        ended.set()
        return True

    made = Deliveries(Hooks(lambda: [HOOK]), lambda path: PackRepository(MemoryTransport(), path), work=work)
    waits = waits_of(made)
    made.add("project")
    assert ended.wait(PATIENCE)
    made.stop()
    assert waits == [0.0, module.LONGEST_WAIT]


def test_stop_waits_for_what_is_due() -> None:
    told: list[str] = []

    def work(repository: PackRepository, *_: object) -> bool:
        told.append(repository.path)
        return True

    made = Deliveries(Hooks(lambda: [HOOK]), lambda path: PackRepository(MemoryTransport(), path), work=work)
    for number in range(20):
        made.add(f"{number}")
    made.stop()
    assert sorted(told) == sorted(str(number) for number in range(20))


def test_a_store_that_fails_is_tried_again(tmp_path: Path) -> None:
    made = Deliveries(Hooks(lambda: [HOOK]), lambda path: PackRepository(LocalTransport(tmp_path / "none"), path))
    assert made._deliver("project", HOOK.receiver) is None, "there is no repository"
    assert made._deliver("project", b"no such ") is None
