"""Concurrent pushes through one agent, while its processes, the server, ssh and the network fail at random moments.

To run more by hand: `KILLS=200 SEED=7 make check ARGS="-s tests/sockets/test_agent_kills.py"`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agents import children, of_its_own, stop, workers
from processes import processes, read, state
from serving import NOISE, SMARTSERVER, Done, Server, User, finish, run, server_refs, wait_until, write_history
from sshd import Sshd

from netem.effects import Blackhole, Cut
from netem.link import Link
from netem.proxy import Proxy
from smartserver.agent.address import NoAgent
from smartserver.agent.lending import ask
from smartserver.agent.messages import Forget, Status, decode_count, decode_held
from smartserver.agent.start import start
from smartserver.store.repository import PackRepository
from smartserver.store.state import REFS, decode_value
from transports.local import LocalTransport

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

KILLS = int(os.environ.get("KILLS", "11"))
SEED = os.environ.get("SEED", "1")
CLIENTS = 4
OVER_SSH = 3
"""The number of clients that log in by ssh; the others use TCP."""
RTT = 0.004
MAIN = "refs/heads/main"
STALL = 0.5
"""Seconds for which the network passes no bytes."""

UNKNOWN = re.compile("it is unknown whether (the|a) change was made")


class World:
    """A server that can be restarted at its port, a link before it, an sshd beside it, and users with one agent."""

    def __init__(self, folder: Path, agent: dict[str, str], sshd: Sshd) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.agent = agent
        self.server = Server(self.root)
        self.proxy = Proxy(RTT, ("127.0.0.1", self.server.port))
        self.proxy.start()
        program = shutil.which("smartserver")
        key = (sshd.folder / "user_key.pub").read_text()
        (sshd.folder / "authorized_keys").write_text(f'command="{program} serve {self.root} --stdio" {key}')
        template = User(folder / "template")
        self.commits = write_history(template, "w", KILLS + 3, seed="agent", size=2_000, files=5)
        self.users: list[User] = []
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        """Running pushes by the number of the client."""
        self.hung_up: set[int] = set()
        for number in range(CLIENTS):
            shutil.copytree(template.home, folder / f"user{number}")
            self.users.append(User(folder / f"user{number}"))
            self.users[-1].environment |= agent | {"GIT_SSH_COMMAND": f"ssh -F {sshd.config}"}
        self._login = f"hpss+ssh://{sshd.user}@{sshd.host}:{sshd.port}/~"

    def url(self, number: int) -> str:
        where = self._login if number < OVER_SSH else f"hpss://127.0.0.1:{self.proxy.port}"
        return f"{where}/p{number}"

    def push(self, number: int, commit: str) -> tuple[Done, float]:
        """Push a commit, and return git's results and the seconds."""
        start = time.monotonic()
        self.running[number] = self.users[number].start("push", self.url(number), f"{commit}:{MAIN}", folder="w")
        done = finish(self.running[number])
        return done, time.monotonic() - start

    def push_all(self, commit: str) -> float:
        """Push at once from all clients, which must succeed; return the seconds that half of the pushes took."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            ends = list(pool.map(lambda number: self.push(number, commit), range(CLIENTS)))
        return statistics.median(seconds for done, seconds in ends if done.worked())

    def tip(self, number: int) -> str:
        return server_refs(self.root, f"p{number}").get(MAIN, "")

    def restart(self) -> None:
        self.server.kill()
        self.server = Server(self.root, "--listen", f"127.0.0.1:{self.server.port}")

    def close(self) -> None:
        self.proxy.close()
        self.server.kill()

    # -- the agent's processes

    def keeper(self) -> int | None:
        try:
            return ask(Status(), decode_held, self.agent)[0].process
        except NoAgent:
            return None

    def zygote(self) -> int | None:
        keeper = self.keeper()
        return next(iter(children(keeper)), None) if keeper else None

    def worker(self, chance: random.Random) -> int | None:
        zygote = self.zygote()
        return chance.choice(workers(zygote) or [0]) or None if zygote else None

    def hang_up(self, chance: random.Random) -> int | None:
        """Return the process group of a running push, and note that it is hung up."""
        number, process = chance.choice(list(self.running.items()) or [(0, None)])
        if process is None or process.poll() is not None:
            return None
        self.hung_up.add(number)
        return -process.pid

    def settle(self) -> None:
        """Start an agent if there is none, and wait until it is complete."""

        def is_whole() -> bool:
            start(self.agent)  # One that dies may keep the lock for a moment.
            return b"msgspec" in read(self.zygote() or 0, "maps")

        wait_until(is_whole, "the zygote is loaded")

    def ssh(self, chance: random.Random) -> int | None:
        return chance.choice([pid for pid in self.left() if words(pid)[:1] == [b"ssh"]] or [0]) or None

    def left(self) -> list[int]:
        """Return all processes with the agent's folder in their environment."""
        mark = f"XDG_RUNTIME_DIR={self.agent['XDG_RUNTIME_DIR']}".encode()
        return [pid for pid in processes() if mark in read(pid, "environ").split(b"\0")]

    def descriptors(self) -> list[str]:
        """Return the descriptors that the keeper has open while it holds no connection."""
        ask(Forget(""), decode_count, self.agent)
        keeper = self.keeper()
        assert keeper, "there is an agent"
        # Who waits for the answer may be woken in place of the keeper, which then has the question's connection still.
        wait_until(lambda: state(keeper) == "S", "the keeper waits for the next question")
        found = [os.readlink(each) for each in Path(f"/proc/{keeper}/fd").iterdir()]
        return sorted(re.sub(r"\d+", "N", each) for each in found)


