"""agent.peer, circumstances, address, start, keeper, thin.c: who may listen where a command finds its agent, who may
ask, and what another user can do. Both users have real processes."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from agents import RUN_HERE, stop
from needs import needs

from smartserver.agent import circumstances as read
from smartserver.agent.address import KEEPER, ZYGOTE, NoAgent, path_of
from smartserver.agent.circumstances import Circumstances, _unit
from smartserver.agent.keeper import Keeper
from smartserver.agent.lending import ask, borrow, give
from smartserver.agent.messages import Give, Status, Stop, decode_count, decode_held
from smartserver.agent.peer import CREDENTIALS, Gone, bounds, connect, open_peer, open_process
from smartserver.agent.start import start
from smartserver.agent.thin import hand_over

pytestmark = pytest.mark.sockets

LISTEN = """\
import os, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(8)
print(flush=True)
connection = listener.accept()[0]
said = connection.recv(1 << 20)
print(repr(said), flush=True)
if said:
    connection.send(b"a")
    connection.recv(1)
    connection.send(b"e\\x07")
"""
"""Takes the place of a zygote, and tells what it hears."""

PATIENCE = 60.0
"""Seconds."""

REACHED = 7
"""Status of a command that it runs."""


@contextmanager
def listening(
    environment: dict[str, str], *before: str, part: str = ZYGOTE, python: str = sys.executable
) -> Iterator[Callable[[], str]]:
    """A process that listens where an agent would, started by the words before it; what it hears next."""
    words = [*before, python, "-c", LISTEN, path_of(part, environment, make=True)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        says = process.stdout.readline
        try:
            assert says() != "", f"{words[0]} does not work here"
            yield lambda: says().strip()
        finally:
            process.kill()


Run = Callable[[dict[str, str]], int]


@pytest.fixture
def run(program: list[str]) -> Run:
    """Has a command handed over: its status."""
    return lambda environment: subprocess.run(program, env={"LC_ALL": "C.UTF-8", **environment}, check=False).returncode


def test_a_process_that_may_do_the_same_runs_the_command(run: Run, environment: dict[str, str]) -> None:
    with listening(environment) as heard:
        assert run(environment) == REACHED
        assert "hpss://host/" in heard()


LOCKED_IN = {
    "unshare --user --map-root-user": "user namespaces",
    "unshare --uts": "namespaces",
    "unshare --ipc": "namespaces",
    "unshare --cgroup": "namespaces",
    "unshare --mount": "namespaces",
    "unshare --time": "namespaces",
    "setpriv --no-new-privs": "/proc",
    "setpriv --bounding-set -chown": "root",
    "setpriv --groups 64999": "root",
}
"""Command lines, and what each needs."""


@pytest.mark.parametrize(
    "before", [pytest.param(line.split(), marks=needs(need), id=line) for line, need in LOCKED_IN.items()]
)
def test_one_that_is_locked_in_hears_nothing(run: Run, environment: dict[str, str], before: list[str]) -> None:
    if before[0] == "unshare" and os.geteuid() != 0:
        before = [before[0], "--user", "--map-current-user", *before[1:]]
    with listening(environment, *before) as heard:
        assert run(environment) == RUN_HERE
        assert heard() in ("b''", "")


def test_nor_is_it_lent_or_given_a_connection(environment: dict[str, str]) -> None:
    with listening(environment, "setpriv", "--no-new-privs", part=KEEPER) as heard:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert give(Give("k", "hpss://here:1/", 1, 1.0), [ours.fileno()], environment)
            assert heard() in ("b''", "")
            lent = borrow("k", environment)  # From an agent that took its place.
            assert lent is not None
            os.close(lent.descriptors[0])


def test_it_is_told_to_stop(environment: dict[str, str]) -> None:
    """Else it would be in the way of an agent that may do the same as the commands."""
    with listening(environment, "setpriv", "--no-new-privs", part=KEEPER) as heard:
        with pytest.raises(NoAgent):  # It is none, and answers something else.
            ask(Stop(), decode_count, environment, foreign=True)
        assert heard() == repr(msgspec.json.encode(Stop()))


def test_another_program_hears_nothing(run: Run, environment: dict[str, str], tmp_path: Path) -> None:
    """Whatever the system does not tell of how that is locked in."""
    program = tmp_path / "another"
    program.write_bytes(Path(os.path.realpath(sys.executable)).read_bytes())
    program.chmod(0o755)
    with listening(environment, "env", f"PYTHONHOME={sys.base_prefix}", python=str(program)) as heard:
        assert run(environment) == RUN_HERE
        assert heard() in ("b''", "")


def listener_of_a_process_that_ended(path: str) -> socket.socket:
    """It is here, and its process is not."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    child = os.fork()
    if child == 0:
        listener.listen(1)
        os._exit(0)
    os.waitpid(child, 0)
    return listener


