"""cli.zygote, cli.agent_run, cli.agent, cli.git_remote, cli.tls_relay, client.media.tls_relay, client.trust: git with
an agent that outlives its commands.

cli.entry and cli.zygote: commands that read, run by the agent."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_sides import PATIENCE, Blocked, User, modules, wait_for_end, wait_until, zygote_of
from agents import children, of_its_own, stop, workers
from git_sides import Served
from scripts import script
from secure_sides import Secure

from smartserver.agent.address import ZYGOTE
from smartserver.agent.lending import ask
from smartserver.agent.messages import Status, decode_held
from smartserver.agent.peer import connect
from smartserver.agent.thin import ACCEPTED, BEGIN, LAST_WORDS, _send

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


@pytest.fixture(scope="module", params=["python", "c"])
def anna(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[User]:
    """A user with a loaded agent, a repository with one commit of the file `a`, and either program."""
    in_python = os.path.dirname(sys.executable)
    programs = in_python if request.param == "python" else str(request.getfixturevalue("compiled"))
    folder = tmp_path_factory.mktemp("user")
    served = tmp_path_factory.mktemp("server")
    server = Served(served, "--anonymous", "write")
    try:
        with of_its_own() as agent:
            made = User(folder, agent, server, programs)
            del made.environment["SMARTSERVER_DEBUG"]
            made("sh -c 'echo one >a && git add a && git commit -q -m file && git push -q origin main'")
            (server.root / "broken").mkdir()
            (server.root / "broken" / "root").write_bytes(b"no root")
            yield made
    finally:
        server.close()


def run(anna: User, words: str, agent: str, after: str = "") -> tuple[int, bytes, bytes]:
    environment = {**anna.environment, "SMARTSERVER_AGENT": agent, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"smartserver {words} {after}"], cwd=anna.folder, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "ls -l {url}",
        "cat {url} a",
        "log --json {url}@nowhere",
        "list --refs {url}",
        "list {url}/../\udcff",
        "stats {url}",
        "ls --help {url}",
        "ls --no-such-option {url}",
        "export {url} a",
        "ls hpss://127.0.0.1:1/",
        "-Dhpss-ban=no-such-rule ls {url}",
    ],
)
def test_the_agent_says_the_same(anna: User, words: str) -> None:
    command = words.format(url=anna.url, above=anna.url.removesuffix("project"))
    assert run_by_worker(anna, command) == run(anna, command, "0")


def run_by_worker(anna: User, words: str, after: str = "") -> tuple[int, bytes, bytes]:
    """Run a command by the waiting worker, and wait until another worker has replaced it."""
    zygote = anna.wait_until_loaded()
    before = children(zygote)
    done = run(anna, words, "1", after)
    wait_until(lambda: not set(before) & set(children(zygote)))  # Else somebody ran the command himself.
    return done


def test_the_folder_and_the_mask_are_the_commands(anna: User) -> None:
    folder = anna.folder / "there"
    folder.mkdir()
    command = f"cd there && umask 027 && smartserver export {anna.url} made"
    done = subprocess.run(["sh", "-c", command], cwd=anna.folder, env=anna.environment, check=False)
    assert done.returncode == 0
    assert (folder / "made" / "a").read_text() == "one\n"
    assert (folder / "made" / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("words", ["ls {url}", "list --json {above}"])
def test_an_output_that_is_full_is_said(anna: User, words: str) -> None:
    command = words.format(url=anna.url, above=anna.url.removesuffix("project"))
    by_worker = run_by_worker(anna, command, ">/dev/full")
    assert by_worker == run(anna, command, "0", ">/dev/full")
    assert (by_worker[0], by_worker[2]) == (1, b"smartserver: output: No space left on device\n")


def test_a_reader_that_has_enough_is_no_error_to_speak_of(anna: User) -> None:
    for _, _, said in (run_by_worker(anna, f"log {anna.url}", "| true"), run(anna, f"log {anna.url}", "0", "| true")):
        assert said == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_worker(anna: User, number: signal.Signals) -> None:
    blocked = Blocked(anna, "smartserver export {} made")
    try:
        assert not modules(blocked.program(), "msgspec")
        (worker,) = workers(zygote_of(anna))
        os.killpg(blocked.git.pid, number)
        _, said = blocked.git.communicate(timeout=PATIENCE)
        assert blocked.git.returncode == 128 + number
        assert said.strip() == ("interrupted" if number == signal.SIGINT else "")
        wait_for_end(worker)
        assert not list(Path(anna.folder).glob(".smartserver-*"))
    finally:
        blocked.close()


HELD = "1 round trip on a held connection"
CONNECTED = "1 round trip on a fresh connection"

KEEPERS = pytest.mark.parametrize("programs", ["python"], indirect=True)
"""Runs a test once, with the program in Python: it tests the agent, whichever program git runs."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "server"
    folder.mkdir()
    made = Served(folder, "--anonymous", "write")
    yield made
    made.close()


