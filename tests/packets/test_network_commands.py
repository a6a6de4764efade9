"""netem.packets.network, broker, namespaces: commands, sockets and settings of both sides, of which nothing is left."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from on_threads import PATIENCE
from packet_networks import SOON, Start, below, children, gone, run

from netem.counter import Counts
from netem.link import Link
from netem.packets.errors import PacketsError
from netem.packets.namespaces import Namespace
from netem.packets.network import CLIENT, SERVER, Packets

pytestmark = pytest.mark.packets


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
    with pytest.raises(ValueError, match=r"'vm\.swappiness' is not a network setting"):
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
            assert lateness.result() == 0


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
        "network = Packets(Link(0.004)); network.start()\n"
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


def test_what_cannot_be_is_named(start: Start) -> None:
    start(Link(SOON)).close()  # or skip
    with pytest.raises(Exception, match=r"cannot create a packet network: a route with congestion control no-such: "):
        Packets(Link(SOON), congestion="no-such").start()


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
