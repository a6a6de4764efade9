"""agent.address, start, keeper, messages, lending: where the sockets are, and what is held there for whom."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import Times, keeping, stop

import smartserver
from smartserver.agent.address import KEEPER, NoAgent, path_of, runtime_folder
from smartserver.agent.keeper import IDLE, MOST, MOST_OF_SERVER, Keeper
from smartserver.agent.lending import ask, borrow, give
from smartserver.agent.messages import Give, Status, decode_held
from smartserver.agent.peer import connect
from smartserver.agent.start import start

pytestmark = pytest.mark.sockets

PLACE = "hpss://here:4155/"


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def keeper(environment: dict[str, str], times: Times) -> Iterator[dict[str, str]]:
    """The environment in which it is found."""
    with keeping(environment, times):
        yield environment


def hold(keeper: dict[str, str], key: str = "k", last_id: int = 3) -> socket.socket:
    """Have one end of a connection held; the other."""
    ours, theirs = socket.socketpair()
    with ours:
        assert give(Give(key, PLACE, last_id, 1.5), [ours.fileno()], keeper)
    held(keeper)  # Nobody waits for what is given.
    return theirs


def held(keeper: dict[str, str]) -> int:
    return len(ask(Status(), decode_held, keeper)[0].lines)


def test_a_connection_is_lent_to_who_has_its_key_and_to_nobody_else(keeper: dict[str, str]) -> None:
    with hold(keeper) as server:
        assert borrow("another", keeper) is None
        lent = borrow("k", keeper)
        assert lent is not None
        assert lent[1:] == (3, 1.5)
        assert not os.get_inheritable(lent.descriptors[0]), "it passes to no program"
        assert borrow("k", keeper) is None
        with socket.socket(fileno=lent.descriptors[0]) as ours:
            ours.sendall(b"asked")
            assert server.recv(9) == b"asked"
            server.sendall(b"said")
            assert ours.recv(9) == b"said"
        assert server.recv(9) == b""


@pytest.mark.parametrize("how", ["ended", "reset", "spoke"])
def test_one_whose_server_says_anything_is_lent_no_more(keeper: dict[str, str], how: str) -> None:
    server = hold(keeper)
    assert held(keeper) == 1
    if how == "spoke":
        server.sendall(b"!")
    else:
        server.close()
    assert borrow("k", keeper) is None
    assert held(keeper) == 0
    server.close()


def test_the_one_that_was_used_last_is_lent_first(keeper: dict[str, str]) -> None:
    with hold(keeper, last_id=1), hold(keeper, last_id=2):
        for expected in (2, 1):
            lent = borrow("k", keeper)
            assert lent is not None
            assert lent.last_id == expected
            os.close(lent.descriptors[0])


@pytest.mark.parametrize(("keys", "most"), [(1, MOST_OF_SERVER), (MOST, MOST)])
def test_there_is_a_bound(keeper: dict[str, str], keys: int, most: int) -> None:
    servers = [hold(keeper, f"key {number % keys}") for number in range(most + 2)]
    assert held(keeper) == most
    for server in servers:
        server.close()


def test_after_a_sleep_none_is_lent(keeper: dict[str, str], times: Times) -> None:
    """A laptop that slept an hour: its connections may be dead without a word, and no clock but one has gone on."""
    with hold(keeper) as server:
        times.slept = 3600.0
        assert borrow("k", keeper) is None
        assert server.recv(1) == b""


def test_one_is_held_for_some_time_and_the_keeper_ends_with_the_last(environment: dict[str, str]) -> None:
    times = Times()
    with keeping(environment, times):
        with hold(environment) as server:
            times.now = IDLE - 1
            assert held(environment) == 1
            times.now = IDLE
            assert held(environment) == 0
            assert server.recv(1) == b""
        times.now = 3 * IDLE
        stop(environment)  # Whatever it is asked wakes it, if it has not seen yet that nobody needs it.


def test_it_ends_with_the_zygote(environment: dict[str, str]) -> None:
    ours, theirs = socket.socketpair()
    with ours, keeping(environment, Times(), ours), theirs, hold(environment) as server:
        assert held(environment) == 1
        theirs.close()
        assert server.recv(1) == b""


class Full(socket.socket):
    """A listener of a process that has as many descriptors as it may have."""

    def accept(self) -> tuple[socket.socket, object]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_where_there_is_no_room_the_oldest_is_closed(environment: dict[str, str]) -> None:
    with Full(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path_of(KEEPER, environment, make=True))
        listener.listen(1)
        keeper = Keeper(listener)
        ours, theirs = socket.socketpair()
        with theirs:
            keeper._hold(Give("k", PLACE, 1, 1.0), [ours.detach()])
            with contextlib.closing(connect(KEEPER, environment)):
                keeper.turn()
            assert theirs.recv(1) == b""


@pytest.mark.parametrize("packet", [b"", b"{", b'{"type": "Sing"}', b'{"type": "Give", "key": 1}', b"x" * 70_000])
def test_what_is_no_message_is_not_answered_and_harms_nobody(keeper: dict[str, str], packet: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(path_of(KEEPER, keeper))
        if packet:
            socket.send_fds(stranger, [packet], [0])
        else:
            stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(9) == b""
    assert held(keeper) == 0


def test_one_that_says_nothing_delays_and_stops_nobody(keeper: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartserver.agent.keeper.TIME_TO_SAY", 0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(path_of(KEEPER, keeper))
        assert held(keeper) == 0


def test_an_agent_that_does_not_answer_is_none(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartserver.agent.peer.TIME_TO_ANSWER", 0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path_of(KEEPER, environment, make=True))
        listener.listen(1)
        assert borrow("k", environment) is None
        with pytest.raises(NoAgent, match="timed out"):
            ask(Status(), decode_held, environment)


def test_the_folder_is_made_for_its_user_alone(environment: dict[str, str]) -> None:
    with pytest.raises(NoAgent, match="No such file"):
        runtime_folder(environment)
    made = Path(runtime_folder(environment, make=True))
    assert made.parent == Path(environment["XDG_RUNTIME_DIR"])
    assert made.stat().st_mode & 0o777 == 0o700
    assert runtime_folder(environment) == str(made)
    made.chmod(0o750)
    with pytest.raises(NoAgent, match=f"nobody else may enter, got a folder of user {os.geteuid()} with mode 750"):
        runtime_folder(environment)


def test_what_sudo_leaves_of_somebodys_session_is_not_used(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that XDG_RUNTIME_DIR names is another's: nothing is made in it."""
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    with pytest.raises(NoAgent, match=f"^/tmp/smartserver-{real + 1}:"):
        runtime_folder(environment)
    assert os.listdir(environment["XDG_RUNTIME_DIR"]) == []


