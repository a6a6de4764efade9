"""Everything at once, for as long as asked: `python tests/sockets/soak.py MINUTES FOLDER` (`make soak`).

Two servers on one repository, writers, readers, slow readers, repacks, kills. Later the servers' clock jumps an hour
ahead. The acknowledged pushes are compared with the repository. Then a record is damaged, and all pushes must be there
after `smartserver recover`; `verify` and `git fsck --strict` check the result. Hostile clients: `test_held_memory.py`.

Clients have machines of their own: here they run at the lowest priority. With the servers' priority, a ping would wait
for the clients' processes, some ten on two cores, and not for the server.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from bench.servers import free_port  # noqa: E402
from builders import MAIN, History, refs_of  # noqa: E402
from history_sources import HistorySource  # noqa: E402
from processes import status_of  # noqa: E402
from pushing import connected, count_segments, push  # noqa: E402

from smartserver.client.call import Client  # noqa: E402
from smartserver.client.media.tcp import TcpMedium  # noqa: E402
from smartserver.client.medium import MediumError  # noqa: E402
from smartserver.client.updates import Outcome  # noqa: E402
from smartserver.errors import OutcomeUnknown  # noqa: E402
from smartserver.store.graph import Graph  # noqa: E402
from smartserver.store.repository import PackRepository  # noqa: E402
from smartserver.verbs.server_ping import PingRequest, server_ping  # noqa: E402
from smartserver.wire.errors import RemoteProtocolError  # noqa: E402
from transports.errors import CodedError  # noqa: E402
from transports.local import LocalTransport  # noqa: E402

WRITERS, READERS = 8, 200
SERVERS = 2
KILL_EVERY = 15.0
PACK_EVERY = 5.0
STEPPED_AT = 0.7
"""The part of the whole time after which the clock jumps."""
DAMAGED = 5
"""The position, from the newest, of the record to damage: mostly above the newest checkpoint."""
STEP = 3600.0
RSS = 600_000_000
PING_P99 = 0.25
NAME = "p"
FAILURES = (CodedError, MediumError, RemoteProtocolError, OSError)
"""The errors in which a request may end while servers are killed."""


@dataclass
class Soak:
    """The servers, and the observations."""

    folder: Path
    seconds: float
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(SERVERS)])
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    rss: int = 0
    kills: int = 0
    acknowledged: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Ref and tip, in the order of the answers."""
    failures: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.root = self.folder / "root"
        self.root.mkdir(parents=True)
        self.clock = self.folder / "clock"
        self.clock.write_bytes(struct.pack("d", 0.0))
        self.log = (self.folder / "servers.log").open("ab")
        self.processes = [self.start(port) for port in self.ports]

    def start(self, port: int) -> subprocess.Popen[bytes]:
        options = ["--listen", f"127.0.0.1:{port}", "--anonymous", "write"]
        program = [sys.executable, str(HERE / "soak_clock.py"), str(self.clock), "serve", str(self.root), *options]
        return subprocess.Popen(program, stdout=self.log, stderr=self.log)

    def wait(self) -> None:
        for port in self.ports:
            while True:
                try:
                    with Client(lambda port=port: TcpMedium("127.0.0.1", port)) as client:  # type: ignore[misc]
                        client.call(server_ping, PingRequest())
                    break
                except FAILURES:
                    time.sleep(0.1)

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self.start(self.ports[number])
        self.kills += 1

    def watch(self) -> None:
        """Measure the memory of the servers each second."""
        while not self.over.wait(1):
            for process in list(self.processes):
                try:
                    self.rss = max(self.rss, status_of(process.pid).get("VmRSS", 0) * 1024)
                except OSError:
                    continue

    def write(self, number: int, history: History, base: bytes) -> None:
        """Push: the first writers continue a branch of their own, the others make one with each push."""
        give_way()
        chance = random.Random(number)
        tip, turn = base, 0
        grows = number < WRITERS // 2
        while not self.over.is_set():
            turn += 1
            text = b"%d of %d\n" % (turn, number) + chance.randbytes(600)
            new = history.commit({"file": text, "kept": b"kept\n" * 50}, (tip,) if grows else (), f"{number}/{turn}")
            ref = b"refs/heads/w%d" % number if grows else b"refs/heads/n%d/%d" % (number, turn)
            while not self.over.is_set():
                try:
                    with connected(self.ports[chance.randrange(SERVERS)]) as remote:
                        done = push(remote, HistorySource(history), ref, new)
                except FAILURES as wrong:
                    self.failures[f"push: {type(wrong).__name__}"] += 1
                    if not isinstance(wrong, OSError | MediumError | OutcomeUnknown):
                        self.failures[f"push: {wrong}"[:200]] += 1
                    time.sleep(0.3)
                    continue
                if done.outcome is not Outcome.REFUSED:
                    self.acknowledged.append((ref, new))
                    break
                self.failures[f"push refused: {type(done.error).__name__}"] += 1
                time.sleep(0.1)
            tip = new
            time.sleep(chance.uniform(0, 0.2))

    def repack(self) -> None:
        while not self.over.wait(PACK_EVERY):
            try:
                PackRepository(LocalTransport(self.root), NAME).repack()
            except CodedError as wrong:
                self.failures[f"pack: {wrong}"[:120]] += 1


