"""netem.packets.network, netem.packets.broker: commands, sockets and settings of the two sides."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from packet_networks import SOON, Start, run

from netem.counter import Counts
from netem.link import Link
from netem.packets.network import CLIENT, SERVER

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
