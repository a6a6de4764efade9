"""netem.packets.network, netem.packets.broker, netem.packets.namespaces: TCP between two, and nothing left afterwards.

Times are read as whole round trips, of an RTT that a busy machine does not reach by being late.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from packet_servers import PATIENCE, Source, ask, content

from netem.counter import Counts
from netem.effects import Blackhole, Corrupt, Cut, Delay, Duplicate, Effect, Jitter, Loss, Rate, Stall
from netem.lateness import Lateness
from netem.link import Link
from netem.packets.channel import Channel
from netem.packets.devices import BACKENDS, TUN
from netem.packets.errors import PacketsError
from netem.packets.namespaces import Namespace
from netem.packets.network import CLIENT, SERVER, Packets
from netem.timekeeping import PAUSE

pytestmark = pytest.mark.packets

Start = Callable[..., Packets]
RTT = 0.2
TRIES = 5
"""Of what is told by the clock: what else the machine does makes it longer, and never shorter."""
SOON = 0.004
UDP = socket.SOCK_DGRAM
UDP_SEGMENT = 103
"""Of Linux (linux/udp.h), which Python has no name for."""


def have_tun() -> bool:
    """Whether the node can be opened; `veth` is what must work everywhere."""
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except OSError:
        return False
    return True


WORKING = [backend for backend in BACKENDS if backend != "tun" or have_tun()]


# Rounds


@pytest.mark.parametrize("backend", WORKING)
def test_slow_start_of_a_fresh_connection(start: Start, backend: str) -> None:
    """14,480 bytes are the ten segments of an initial window; from there it doubles with each round trip."""
    network = start(Link(RTT), backend=backend)
    with Source(network) as source:
        for size, rounds in ((14_480, 1), (14_600, 2), (100_000, 3)):
            for _ in range(TRIES):
                network.take()
                begun = time.monotonic()
                with source.connect() as client:
                    connected = time.monotonic()
                    ask(client, size)
                    answered = time.monotonic()
                counts = network.take()
                assert connected - begun >= RTT
                assert answered - connected >= rounds * RTT
                found = [round((connected - begun) / RTT), round((answered - connected) / RTT)]
                if found == [1, rounds]:
                    break
            assert found == [1, rounds], f"{size} bytes; the emulator was late by {network.lateness()}"
            assert (counts.rounds, counts.handshake_rounds, counts.connections) == (2, 1, 1)  # of the programs
            assert (counts.bytes_up, counts.bytes_down, counts.repeated) == (len(str(size)) + 1, size, 0)
            assert counts.packets_down >= size / 1448


def test_rounds_of_held_connections_and_what_a_take_begins(start: Start) -> None:
    network = start(Link(SOON))
    with Source(network) as source, source.connect() as client:
        for _ in range(3):
            ask(client, 100)
        assert network.counts().rounds == 4
        cold = network.take()
        assert (cold.rounds, cold.handshake_rounds, cold.flights_up, cold.flights_down) == (4, 1, 3, 3)
        ask(client, 100)
        warm = network.take()
        assert (warm.rounds, warm.connections, warm.bytes_up, warm.bytes_down) == (1, 0, 4, 100)
        assert (cold.not_tcp, warm.not_tcp) == (0, 0)


def test_who_is_refused_has_waited_for_a_round_trip(start: Start) -> None:
    network = start(Link(SOON))
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            network.connect(1)
    counts = network.take()
    assert (counts.rounds, counts.handshake_rounds, counts.connections) == (2, 2, 2)
    assert counts.seconds >= 2 * SOON


FAST_OPEN = "1027"
"""Clients may, servers may, and those who listen need not ask for it (ip-sysctl, tcp_fastopen: 1, 2, 0x400)."""


@pytest.mark.parametrize(("size", "rounds"), [(10, 1), (3000, 2)])
def test_fast_open_saves_the_handshake_of_what_fits_into_the_first_packet(start: Start, size: int, rounds: int) -> None:
    network = start(Link(SOON))
    network.setting("net.ipv4.tcp_fastopen", FAST_OPEN)
    with Source(network) as source:
        for first in (True, False, False):  # the first one has no cookie yet
            if not first:
                network.take()
            with network.make_socket(CLIENT) as client:
                line = b"%0*d\n" % (size - 1, 10)
                sent = client.sendto(line, socket.MSG_FASTOPEN, (network.server_address, source.port))
                client.settimeout(PATIENCE)
                client.sendall(line[sent:])
                assert client.recv(100) == content(10)
                counts = network.counts()
            if not first:
                assert counts.seconds >= rounds * SOON
                assert (counts.rounds, counts.handshake_rounds, counts.connections) == (rounds, rounds - 1, 1)
                assert (counts.bytes_up, counts.bytes_down, counts.repeated) == (size, 10, 0)


# Effects


@dataclass
class Received:
    """What the kernel of a client says that it received."""

    packets: int
    out_of_order: int

    @classmethod
    def by(cls, client: socket.socket) -> Received:
        """`tcpi_segs_in` and `tcpi_rcv_ooopack` of linux/tcp.h."""
        told = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return cls(*(struct.unpack_from("=I", told, at)[0] for at in (140, 224)))

    def since(self, before: Received) -> Received:
        return Received(self.packets - before.packets, self.out_of_order - before.out_of_order)


Trace = Callable[[Counts, Received], bool]
"""What an effect leaves behind, and would not if it did nothing."""


def lost(counts: Counts, _: Received) -> bool:
    return counts.dropped > 0


def repeated(counts: Counts, _: Received) -> bool:
    return counts.repeated > 0


def twice(counts: Counts, received: Received) -> bool:
    return received.packets > counts.packets_down


def out_of_order(_: Counts, received: Received) -> bool:
    return received.out_of_order > 0


def later(counts: Counts, _: Received) -> bool:
    return counts.seconds >= HOLD


HOLD = 0.1
"""Seconds that are long beside all other round trips of a test."""


def name(it: object) -> str:
    return getattr(it, "__name__", repr(it))


@pytest.mark.parametrize(
    ("effect", "trace"),
    [
        (Loss(0.2, seed=1), lost),
        (Duplicate(0.3), twice),
        (Corrupt(0.2), repeated),
        (Jitter(0.004, ordered=False), out_of_order),
        (Jitter(HOLD), later),  # half of the packets by that much or more
        (Rate(1_000_000, 20_000), lost),
        (Delay(HOLD), later),
        (Stall(20_000, HOLD), later),
    ],
    ids=name,
)
def test_whatever_the_link_does_tcp_mends_it(start: Start, effect: Effect, trace: Trace) -> None:
    network = start(Link(SOON, down=[effect]))
    with Source(network) as source, source.connect() as client:
        assert ask(client, 60_000) == content(60_000)
        received, counts = Received.by(client), network.take()
    assert counts.bytes_down == 60_000
    assert trace(counts, received)


def test_a_rate_is_kept(start: Start) -> None:
    network = start(Link(SOON, rate=100_000))
    with Source(network) as source, source.connect() as client:
        begun = time.monotonic()
        ask(client, 50_000)
        assert time.monotonic() - begun >= 0.5


def test_no_packet_is_a_train_where_packets_are_lost_one_by_one(start: Start) -> None:
    network = start(Link(SOON, down=[Loss(0)]))
    with Source(network) as source, source.connect() as client:
        ask(client, 200_000)
    counts = network.take()
    assert counts.packets_down >= 200_000 / 1448


@pytest.mark.parametrize("effect", [Blackhole(), Stall(0), Loss(1)], ids=repr)
def test_a_link_goes_down_and_comes_back(start: Start, effect: Effect) -> None:
    network = start(Link(SOON, up=[Loss(0)]))
    with Source(network) as source, source.connect() as client:
        ask(client, 10)
        network.change(Link(SOON, up=[effect]))
        client.sendall(b"12\n")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        client.settimeout(PATIENCE)
        network.change(Link(SOON))
        assert client.recv(100) == content(12)


@pytest.mark.parametrize("backend", WORKING)
@pytest.mark.parametrize(
    ("effect", "trace"),
    [
        (Loss(0.1, seed=1), lost),
        (Duplicate(0.3), twice),
        (Corrupt(0.1), repeated),
        (Jitter(0.004, ordered=False), out_of_order),
        (Rate(1_000_000, 20_000), lost),
    ],
    ids=name,
)
def test_a_link_that_begins_to_harm_packets(start: Start, backend: str, effect: Effect, trace: Trace) -> None:
    """In the middle of a connection that sent trains before, and does so again afterwards."""
    network = start(Link(SOON), backend=backend)
    with Source(network) as source, source.connect() as client:
        assert ask(client, 200_000) == content(200_000)
        assert network.take().dropped == 0
        before = Received.by(client)
        network.change(Link(SOON, down=[effect]))
        assert ask(client, 200_000) == content(200_000)
        received, counts = Received.by(client).since(before), network.take()
        assert (counts.bytes_down, counts.packets_down >= 200_000 / 1448) == (200_000, True)
        assert trace(counts, received)
        network.change(Link(SOON))
        assert ask(client, 200_000) == content(200_000)
        assert network.take().bytes_down == 200_000


@pytest.mark.parametrize("backend", WORKING)
@pytest.mark.parametrize("link", [Link(SOON), Link(SOON, up=[Loss(0)])], ids=["trains", "packets"])
def test_datagrams_that_were_sent_as_one_train(start: Start, backend: str, link: Link) -> None:
    network = start(link, backend=backend)
    with network.make_socket(SERVER, kind=UDP) as server, network.make_socket(CLIENT, kind=UDP) as client:
        server.settimeout(PATIENCE)
        server.bind((network.server_address, 0))
        client.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        client.sendto(content(2500), server.getsockname())
        assert [server.recv(5000) for _ in range(3)] == [content(2500)[at : at + 1000] for at in (0, 1000, 2000)]
        counts = network.take()
        assert (counts.packets_up, counts.not_tcp, counts.rounds) == (3, 3, 0)
        assert network.take().not_tcp == 0


def test_what_cannot_be_changed(start: Start) -> None:
    network = start(Link(SOON))
    with pytest.raises(ValueError, match="cut is of streams"):
        network.change(Link(SOON, up=[Cut(5)]))


# Lateness

STOPPED = 0.15
"""Seconds for which an emulator is stopped."""


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    while state(pid) != "T":
        pass


def test_an_emulator_that_was_stopped_as_a_packet_came_knows_how_late_it_was(start: Start) -> None:
    network = start(Link(SOON))
    assert network._process is not None
    (emulator,) = children(network) - {network._process.pid}
    with Source(network) as source, source.connect() as client:
        ask(client, 10)
        network.take()
        stop(emulator)
        client.sendall(b"10\n")
        time.sleep(STOPPED)
        os.kill(emulator, signal.SIGCONT)
        assert client.recv(100) == content(10)
        assert network.lateness().p99 >= STOPPED - PAUSE


# Commands


def run(network: Packets, script: str, **options: object) -> int:
    command = network.run(SERVER, ["sh", "-c", script], **options)  # type: ignore[arg-type]
    try:
        return command.wait()
    finally:
        command.close()


def test_a_command_its_status_environment_and_folder(start: Start, tmp_path: Path) -> None:
    network = start(Link(SOON))
    with (tmp_path / "out").open("w+") as out:
        environment = {"PATH": os.environ["PATH"], "WORD": "here"}
        script = 'echo "$WORD $PWD $(id -u)"; exit 7'
        assert run(network, script, environment=environment, folder=str(tmp_path), stdout=out.fileno()) == 7
        out.seek(0)
        assert out.read() == f"here {tmp_path} {os.getuid()}\n"
    assert run(network, "kill -9 $$") == -9
    with pytest.raises(FileNotFoundError):
        network.run(CLIENT, ["no-such-program"])
    with pytest.raises(FileNotFoundError):
        network.run(CLIENT, ["true"], folder="/no/such/folder")


def test_a_command_sees_its_own_processes_and_network_alone(start: Start, tmp_path: Path) -> None:
    network = start(Link(SOON))
    with (tmp_path / "out").open("w+") as out:
        script = 'readlink /proc/self/ns/net; test -d "/proc/$$" && tr "\\0" " " </proc/$$/cmdline'
        assert run(network, script, stdout=out.fileno()) == 0
        out.seek(0)
        inside, words = out.read().split("\n", 1)
    assert inside != os.readlink("/proc/self/ns/net")
    assert words.startswith("sh -c readlink")


def test_a_signal_reaches_the_command_and_its_group(start: Start) -> None:
    network = start(Link(SOON))
    command = network.run(CLIENT, ["sh", "-c", "sleep 100 & wait"])
    command.kill(signal.SIGTERM)
    assert command.wait() == -signal.SIGTERM
    command.close()


def test_who_listens_and_what_the_kernel_is_told(start: Start) -> None:
    network = start(Link(SOON))
    assert (network.listening(CLIENT), network.listening(SERVER)) == (0, 0)
    with network.listen() as listener:
        assert (network.listening(CLIENT), network.listening(SERVER)) == (0, 1)
        with pytest.raises(OSError, match="in use"):
            network.listen(listener.getsockname()[1])
    network.setting("net.ipv4.tcp_fastopen", "3")
    with pytest.raises(FileNotFoundError):
        network.setting("net.ipv4.no_such_thing", "3")
    with pytest.raises(ConnectionRefusedError):
        network.connect(1)
    with network.make_socket(CLIENT, kind=socket.SOCK_DGRAM) as udp:
        udp.sendto(b"x", (network.server_address, 9))


TWO = """
import os, socket, sys
first, second = socket.socket(), socket.socket()
first.listen()
print("!", end="", flush=True)
sys.stdin.readline()
second.listen()
print("!", end="", flush=True)
sys.stdin.readline()
"""
"""Listens on a socket, and when told on one more."""


def test_sockets_of_a_session_that_are_not_counted(start: Start) -> None:
    network = start(Link(SOON))
    (told, tell), (heard, say) = os.pipe(), os.pipe()
    server = network.run(SERVER, [sys.executable, "-c", TWO], stdin=told, stdout=say)
    for count in (1, 2):
        assert os.read(heard, 1) == b"!"
        assert (network.listening(SERVER), network.listening(SERVER, besides=[server.pid])) == (count, 0)
        with network.listen():
            assert network.listening(SERVER, besides=[server.pid]) == 1
        os.write(tell, b"\n")
    assert server.wait() == 0
    server.close()
    for descriptor in (told, tell, heard, say):
        os.close(descriptor)


def test_a_setting_of_the_whole_machine_is_not_made(start: Start) -> None:
    network = start(Link(SOON))
    same = Path("/proc/sys/vm/swappiness").read_text().strip()
    with pytest.raises(ValueError, match=r"'vm\.swappiness' is no setting of the network"):
        network.setting("vm.swappiness", same)
    network.check()


def test_words_without_a_meaning_are_refused_and_the_network_goes_on(start: Start) -> None:
    network = start(Link(SOON))
    with pytest.raises(UnicodeEncodeError):
        network.setting("net.ipv4.tcp_fastopen", "\N{BULLET}")
    with pytest.raises(ValueError, match="null byte"):
        network.run(CLIENT, ["echo", "a\0b"])
    assert run(network, "true") == 0


def test_threads_get_each_the_answer_to_their_own_question(start: Start) -> None:
    network = start(Link(SOON))
    with ThreadPoolExecutor(4) as threads:
        asked = [(threads.submit(network.counts), threads.submit(network.lateness)) for _ in range(200)]
        for counts, lateness in asked:
            assert isinstance(counts.result(), Counts)
            assert lateness.result() == Lateness()


def test_more_descriptors_than_select_takes(start: Start) -> None:
    start(Link(SOON)).close()  # or skip
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    many = [os.dup(0) for _ in range(1024)]
    try:
        assert run(start(Link(SOON)), "true") == 0
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# Ends


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def gone(pid: int) -> bool:
    """Whether a process has ended; what is killed by the kernel has not at once."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if state(pid) != "Z":
                time.sleep(0.01)
                continue
        return True
    return False