def tell(**found: object) -> None:
    print(json.dumps(found), flush=True)


def slowly(body: Iterable[bytes]) -> Iterator[bytes]:
    for part in body:
        time.sleep(0.05)
        yield part


def give_way() -> None:
    """Give this thread, and those that it starts, the lowest priority."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def readers(ports: list[int], seconds: float) -> None:
    """Pull everything again and again, sometimes slowly; a lost connection means that a server was killed."""
    give_way()
    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    guard = threading.Lock()

    def read(number: int) -> None:
        chance = random.Random(number)
        while time.monotonic() < end:
            what = "read"
            try:
                with connected(ports[chance.randrange(len(ports))]) as remote:
                    pulled = remote.pull()
                    slow = number % 10 == 0
                    if count_segments(slowly(pulled.body) if slow else pulled.body) != pulled.result.segments:
                        what = "short"
            except (MediumError, OSError):
                what = "lost"
            except Exception as wrong:
                what = f"failed: {type(wrong).__name__}: {wrong}"[:200]
            with guard:
                counts[what] += 1
            time.sleep(chance.uniform(0, 2))

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.1, end + 30 - time.monotonic()))
    tell(readers=dict(counts))


def bystander(ports: list[int], seconds: float) -> None:
    """Ping ten times a second on one connection, and record how long the answers take."""
    end = time.monotonic() + seconds
    taken: list[float] = []
    lost = 0
    while time.monotonic() < end:
        try:
            with Client(lambda: TcpMedium("127.0.0.1", ports[0])) as client:
                client.call(server_ping, PingRequest())
                while time.monotonic() < end:
                    begun = time.monotonic()
                    client.call(server_ping, PingRequest())
                    taken.append(time.monotonic() - begun)
                    time.sleep(0.1)
        except FAILURES:
            lost += 1
            time.sleep(0.5)
    taken.sort()
    quantiles = {str(part): round(taken[min(len(taken) - 1, int(part * len(taken)))], 4) for part in (0.5, 0.9, 0.99)}
    tell(pings=len(taken), quantiles=quantiles, longest=round(taken[-1], 4), lost=lost)


def run(folder: Path, seconds: float) -> int:
    """Run the whole soak, and return the number of errors."""
    soak = Soak(folder, seconds)
    try:
        return load(soak, folder, seconds)
    finally:
        for process in soak.processes:
            process.kill()
            process.wait()


def load(soak: Soak, folder: Path, seconds: float) -> int:
    """Load the servers, then judge."""
    soak.wait()
    history = History()
    (base,) = history.line(1)
    with connected(soak.ports[0]) as remote:
        push(remote, HistorySource(history), MAIN, base)
    histories = []
    for _ in range(WRITERS):
        own = History()
        assert own.line(1) == [base]
        histories.append(own)
    others = [
        subprocess.Popen(
            [sys.executable, __file__, role, json.dumps(soak.ports), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        for role in ("readers", "bystander")
    ]
    threads = [threading.Thread(target=soak.watch), threading.Thread(target=soak.repack)]
    threads += [threading.Thread(target=soak.write, args=(n, own, base)) for n, own in enumerate(histories)]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    moments: list[tuple[float, Callable[[], object]]] = []
    moments.append((STEPPED_AT * seconds, lambda: soak.clock.write_bytes(struct.pack("d", STEP))))
    kills = int(seconds / KILL_EVERY)
    chance = random.Random(1)
    for number in range(1, kills):
        moments.append((number * KILL_EVERY, lambda: soak.kill(chance.randrange(SERVERS))))
    for at, do in sorted(moments, key=lambda moment: moment[0]):
        time.sleep(max(0.0, begun + at - time.monotonic()))
        do()
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    soak.over.set()
    for thread in threads:
        thread.join()
    reports = [json.loads(other.communicate(timeout=120)[0]) for other in others]
    for process in soak.processes:
        process.terminate()
    for process in soak.processes:
        process.wait()
    return judge(soak, reports)


def judge(soak: Soak, reports: list[dict[str, object]]) -> int:
    """Print the findings, and return the number of errors."""
    wrong: list[str] = []
    place = soak.root / NAME
    refs = refs_of(PackRepository(LocalTransport(place)))
    wanted = dict(soak.acknowledged)  # Of each branch the last tip that was acknowledged.
    graph = PackRepository(LocalTransport(place)).snapshot().graph
    gone = [ref for ref, tip in wanted.items() if not _holds(graph, refs.get(ref), tip)]
    wrong += [f"acknowledged and not there: {ref!r}" for ref in gone]
    smartserver = [sys.executable, "-m", "smartserver.cli.main"]
    before = subprocess.run([*smartserver, "verify", str(place)], capture_output=True, text=True)
    damaged = sorted((place / "log").iterdir())[-DAMAGED]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    recovered = subprocess.run([*smartserver, "recover", "--all", "--yes", str(place)], capture_output=True, text=True)
    refs = refs_of(PackRepository(LocalTransport(place)))
    snapshot = PackRepository(LocalTransport(soak.root), NAME).snapshot()
    lost = [(ref, tip) for ref, tip in soak.acknowledged if snapshot.ordinal(tip) is None or ref not in refs]
    wrong += [f"acknowledged and lost: {ref!r} {tip.hex()}" for ref, tip in lost]
    verified = subprocess.run([*smartserver, "verify", str(place)], capture_output=True, text=True)
    if verified.returncode:
        wrong.append(f"verify: {verified.stderr}")
    port = free_port()
    server = soak.start(port)
    soak.ports, soak.processes = [port], [server]
    soak.wait()
    clone = soak.folder / "clone"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    url = f"hpss://127.0.0.1:{port}/{NAME}"
    subprocess.run(["git", "clone", "-q", "--mirror", url, str(clone)], check=True, env=environment)
    fsck = subprocess.run(["git", "fsck", "--strict"], cwd=clone, capture_output=True, text=True)
    if fsck.returncode:
        wrong.append(f"fsck: {fsck.stderr}")
    server.terminate()
    server.wait()
    readers, pings = reports
    found: dict[str, int] = readers["readers"]  # type: ignore[assignment]
    wrong += [f"readers: {count} times {what}" for what, count in found.items() if what not in ("read", "lost")]
    if soak.rss > RSS:
        wrong.append(f"a server had {soak.rss} bytes, expected no more than {RSS}")
    p99 = pings["quantiles"]["0.99"]  # type: ignore[index]
    if p99 > PING_P99:
        wrong.append(f"a ping took {p99} s (p99), expected no more than {PING_P99}")
    print(f"acknowledged: {len(soak.acknowledged)}; {soak.kills} kills")
    print(f"most memory of a server: {soak.rss / 1e6:.0f} MB; failures: {dict(soak.failures)}")
    for report in reports:
        print(report)
    print("verify before:", before.stdout.strip(), "| recover:", recovered.stdout.strip().splitlines()[-1:])
    print(recovered.stderr.strip()[-2000:])
    print("verify after:", verified.stdout.strip())
    for fault in wrong:
        print("WRONG:", fault)
    return len(wrong)


def _holds(graph: Graph, tip: bytes | None, wanted: bytes) -> bool:
    """Tell whether a branch is at a revision, or at one pushed on top of it and not acknowledged."""
    now, then = (graph.ordinal(key) if key is not None else None for key in (tip, wanted))
    return now is not None and then is not None and graph.is_ancestor(then, now)


if __name__ == "__main__":
    roles = {"readers": readers, "bystander": bystander}
    if sys.argv[1] in roles:
        roles[sys.argv[1]](json.loads(sys.argv[2]), float(sys.argv[3]))
    else:
        sys.exit(min(1, run(Path(sys.argv[2]), float(sys.argv[1]) * 60)))