def words(pid: int) -> list[bytes]:
    return read(pid, "cmdline").split(b"\0")


def send(pid: int | None, number: signal.Signals) -> bool:
    """Send a signal, and tell whether there was such a process."""
    try:
        os.kill(pid or 0, number) if pid else None
    except ProcessLookupError:
        return False
    return bool(pid)


def nothing() -> object:
    """Do nothing, as after most kinds of failure."""
    return None


def kill(world: World, kind: str, chance: random.Random) -> tuple[bool, Callable[[], object]]:
    """Make a failure. Return whether there was anything to kill, and the call to make after the pushes."""
    match kind:
        case "keeper":
            return send(world.keeper(), signal.SIGKILL), nothing
        case "zygote":
            return send(world.zygote(), signal.SIGKILL), nothing
        case "worker":
            return send(world.worker(chance), signal.SIGKILL), nothing
        case "command hung up":
            return send(world.hang_up(chance), signal.SIGHUP), nothing
        case "keeper stopped" | "zygote stopped":
            pid = world.keeper() if kind == "keeper stopped" else world.zygote()
            return send(pid, signal.SIGSTOP), lambda: send(pid, signal.SIGCONT)
        case "ssh":
            return send(world.ssh(chance), signal.SIGKILL), nothing
        case "server":
            world.restart()
            return True, nothing
        case "cut":
            world.proxy.change_open(Link(RTT, up=[Cut(chance.randrange(20_000))], down=[Cut(chance.randrange(100))]))
            return True, nothing
        case "stall":
            world.proxy.change(Link(RTT, up=[Blackhole()], down=[Blackhole()]))
            time.sleep(STALL)
            world.proxy.change(Link(RTT))
            return True, nothing
    raise AssertionError(kind)