DAEMON = "setsid sleep 1000 & setsid sh -c 'sleep 1000' & exit 0"
"""Leaves two processes in sessions of their own behind."""


def leave_daemons(network: Packets) -> list[int]:
    """The processes, as seen from here, of a command and of what its daemons are."""
    pids = children(network)
    assert run(network, DAEMON) == 0
    deadline = time.monotonic() + PATIENCE
    while len(found := children(network) - pids) < 2:
        assert time.monotonic() < deadline
    return sorted(found | pids)


def children(network: Packets) -> set[int]:
    """The network's first process and all below it."""
    assert network._process is not None
    return below(network._process.pid)


def below(first: int) -> set[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def test_close_ends_whatever_commands_left_behind(start: Start) -> None:
    network = start(Link(SOON))
    pids = leave_daemons(network)
    network.close()
    network.close()
    assert [pid for pid in pids if not gone(pid)] == []
    with pytest.raises(PacketsError, match="not started, or is closed"):
        network.take()


@pytest.mark.parametrize("whose", ["broker", "emulator"])
def test_a_process_that_is_killed_ends_the_run_with_an_error(start: Start, whose: str) -> None:
    network = start(Link(SOON))
    assert network._process is not None
    broker = network._process.pid
    (emulator,) = children(network) - {broker}
    pids = leave_daemons(network)
    command = network.run(SERVER, ["sleep", "1000"])
    os.kill(broker if whose == "broker" else emulator, signal.SIGKILL)
    if whose == "broker":
        with pytest.raises(PacketsError, match="the network ended while a command ran"):
            command.wait()
    else:
        assert command.wait() == -signal.SIGKILL
    command.close()
    with pytest.raises(PacketsError, match=f"the {whose} of the packet network failed|a process of the"):
        network.take()
    network.close()
    assert [pid for pid in pids if not gone(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_process_that_uses_it(start: Start, number: int) -> None:
    start(Link(SOON)).close()  # or skip
    script = (
        "import sys, time; from netem.packets.network import Packets; from netem.link import Link\n"
        "network = Packets(Link(0.004), backend='veth'); network.start()\n"
        "network.run(0, ['sh', '-c', 'setsid sleep 1000 & sleep 1000'])\n"
        "print(network._process.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=Path(__file__).parents[2],
    ) as user:  # fmt: skip
        assert user.stdout is not None
        pids = below(int(user.stdout.readline()))
        user.send_signal(number)
    assert [pid for pid in pids if not gone(pid)] == []


def test_a_start_whose_answer_cannot_be_read_ends(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Link(SOON)).close()  # or skip
    before = len(os.listdir("/proc/self/fd"))

    def receive(channel: Channel) -> None:
        raise OSError("0 of 1 descriptors came: too many are open")

    monkeypatch.setattr(Channel, "receive", receive)
    with pytest.raises(PacketsError, match="the process of the network ended, status"):
        Packets(Link(SOON), backend="veth").start()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_cannot_be_is_named(start: Start) -> None:
    start(Link(SOON)).close()  # or skip
    with pytest.raises(Exception, match=r"no packet network here: veth: a route with congestion control no-such: "):
        Packets(Link(SOON), backend="veth", congestion="no-such").start()
    with pytest.raises(ValueError, match="no backend 'pigeon'; there are auto, tun, veth"):
        Packets(Link(SOON), backend="pigeon")


def test_descriptors_are_given_back(start: Start) -> None:
    network = start(Link(SOON))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run(network, "true")
        with network.listen():
            pass
        with contextlib.suppress(FileNotFoundError):
            network.run(CLIENT, ["no-such-program"])
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_namespace_is_left_again(start: Start) -> None:
    network = start(Link(SOON))
    home = os.readlink("/proc/thread-self/ns/net")
    if os.getuid() == 0:
        namespace = Namespace()
        with namespace.entered():
            assert os.readlink("/proc/thread-self/ns/net") != home
        with contextlib.suppress(KeyError), namespace.entered():
            raise KeyError
        namespace.close()
        namespace.close()
    network.check()
    assert os.readlink("/proc/thread-self/ns/net") == home
