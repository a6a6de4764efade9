"""agent.thin: what a command hands over, and when it runs itself."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from agents import RUN_HERE, Zygote, received

from smartserver.agent.thin import (
    ACCEPTED,
    BEGIN,
    DIRECT,
    ENDED,
    LAST_WORDS,
    LOST,
    MAX_PACKET,
    OUTPUT,
    SIGNALS,
    ask_to_run,
    hand_over,
)  # fmt: skip

LOCALE = {"LC_ALL": "C.UTF-8"}
"""Without it Python sets another as it starts."""

PATIENCE = 30.0
"""Seconds."""

pytestmark = pytest.mark.sockets


@pytest.fixture
def zygote(environment: dict[str, str]) -> Iterator[Callable[..., Zygote]]:
    made: list[Zygote] = []

    def start(*said: bytes) -> Zygote:
        def answer(connection: socket.socket) -> None:
            with contextlib.suppress(BrokenPipeError):
                for each in said:
                    connection.send(each)
                    if each == ACCEPTED:
                        assert received(connection) == (BEGIN, [os.readlink(f"/proc/self/fd/{at}") for at in range(3)])

        made.append(Zygote(environment, answer))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    yield
    signal.alarm(0)
    for number, what in before.items():
        signal.signal(number, what)


Run = Callable[..., int | None]


def run_python(environment: dict[str, str], *words: bytes) -> int | None:
    return hand_over(words, {name.encode(): value.encode() for name, value in environment.items()})


@pytest.fixture(params=["python", "c"])
def run(request: pytest.FixtureRequest) -> Run:
    """Has a command handed over, by either program: the status, or None where it is to be run here."""
    if request.param == "python":
        return run_python
    program = request.getfixturevalue("compiled_alone")

    def run_c(environment: dict[str, str], *words: bytes) -> int | None:
        status = subprocess.run([program, *words], env=environment, check=False).returncode
        return None if status == RUN_HERE else status

    return run_c


def test_all_that_makes_the_command_goes_there(
    run: Run,
    environment: dict[str, str],
    zygote: Callable[..., Zygote],
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = zygote(ACCEPTED, ENDED + b"\x07")
    monkeypatch.chdir(str(tmp_path))
    assert run(environment | LOCALE, b"origin", b"hpss://host/\xff") == 7
    there.close()
    ((parent, count, *rest),) = there.packets
    variables = [f"{name}={value}".encode() for name, value in {**environment, **LOCALE}.items()]
    assert count == b"2"
    assert int(parent) == (os.getppid() if run is run_python else os.getpid())
    assert rest == [
        b"origin",
        b"hpss://host/\xff",
        *variables,
    ]
    assert there.folder == [str(tmp_path)]


@pytest.mark.parametrize("said", [[], [DIRECT]], ids=["nothing", "to run itself"])
def test_until_it_is_accepted_it_runs_itself(
    run: Run, environment: dict[str, str], zygote: Callable[..., Zygote], said: list[bytes]
) -> None:
    zygote(*said)
    assert run(environment, b"origin", b"hpss://host/") is None


def test_once_it_is_accepted_it_does_not(
    run: Run, environment: dict[str, str], zygote: Callable[..., Zygote], capfd: pytest.CaptureFixture[str]
) -> None:
    zygote(ACCEPTED)
    assert run(environment, b"origin", b"hpss://host/") == LOST
    assert capfd.readouterr().err == LAST_WORDS.decode()


def test_a_worker_that_answers_too_late_is_not_told_to_begin(
    run: Run, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs itself by then: both would read what git says."""
    heard: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        heard.append(connection.recv(1))  # Its end comes first.
        with contextlib.suppress(BrokenPipeError):
            connection.send(ACCEPTED)

    monkeypatch.setattr("smartserver.agent.peer.TIME_TO_ANSWER", 0.01)
    with contextlib.closing(Zygote(environment, answer)):
        assert run(environment, b"origin", b"hpss://host/") is None
    assert heard == [b""]


def test_one_that_is_gone_again_leaves_it_to_the_command(run: Run, environment: dict[str, str]) -> None:
    def answer(connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_RD)
        connection.send(ACCEPTED)

    with contextlib.closing(Zygote(environment, answer)):
        assert run(environment, b"origin", b"hpss://host/") is None


def test_no_descriptor_is_left_open(environment: dict[str, str], zygote: Callable[..., Zygote]) -> None:
    before = os.listdir("/proc/self/fd")
    assert run_python(environment, b"origin", b"hpss://host/") is None
    assert os.listdir("/proc/self/fd") == before
    there = zygote(DIRECT)
    assert run_python(environment, b"origin", b"hpss://host/") is None
    there.close()
    assert os.listdir("/proc/self/fd") == before