@pytest.fixture
def user(tmp_path: Path, server: Served, programs: str) -> Iterator[User]:
    folder = tmp_path / "user"
    folder.mkdir()
    with of_its_own() as agent:
        yield User(folder, agent, server, programs)


def test_the_second_command_needs_no_connection_of_its_own(user: User) -> None:
    assert CONNECTED in user("git push origin main")
    for _ in range(2):
        user.commit()
        assert HELD in user("git push origin main")
    assert HELD in user("git fetch")
    assert HELD in user("git ls-remote")
    assert HELD in user("git clone -q $(git remote get-url origin) again")
    assert user("git -C again rev-parse HEAD") == user("git rev-parse HEAD")


LISTS_MODULES = """\
import os, sys
from smartserver.cli import zygote
from smartserver.cli.git_remote_run import serve

zygote.load()
before = set(sys.modules)
status = serve(sys.argv[1], sys.argv[2], os.environ, parent=os.getppid())
with open(os.environ["MODULES"], "a") as file:
    file.write(" ".join(["ran", *sorted(set(sys.modules) - before)]) + "\\n")
sys.exit(status)
"""
"""A `git-remote-hpss` that does a worker's work, and then prints the loaded modules."""


@KEEPERS
def test_a_worker_loads_no_module(user: User, tmp_path: Path) -> None:
    user("git push origin main")  # The agent is there.
    user("git clone -q $(git remote get-url origin) other")
    programs, listed = tmp_path / "programs", tmp_path / "modules"
    script(programs / "git-remote-hpss", LISTS_MODULES, f"{sys.executable} -I")
    user.environment["PATH"] = os.pathsep.join([str(programs), user.environment["PATH"]])
    user.environment["MODULES"] = str(listed)
    del user.environment["SMARTSERVER_DEBUG"]
    (user.folder / "file").write_text("text\n" * 100)
    user("git add file")
    user("git commit -q -m file")
    for command in ("push origin main", "push origin main", "-C other fetch -q", "-C other fetch -q", "ls-remote -q"):
        user(f"git {command}")
    assert listed.read_text() == "ran\n" * 5


def test_the_start_that_is_told_is_the_command_s(user: User) -> None:
    user("git push origin main")
    user.wait_until_loaded()
    begun = time.monotonic()
    told = re.search(r"after a start of (\d+) ms", user("git fetch"))
    assert told is not None
    assert int(told[1]) <= (time.monotonic() - begun) * 1000 + 20  # The system counts in steps of 10 ms.


@KEEPERS
def test_what_is_held_can_be_seen_and_closed(user: User) -> None:
    assert user("smartserver agent status").startswith("no agent: ")
    user("git push origin main")
    server = user.url.removesuffix("project")
    said = user("smartserver agent status").splitlines()
    assert said[0] == f"process {user.keeper()}, connections held: 1"
    assert re.match(rf"{re.escape(server)}  for \d+ s", said[1])
    assert user("smartserver agent forget hpss://elsewhere/") == "connections closed: 0\n"
    assert user(f"smartserver agent forget {user.url}") == "connections closed: 1\n"
    assert CONNECTED in user("git fetch")
    assert user("smartserver agent stop") == ""
    assert "smartserver: the agent" not in user("git fetch")
    assert user("smartserver agent run", status=1) == "smartserver: the agent of this user runs already\n"
    user("git fetch origin")
    assert user("smartserver agent forget") == "connections closed: 1\n"
    assert "'nothing' is not a URL" in user("smartserver agent forget nothing", status=1)


@KEEPERS
def test_one_can_be_run_by_hand(user: User) -> None:
    process = user.start("smartserver agent run")
    try:
        wait_until(lambda: not user("smartserver agent status").startswith("no agent"))
        assert user.keeper() == process.pid
    finally:
        stop(user.agent)
    assert process.wait(PATIENCE) == 0
    process.communicate()


