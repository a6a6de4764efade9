"""agent.address, agent.peer, agent.start, agent.keeper: what another user can do. Both users have real processes.

What one user can do wrong is in `test_agent_keeper` and `test_held_connections`.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import needs

from smartserver.agent.address import KEEPER, ZYGOTE, NoAgent, path_of, runtime_folder
from smartserver.agent.lending import ask, borrow, give
from smartserver.agent.messages import Give, Status, decode_held
from smartserver.agent.peer import connect
from smartserver.agent.start import start
from smartserver.agent.thin import hand_over

pytestmark = [
    pytest.mark.sockets,
    needs("root"),
]

PATIENCE = 60.0

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


def test_nor_is_a_link_that_another_made_to_the_users_own_folder(theirs: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    os.chown(own, OTHER, OTHER)
    theirs.symlink_to(own)
    assert "got a file of user 0" in as_other(refused)
    assert list(own.iterdir()) == []


@pytest.fixture
def open_folder(environment: dict[str, str]) -> dict[str, str]:
    """A runtime folder that the other user can enter as well: no agent makes one."""
    folder = Path(runtime_folder(environment, make=True))
    for each in (folder, folder.parent):
        each.chmod(0o777)
    return environment


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


@pytest.mark.parametrize("part", [KEEPER, ZYGOTE])
def test_a_command_says_nothing_to_a_process_of_another_user(open_folder: dict[str, str], part: str) -> None:
    """Were there one behind the socket: it hears the end at once."""
    folder = Path(open_folder["XDG_RUNTIME_DIR"], "smartserver")
    folder.chmod(0o700)
    path = path_of(part, open_folder)
    folder.chmod(0o777)
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
        connect(part, open_folder)
    assert os.read(heard, 100) == b"b''"
    os.wait()
    for each in (ready, listens, heard, says):
        os.close(each)