def test_what_is_too_much_for_a_packet_it_runs_itself(
    run: Run, environment: dict[str, str], zygote: Callable[..., Zygote]
) -> None:
    there = zygote(ACCEPTED, ENDED + b"\0")
    large = {f"LARGE{number}": "x" * 100_000 for number in range(9)}  # The system takes no single one that is larger.
    assert run(environment | large, b"origin", b"hpss://host/") is None
    assert there.packets == []


@pytest.fixture(params=["python", "c"])
def hasty_program(request: pytest.FixtureRequest) -> list[str]:
    """A `program` that gives its worker a second to end."""
    if request.param == "python":
        return [sys.executable, "-c", HANDS_OVER]
    return [request.getfixturevalue("hasty_compiled"), "origin", "hpss://host/"]


HANDS_OVER = """\
import os
from smartserver.agent import thin

thin.TIME_TO_END = 1
os._exit(thin.hand_over([b"origin", b"hpss://host/"], os.environb))
"""


def signalled(
    program: list[str], environment: dict[str, str], work: Callable[[socket.socket, subprocess.Popen[bytes]], None]
) -> int:
    """The status of a command whose worker does this once the command heeds signals."""
    started: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

    def answer(connection: socket.socket) -> None:
        process = started.get()
        connection.send(ACCEPTED)
        assert received(connection)[0] == BEGIN
        # The command waits for what runs there, with all its signals set.
        connection.send(ask_to_run(["true"], {}, b"", quiet=False))
        assert connection.recv(MAX_PACKET) == OUTPUT
        work(connection, process)

    with contextlib.closing(Zygote(environment, answer)):
        process = subprocess.Popen(program, env={**LOCALE, **environment, "PATH": os.environ["PATH"]})
        started.put(process)
        return process.wait(PATIENCE)


def test_the_second_signal_ends_a_command_whose_worker_is_stopped(
    program: list[str], environment: dict[str, str]
) -> None:
    """The worker hears of both, and of the end, once it goes on."""
    heard: list[bytes] = []

    def work(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGINT)
        heard.append(connection.recv(1))
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        heard.extend([connection.recv(1), connection.recv(1)])

    assert signalled(program, environment, work) == -signal.SIGTERM
    assert heard == [bytes([signal.SIGINT]), bytes([signal.SIGTERM]), b""]


def test_so_does_the_time_after_the_first(hasty_program: list[str], environment: dict[str, str]) -> None:
    def work(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGINT)
        connection.recv(1)
        process.wait(PATIENCE)

    assert signalled(hasty_program, environment, work) == -signal.SIGINT


def asking(run: Run, environment: dict[str, str], *packets: bytes) -> list[bytes]:
    """The message to a worker that asks for these programs."""
    told: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        connection.send(ACCEPTED)
        assert received(connection)[0] == BEGIN
        for each in packets:
            connection.send(each)
            told.append(connection.recv(2 * MAX_PACKET))
        connection.send(ENDED + b"\x07")

    with contextlib.closing(Zygote(environment, answer)):
        assert run(environment, b"origin", b"hpss://host/") == 7
    return told


def test_a_program_runs_here(run: Run, environment: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    script = 'cat; echo "$HERE $THERE"; echo said >&2'
    environment = {**environment, "HERE": "1", "PATH": os.environ["PATH"]}
    shell = ask_to_run(["sh", "-c", script], {"THERE": "2=3"}, b"a\nb\n", quiet=False)
    silent = ask_to_run(["sh", "-c", script], {}, b"", quiet=True)
    assert asking(run, environment, shell, silent) == [OUTPUT + b"a\nb\n1 2=3\n", OUTPUT + b"1 \n"]
    assert capfd.readouterr().err == "said\n"


@pytest.mark.parametrize("words", [["sh", "-c", "echo x; exit 1"], ["/nowhere/at-all"]])
def test_a_program_that_fails_says_nothing(run: Run, environment: dict[str, str], words: list[str]) -> None:
    environment = {**environment, "PATH": os.environ["PATH"]}
    assert asking(run, environment, ask_to_run(words, {}, b"", quiet=False)) == [OUTPUT]


def test_a_signal_goes_to_the_program_that_runs_here(run: Run, environment: dict[str, str]) -> None:
    """It would wait for its user."""
    environment = {**environment, "PATH": os.environ["PATH"]}
    heard: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        connection.send(ACCEPTED)
        assert received(connection)[0] == BEGIN
        connection.send(ask_to_run(["sh", "-c", "kill -TERM $PPID; exec sleep 60"], {}, b"", quiet=False))
        while not heard or heard[-1][:1] != OUTPUT:
            heard.append(connection.recv(MAX_PACKET))
        connection.send(ENDED + b"\x82")

    with contextlib.closing(Zygote(environment, answer)):
        assert run(environment, b"origin", b"hpss://host/") == 130
    assert heard == [bytes([signal.SIGTERM]), OUTPUT]
