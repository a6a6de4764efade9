"""trace.explain: planted faults, each found and named with its line; good runs are in `tests/interop`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import MAIN, History
from simulated_joint import NEW, HistorySource, Joint

from smartserver.client.call import Client
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.request import Outgoing
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.spans import listening
from smartserver.trace import file
from smartserver.trace.bans.every import noter
from smartserver.trace.bans.noter import Note
from smartserver.trace.explain import charges, lines
from smartserver.trace.file import Narrator, TraceFile
from smartserver.trace.recorder import Recorder
from smartserver.trace.wait import Trace, traces
from smartserver.verbs import vfs
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.repository_stats import StatsRequest, repository_stats
from smartserver.verbs.server_ping import PingRequest, server_ping

pytestmark = pytest.mark.unbanned("it makes such calls, and explains them")

PATH = "project"
WORK = "# The planted line."


@dataclass
class Bench:
    """A client whose trace is recorded by the virtual clock, and a served repository that MAIN is in."""

    joint: Joint
    path: Path
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.source = HistorySource(self.history)
        self.line = self.history.line(6)
        with self.joint.client() as client:
            self.push(self.joint.remote(PATH, client), RefUpdate(MAIN, self.line[3]))

    def push(self, remote: RemoteRepository, *updates: RefUpdate) -> list[Outcome]:
        return [each.outcome for each in remote.push(PushRequest(updates, self.source, NEW)).refs]

    @contextmanager
    def recorded(self) -> Iterator[Client]:
        """A client of one command."""
        clock = self.joint.network.clock
        kept = TraceFile(str(self.path))
        narrator = Narrator(kept.append, "planted")
        recorder = Recorder(lambda: clock.now, narrator.request, spanned=narrator.span)

        def noted(note: Note) -> None:
            narrator.note(note, recorder.calls)

        with listening(recorder), self.joint.client([recorder, noter(noted)]) as client:
            yield client
        narrator.end(recorder)
        kept.close()

    def trace(self) -> Trace:
        (found,) = traces(self.path.read_bytes().splitlines())
        return found


@pytest.fixture
def bench(joint: Joint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    joint.site.allows_vfs = True
    clock = joint.network.clock
    monkeypatch.setattr(file, "time", SimpleNamespace(monotonic=lambda: clock.now, time=time.time))
    monkeypatch.setattr(file, "since_start", lambda: None)
    return Bench(joint, tmp_path / "trace")


def over_files(client: Client, verb: AnyVerb, arguments: Arguments) -> None:
    client.request(Outgoing("files", [(verb, arguments)]))


def ask(client: Client, verb: AnyVerb, arguments: Arguments) -> None:
    for _ in client.request(Outgoing(PATH, [(verb, arguments)])).body:
        pass


# -- planted


def asks_twice(bench: Bench, client: Client) -> None:
    client.call(repository_stats, StatsRequest(), PATH)
    client.call(server_ping, PingRequest())
    client.call(repository_stats, StatsRequest(), PATH)  # The planted line.


def reads_back(bench: Bench, client: Client) -> None:
    remote = bench.joint.remote(PATH, client)
    assert bench.push(remote, RefUpdate(MAIN, bench.line[4])) == [Outcome.DONE]
    ask(client, repository_pull, PullRequest(refs=[MAIN]))  # The planted line.


def calls_for_each_file(bench: Bench, client: Client) -> None:
    for name in "abcde":
        over_files(client, vfs.put, vfs.BringRequest(name, b"content of " + name.encode()))  # The planted line.


def connects_again(bench: Bench, client: Client) -> None:
    client.call(server_ping, PingRequest())
    client.close()
    client.call(repository_stats, StatsRequest(), PATH)  # The planted line.


PLANTED: list[tuple[Callable[[Bench, Client], None], str, int]] = [
    (asks_twice, "duplicate", 1),
    (reads_back, "read-back", 1),
    (calls_for_each_file, "per-item", 4),
    (connects_again, "extra-connection", 1),
]


@pytest.mark.parametrize(("fault", "behaviour", "trips"), PLANTED, ids=lambda each: getattr(each, "__name__", None))
def test_a_planted_fault_is_named_with_its_line(
    bench: Bench, fault: Callable[[Bench, Client], None], behaviour: str, trips: int
) -> None:
    bench.joint.storage.make_directory("files")
    bench.joint.storage.make_directory("files/lock")
    with bench.recorded() as client:
        fault(bench, client)
    charge, *others = charges(bench.trace())
    assert {each.trips for each in others} <= {0}
    assert (charge.finding.behaviour, charge.trips) == (behaviour, trips)
    assert charge.micro == pytest.approx(trips * 1e6)
    source, first = inspect.getsourcelines(fault)
    number = first + next(index for index, line in enumerate(source) if line.endswith(f"{WORK}\n"))
    assert f"{Path(__file__).relative_to(Path.cwd())}:{number} in {fault.__name__}" in charge.finding.where
    said = "\n".join(lines(bench.trace()))
    assert f"{behaviour}, {', '.join(charge.verbs)}" in said
    assert f"called from {charge.finding.where}" in said