def test_one_that_has_ended_is_none(environment: dict[str, str]) -> None:
    path = path_of(ZYGOTE, environment, make=True)
    with listener_of_a_process_that_ended(path), pytest.raises(Gone, match="has ended"):
        connect(ZYGOTE, environment)


REUSE = """\
import os, signal, socket, subprocess, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
first = os.fork()
if first == 0:
    listener.listen(1)
    os._exit(0)
os.waitpid(first, 0)
with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write(str(first - 1))
second = os.fork()
if second == 0:
    signal.pause()
assert second == first
if os.fork() == 0:
    connection = listener.accept()[0]
    if connection.recv(1 << 20):
        connection.send(b"a")
        connection.recv(1)
        connection.send(b"e\\x07")
    os._exit(0)
status = subprocess.run(sys.argv[2:]).returncode
os.kill(second, signal.SIGKILL)
sys.exit(status)
"""
"""Has a command run where an innocent process has the number of one that listened."""


@needs("process namespaces", "SO_PEERPIDFD")
def test_nor_is_another_process_that_has_its_number(program: list[str], environment: dict[str, str]) -> None:
    """In a namespace where nobody else starts a process."""
    alone = ["unshare", "--pid", "--mount-proc", "--fork"]
    path = path_of(ZYGOTE, environment, make=True)
    its = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], **environment}
    done = subprocess.run([*alone, sys.executable, "-c", REUSE, path, *program], env=its, timeout=PATIENCE, check=False)
    assert done.returncode == RUN_HERE


def test_a_borrower_waits_for_the_keeper_whose_starter_has_ended(environment: dict[str, str]) -> None:
    listener = listener_of_a_process_that_ended(path_of(KEEPER, environment, make=True))
    waits = threading.Thread(target=Keeper(listener, zygote=None).run)
    found: list[object] = []
    asks = threading.Thread(target=lambda: found.append(ask(Status(), decode_held, environment)))
    asks.start()
    waits.start()
    asks.join()
    stop(environment)
    waits.join()
    assert len(found) == 1


def test_one_of_another_namespace_of_processes_is_refused() -> None:
    class Connection(socket.socket):
        def getsockopt(self, *_arguments: object) -> bytes:  # type: ignore[override]
            return CREDENTIALS.pack(0, os.geteuid(), 0)

    with Connection(socket.AF_UNIX) as connection, pytest.raises(NoAgent, match="namespace"):
        open_peer(connection)


def test_a_label_is_one_of_the_bounds(tmp_path: Path) -> None:
    """The label is one of AppArmor or SELinux, which this machine may not have."""
    found = set()
    for label in (b"unconfined\n", b"docker-default (enforce)\n", None):
        folder = process_folder(tmp_path / str(label), label)
        found.add(bounds(folder))
        os.close(folder)
    assert len(found) == 3