def test_without_a_folder_of_the_session_it_is_in_the_home(tmp_path: Path) -> None:
    """Not in /tmp, where another user may make it first, and which sandboxes share."""
    made = Path(runtime_folder({"XDG_RUNTIME_DIR": "relative", "HOME": str(tmp_path)}, make=True))
    assert made == tmp_path / ".cache/smartserver-agent"
    assert [each.stat().st_mode & 0o777 for each in (made, made.parent)] == [0o700, 0o700]


@pytest.mark.parametrize("home", ["/nowhere/at-all", "relative", ""])
def test_without_a_home_it_is_in_tmp(home: str) -> None:
    with pytest.raises(NoAgent, match=f"^/tmp/smartserver-{os.geteuid()}: No such file"):
        runtime_folder({"HOME": home})


def test_another_release_installation_machine_or_network_has_another_address(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "__init__.py"
    package.touch()
    monkeypatch.setattr(smartserver, "__file__", str(package))
    paths = [path_of(KEEPER, environment, make=True)]
    for where, name, value in (
        (smartserver, "__version__", "0.0.0"),
        (smartserver, "__file__", "/elsewhere/smartserver/__init__.py"),
        (os, "readlink", {"/proc/self/ns/net": "net:[1]"}.__getitem__),
        (os, "uname", lambda: os.uname_result(("Linux", "elsewhere", "", "", ""))),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            paths.append(path_of(KEEPER, environment))
    os.utime(package, (1, 1))  # It was installed again.
    paths.append(path_of(KEEPER, environment))
    package.unlink()
    paths.append(path_of(KEEPER, environment))
    assert len(set(paths)) == 7


def test_a_path_that_no_socket_can_have(environment: dict[str, str]) -> None:
    base = Path(environment["XDG_RUNTIME_DIR"], "a" * 90)
    base.mkdir()
    with pytest.raises(NoAgent, match="at most 107 bytes for a socket"):
        path_of(KEEPER, {"XDG_RUNTIME_DIR": str(base)}, make=True)


def process(environment: dict[str, str]) -> int:
    return ask(Status(), decode_held, environment)[0].process


def test_one_of_another_installation_does_not_begin(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of Python's, which an agent does not get, led the command to its own."""
    monkeypatch.setattr(smartserver, "__version__", "0.0.0")
    assert start(environment)
    with pytest.raises(NoAgent):
        process(environment)


def test_it_has_little_of_who_started_it(environment: dict[str, str]) -> None:
    assert start({**environment, "HOME": "/home", "SMARTSERVER_TOKEN": "secret", "LC_ALL": "C"})
    number = process(environment)
    environ = dict(each.split(b"=", 1) for each in Path(f"/proc/{number}/environ").read_bytes().split(b"\0") if each)
    assert environ.keys() == {b"XDG_RUNTIME_DIR", b"HOME", b"LC_ALL"}
    assert os.readlink(f"/proc/{number}/cwd") == "/"
    assert {os.readlink(f"/proc/{number}/fd/{stream}") for stream in range(3)} == {os.devnull}


def test_the_sockets_are_its_users_and_what_another_left_is_replaced(environment: dict[str, str]) -> None:
    path = Path(path_of(KEEPER, environment, make=True))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(path))
    assert start(environment)
    assert process(environment)
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