KINDS = (
    "keeper", "zygote", "worker", "command hung up", "keeper stopped", "zygote stopped", "ssh", "server", "cut",
    "stall", "forgotten",
)  # fmt: skip
"""The kinds of failure. `command hung up`: a git command gets SIGHUP, as from a closed terminal. `forgotten`: before
the pushes, all held connections of TCP die silently."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "sshd").mkdir()
    with Sshd(tmp_path / "sshd") as sshd, of_its_own() as agent:
        made = World(tmp_path, agent, sshd)
        yield made
        made.close()


def why(done: Done) -> str:
    """Return the one line with the reason; ssh may print other lines."""
    assert done.status in (1, 128), done
    assert not NOISE.search(done.err), done
    (line,) = [line for line in done.err.splitlines() if line.startswith("fatal: ")]
    assert line.startswith("fatal: hpss: "), done
    return line


def times_made(world: World, number: int) -> Counter[str]:
    """Count, in the log, how often the branch was set to each commit."""
    view = PackRepository(LocalTransport(world.root), f"p{number}").snapshot().state
    changes = [
        each for entry in view.history for each in entry.changes if (each.table, each.key) == (REFS, MAIN.encode())
    ]
    return Counter(decode_value(each.new)[0].id.hex() for each in changes if each.new is not None)


def one_round(world: World, kind: str, commit: str, moment: float, chance: random.Random, counts: Counter[str]) -> None:
    """Push a commit from all clients, make a failure meanwhile, and count failures and outcomes."""
    before = [world.tip(number) for number in range(CLIENTS)]
    world.running, world.hung_up = {}, set()
    if kind == "worker" or chance.random() < 0.5:
        world.settle()
    if kind == "forgotten":
        world.proxy.change_open(Link(RTT, up=[Blackhole()], down=[Blackhole()]))
    with ThreadPoolExecutor(CLIENTS) as pool:
        pushes = [pool.submit(world.push, number, commit) for number in range(CLIENTS)]
        there, undo = True, nothing
        try:
            if kind != "forgotten":
                time.sleep(moment)
                there, undo = kill(world, kind, chance)
                while not there and not all(push.done() for push in pushes):
                    there, undo = kill(world, kind, chance)
            ends = [push.result() for push in pushes]
        finally:
            undo()
    counts[kind if there else f"{kind} (there was none)"] += 1
    for number, (done, _) in enumerate(ends):
        now = world.tip(number)
        if done.status == 0:
            assert now == commit, "acknowledged and lost"
            counts["acknowledged"] += 1
            continue
        if number in world.hung_up:  # Its user knows what he did: no word.
            assert now in (before[number], commit), (now, before[number], commit, done)
            assert not NOISE.search(done.err), done
            counts["hung up"] += 1
            continue
        unknown = bool(UNKNOWN.search(why(done)))
        assert now == before[number] or (now == commit and unknown), (now, before[number], commit, done)
        counts["unknown" if unknown else "refused"] += 1


def test_at_random_moments_of_pushes(world: World) -> None:
    chance = random.Random(SEED)
    counts: Counter[str] = Counter()
    first, second, *commits, last = world.commits
    world.push_all(first)
    base = world.descriptors()
    world.settle()
    whole = world.push_all(second)
    kinds: list[str] = []
    for turn, commit in enumerate(commits):
        kinds = kinds or chance.sample(KINDS, len(KINDS))
        kind, moment = kinds.pop(), chance.uniform(0, whole)
        try:
            one_round(world, kind, commit, moment, chance, counts)
        except BaseException as wrong:
            wrong.add_note(f"seed {SEED}, kill {turn}: {kind} after {moment:.3f} s")
            raise
    world.push_all(last)
    for number in range(CLIENTS):
        assert world.tip(number) == last
        made = times_made(world, number)
        assert set(made.values()) == {1}, made
        verdict = run(*SMARTSERVER, "verify", str(world.root / f"p{number}")).worked().out
        assert verdict.splitlines()[0].endswith(": all well"), verdict
    wait_until(lambda: world.descriptors() == base, "the keeper has open what it had before")
    assert stop(world.agent)
    wait_until(lambda: not world.left(), "no process of the agent, and none that it started")
    print(f"\nseed {SEED}: {dict(counts)}")