@pytest.fixture
def blocked(user: User) -> Iterator[Blocked]:
    user("git push origin main")
    user.wait_until_loaded()
    made = Blocked(user, "git ls-remote {}")
    yield made
    made.close()


def test_the_program_that_git_runs_is_thin(user: User, blocked: Blocked, programs: str) -> None:
    assert "git-remote-hpss" in Path(f"/proc/{blocked.program()}/cmdline").read_text()
    assert not modules(blocked.program(), "msgspec")
    assert modules(blocked.program(), "python") == (programs == os.path.dirname(sys.executable))
    (worker,) = workers(zygote_of(user))
    assert modules(worker, "msgspec")
    assert os.getsid(worker) != os.getsid(blocked.git.pid)


def test_an_interrupt_is_one_from_the_beginning(user: User, blocked: Blocked, programs: str) -> None:
    """The command ends at whichever moment the interrupt comes, and does not report that its worker died."""
    (first,) = workers(zygote_of(user))
    for moment in range(16):
        program = subprocess.Popen(
            [f"{programs}/git-remote-hpss", "origin", user.url], env=user.environment, cwd=user.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        deadline = time.monotonic() + 0.002 * moment
        while time.monotonic() < deadline:
            pass
        while program.poll() is None:  # Python may drop one as it starts.
            program.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(1)  # Its input stays open.
        _, said = program.communicate()
        assert program.returncode in (130, -signal.SIGINT, 1), said  # 1: Python was not loaded yet.
        assert LAST_WORDS not in said
    wait_until(lambda: workers(zygote_of(user)) == [first])


def test_the_death_of_the_thin_program_ends_the_worker(user: User, blocked: Blocked) -> None:
    (worker,) = workers(zygote_of(user))
    os.kill(blocked.program(), signal.SIGKILL)
    wait_for_end(worker)
    assert "Traceback" not in blocked.git.communicate(timeout=PATIENCE)[1]


def test_a_command_that_is_stopped_goes_on_where_it_was(user: User, blocked: Blocked) -> None:
    """^Z stops git and the thin program. The worker may end meanwhile; the program reads its answer afterwards."""
    (worker,) = workers(zygote_of(user))
    os.killpg(blocked.git.pid, signal.SIGSTOP)
    blocked.hang_up()
    wait_for_end(worker)
    os.killpg(blocked.git.pid, signal.SIGCONT)
    assert "fatal: hpss: " in blocked.git.communicate(timeout=PATIENCE)[1]
    assert blocked.git.returncode == 128


@KEEPERS
@pytest.mark.parametrize("said", [b"", b"\x0f", BEGIN], ids=["nothing", "a signal", "to begin with nothing"])
def test_a_worker_that_is_not_told_to_begin_touches_no_stream(user: User, said: bytes) -> None:
    """The command did not wait for the worker, and does the work itself."""
    user("git push origin main")
    user.wait_until_loaded()
    read, written = os.pipe()
    os.write(written, b"capabilities\n\n")
    os.close(written)
    variables = {os.fsencode(name): os.fsencode(value) for name, value in user.environment.items()}
    words = [b"origin", user.url.encode()]
    packet = [b"1", b"2", *words, *map(b"=".join, variables.items())]
    folder = os.open("/", os.O_PATH)
    with contextlib.closing(connect(ZYGOTE, user.agent)) as worker:
        _send(worker, b"\0".join(packet), folder)
        assert worker.recv(1) == ACCEPTED
        if said:
            _send(worker, said, *([] if said == BEGIN else [read, 1, 2]))
        else:
            worker.shutdown(socket.SHUT_WR)
        assert worker.recv(2) == b""
    os.close(folder)
    assert os.read(read, 100) == b"capabilities\n\n"
    os.close(read)


def test_what_the_first_command_had_ends_with_it(user: User) -> None:
    """The agent keeps neither its descriptors, which may hold a lock, nor its blocked signals, which may include ^C."""
    program = (
        "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [2, 15])\nos.execvp('git', ['git', 'fetch'])\n"
    )
    (user.folder / "blocks.py").write_text(program)
    user("env SMARTSERVER_AGENT=0 git push origin main")
    user(f"sh -c 'exec 9>lock; flock 9; exec {sys.executable} blocks.py'")
    user("flock --nonblock lock true")
    for process in (user.keeper(), user.wait_until_loaded()):
        assert "\nSigBlk:\t0000000000000000\n" in Path(f"/proc/{process}/status").read_text()


SEEING = """\
tr '\\0' ' ' </proc/$PPID/cmdline >$SEEN/$$.parent
env -u SEEN -u GIT_EXEC_PATH -u PATH -u SMARTSERVER_AGENT | sort >$SEEN/$$.environment
exec /usr/bin/git "$@"
"""


def programs_of_a_push(user: User, parent: str) -> set[str]:
    """Return the environments of the programs that a process with this name runs during a push of one commit."""
    folder = user.folder / parent
    script(folder / "git", SEEING)
    user.commit()
    user(f"env SEEN={folder} GIT_EXEC_PATH={folder} git push origin main")
    found = [each for each in folder.glob("*.parent") if parent in each.read_text()]
    return {each.with_suffix(".environment").read_text() for each in found}


def test_a_worker_has_its_commands_environment_and_nothing_of_an_earlier_one(user: User) -> None:
    mine = user.environment
    others = {"PYTHONSTARTUP": "/first", "PYTHONPATH": "/first", "GIT_COMMITTER_EMAIL": "first", "SECRET": "first"}
    user.environment = mine | others
    user("git push origin main")
    user.environment = mine
    user.wait_until_loaded()
    found = programs_of_a_push(user, "agent_run")
    user.environment = mine | {"SMARTSERVER_AGENT": "0"}
    (expected,) = programs_of_a_push(user, "git-remote-hpss")
    assert found == {expected}


@KEEPERS
def test_ssh_is_started_once(user: User, server: Served, tmp_path: Path) -> None:
    """The output of ssh is shown while its command runs; ssh's open streams keep no reader waiting."""
    count = tmp_path / "count"
    last = 'for last; do :; done\nexec sh -c "$last"'
    ssh = script(tmp_path / "ssh", f"echo started >> {count}\necho welcome >&2\n{last}")
    home = tmp_path / "home"
    (home / "code").mkdir(parents=True)
    user.environment |= {"GIT_SSH": ssh, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    user(f"git remote set-url origin hpss+ssh://me@host{home}/code/project")
    said = user("git push origin main")
    assert "welcome" in said
    assert CONNECTED in said
    user.wait_until_loaded()
    for _ in range(2):
        user.commit()
        assert HELD in user("git push origin main")
    assert count.read_text() == "started\n"
    user.environment["SSH_AUTH_SOCK"] = "/run/another"
    assert CONNECTED in user("git fetch")
    assert count.read_text() == "started\n" * 2
    shutil.rmtree(home)


@KEEPERS
def test_a_restricted_shell_is_logged_in_to_once(user: User, tmp_path: Path) -> None:
    """The shell is like git-shell: it runs no program of ours and exits with 128. Each login may ask for a password."""
    count = tmp_path / "count"
    ssh = script(tmp_path / "ssh", f"echo login >> {count}\necho 'fatal: unrecognized command' >&2\nexit 128")
    user.environment |= {"GIT_SSH": ssh, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    said = user("git ls-remote hpss+ssh://me@host/srv/code/project", status=128)
    assert count.read_text() == "login\n"
    assert "fatal: unrecognized command\n" in said
    assert "cannot connect to me@host" in said


# -- over TLS


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    made = Secure(tmp_path / "server")
    yield made
    made.server.close()


def test_git_pushes_with_a_token_on_one_held_connection(secure: Secure, tmp_path: Path) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    with of_its_own() as agent:
        user = User(folder, agent, secure.server, os.path.dirname(sys.executable))
        user.environment["SMARTSERVER_TOKEN"] = f"127.0.0.1:{secure.server.direct[1]}={secure.token()}"
        user(f"git remote set-url origin '{secure.url('p')}'")
        first = user("git push origin main")
        assert "access-denied" in first, "the server asks for a token once"
        assert "2 round trips on a fresh connection" in first
        for _ in range(2):
            user.commit()
            assert HELD in user("git push origin main")
        assert HELD in user("git ls-remote origin")
        assert [line.where for line in ask(Status(), decode_held, agent)[0].lines] == [f"{secure.above}/"]
        user("smartserver agent stop")
        assert CONNECTED in user("git fetch origin")