def process_folder(path: Path, label: bytes | None) -> int:
    """A folder as of a process in /proc."""
    (path / "ns").mkdir(parents=True)
    (path / "attr").mkdir()
    (path / "root").symlink_to("/")
    (path / "status").write_bytes(Path("/proc/self/status").read_bytes())
    if label is not None:
        (path / "attr/current").write_bytes(label)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def test_what_may_not_be_read_is_not_taken_for_absent(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.readlink

    def readlink(name: str, *, dir_fd: int | None = None) -> str:
        if name == "ns/time":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(name, dir_fd=dir_fd)

    with listening(environment, part=KEEPER):
        monkeypatch.setattr(os, "readlink", readlink)
        with pytest.raises(NoAgent, match="Permission denied"):
            connect(KEEPER, environment)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """They wait for the end of their input."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for each in made:
        each.communicate()


def circumstances(process: int, environment: dict[bytes, bytes]) -> Circumstances:
    folder = open_process(str(process))
    try:
        return read.circumstances(folder, environment)
    finally:
        os.close(folder)


def of(made: list[subprocess.Popen[bytes]], *before: str) -> Circumstances:
    """The circumstances of a new process, once the program before it has become it."""
    made.append(subprocess.Popen([*before, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    process = made[-1]
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"x")
    process.stdin.flush()
    process.stdout.read(1)
    return circumstances(process.pid, {})


def test_a_process_that_another_starts_has_the_same(processes: list[subprocess.Popen[bytes]]) -> None:
    mask = os.umask(0o027)
    try:
        there = of(processes)
    finally:
        os.umask(mask)
    assert there == Circumstances(circumstances(os.getpid(), {}).facts, 0o027)


@pytest.mark.parametrize(
    "before",
    [
        ["nice", "-n", "1"],
        ["choom", "-n", "900", "--"],
        ["chrt", "--batch", "0"],
        ["prlimit", "--nofile=200:200"],
        ["setpriv", "--no-new-privs"],
        pytest.param(["unshare", "--user"], marks=needs("user namespaces")),
    ],
    ids=lambda words: words[0],
)
def test_what_makes_it_another(processes: list[subprocess.Popen[bytes]], before: list[str]) -> None:
    there = of(processes, *before)
    assert there.facts != circumstances(os.getpid(), {}).facts


def test_what_python_makes_of_words_is_one_of_them() -> None:
    here = os.getpid()
    for name in (b"LC_ALL", b"LANG", b"PYTHONUTF8", b"GIT_DIR", b"PYTHONUNBUFFERED", b"LANGUAGE"):
        same = name in (b"GIT_DIR", b"PYTHONUNBUFFERED", b"LANGUAGE")
        assert (circumstances(here, {name: b"C"}) == circumstances(here, {})) is same, name


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope", b"app.slice"),
        (b"0::/user.slice/user-1000.slice/session-3.scope", b"user-1000.slice"),
        (b"0::/system.slice/fetch.service", b"fetch.service"),
        (b"4:memory:/", b""),
    ],
)
def test_a_terminals_own_control_group_is_none(line: bytes, kept: bytes) -> None:
    assert _unit(line).rpartition(b"/")[2] == kept


def test_a_process_that_is_gone_has_none() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    folder = open_process(str(process.pid))
    process.communicate()
    with pytest.raises(OSError, match="No such"):
        read.circumstances(folder, {})
    os.close(folder)


def test_proc_is_read_as_it_is_written() -> None:
    """The program's name may hold what else ends it."""
    name = Path("/proc/self/comm")
    before = name.read_text()
    expected = circumstances(os.getpid(), {})
    name.write_text("a) b (c 1")
    try:
        assert circumstances(os.getpid(), {}) == expected
    finally:
        name.write_text(before.rstrip())


# -- another user

OTHER = 64_999
"""A user of no account."""

FOLDER = Path(f"/tmp/smartserver-{OTHER}")
"""The folder of the other user's agent, who has no XDG_RUNTIME_DIR."""


def as_other(work: Callable[[], object]) -> str:
    """The result of a function in a process of the other user's, as text, or its error."""
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            os.chdir("/")
            os.write(written, str(work()).encode())
        except BaseException:
            os.write(written, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(written)
    with os.fdopen(read) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def theirs() -> Iterator[Path]:
    """The folder of the other user, for somebody else to make."""
    assert not os.path.lexists(FOLDER)
    yield FOLDER
    if FOLDER.is_symlink():
        FOLDER.unlink()
    elif FOLDER.exists():
        shutil.rmtree(FOLDER)


def refused() -> str:
    """All that a command does with an agent where there must be none."""
    ours, _ = socket.socketpair()
    assert borrow("k", {}) is None
    assert not give(Give("k", "hpss://here:1/", 1, 1.0), [ours.fileno()], {})
    assert hand_over([b"origin", b"hpss://host/"], {}) is None
    try:
        start({})
    except NoAgent as wrong:
        return str(wrong)
    return "one was started"


@needs("root")
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_a_folder_that_another_made_first_is_not_used(theirs: Path, mode: int) -> None:
    """In /tmp anybody can; all that it costs is the agent."""
    theirs.mkdir()
    theirs.chmod(mode)
    expected = (
        f"expected a folder of user {OTHER} that nobody else may enter, got a folder of user 0 with mode {mode:o}"
    )
    assert as_other(refused) == f"{theirs}: {expected}"
    assert list(theirs.iterdir()) == []


@needs("root")
def test_nor_is_a_link_that_another_made_to_the_users_own_folder(theirs: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    os.chown(own, OTHER, OTHER)
    theirs.symlink_to(own)
    assert "got a file of user 0" in as_other(refused)
    assert list(own.iterdir()) == []


def answer_of(path: str) -> str:
    """The answer of a listener to a peer that sends it all that it has."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(path)
        try:
            socket.send_fds(asking, [b'{"type": "Borrow", "key": "k"}'], [0])
            return repr(asking.recv(100))
        except (BrokenPipeError, ConnectionResetError) as wrong:
            return type(wrong).__name__


def wait_until_it_answers(environment: dict[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            ask(Status(), decode_held, environment)
        except NoAgent:
            assert time.monotonic() < deadline
            time.sleep(0.02)  # It starts slower where this one takes the processor.
        else:
            return


@needs("root")
@pytest.mark.parametrize("part", [KEEPER, ZYGOTE])
def test_an_agent_says_nothing_to_another_user(environment: dict[str, str], part: str) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            assert give(Give("k", "hpss://here:1/", 1, 1.0), [ours.fileno()], environment)
        wait_until_it_answers(environment)  # As it starts it refuses a folder that others may enter.
        path = Path(path_of(part, environment))
        path.chmod(0o666)
        for each in (path.parent, path.parent.parent):
            each.chmod(0o711)
        said = as_other(lambda: answer_of(str(path)))
        path.parent.chmod(0o700)
        nothing = ("b''", "BrokenPipeError", "ConnectionResetError")
        assert said in (nothing if part == KEEPER else ("b'd'", *nothing))
        assert len(ask(Status(), decode_held, environment)[0].lines) == 1


@needs("root")
@pytest.mark.parametrize("part", [KEEPER, ZYGOTE])
def test_a_command_says_nothing_to_a_process_of_another_user(environment: dict[str, str], part: str) -> None:
    """Were there one behind the socket, in a folder that no agent makes: it hears the end at once."""
    path = path_of(part, environment, make=True)
    folder = Path(path).parent
    for above in (folder, folder.parent):
        above.chmod(0o777)
    ready, listens = os.pipe()
    heard, says = os.pipe()
    if os.fork() == 0:
        os.setuid(OTHER)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen(1)
            os.write(listens, b"!")
            connection, _ = listener.accept()
            os.write(says, repr(connection.recv(100)).encode())
        os._exit(0)
    assert os.read(ready, 1) == b"!"
    folder.chmod(0o700)
    with pytest.raises(NoAgent, match=f"expected a process of user 0 at the other end, got one of user {OTHER}"):
        connect(part, environment)
    assert os.read(heard, 100) == b"b''"
    os.wait()
    for each in (ready, listens, heard, says):
        os.close(each)
