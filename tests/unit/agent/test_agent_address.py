"""agent.address, agent.start: where the sockets are, whose the folder must be, and one agent at a time behind them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import smartserver
from smartserver.agent.address import KEEPER, NoAgent, is_wanted, path_of, runtime_folder
from smartserver.agent.lending import ask, borrow, give
from smartserver.agent.messages import Give, Status, decode_held
from smartserver.agent.start import start

pytestmark = pytest.mark.sockets


@pytest.mark.parametrize(("value", "wanted"), [(None, True), ("1", True), ("0", False), ("No", False), ("off", False)])
def test_it_can_be_turned_off(value: str | None, wanted: bool) -> None:
    assert is_wanted({} if value is None else {"SMARTSERVER_AGENT": value}) is wanted


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT"])
def test_it_is_off_where_a_library_may_change_what_a_connection_is(name: str) -> None:
    assert not is_wanted({name: "/usr/lib/torsocks/libtorsocks.so"})
    assert is_wanted({name: ""})


def test_the_folder_is_made_for_its_user_alone(environment: dict[str, str]) -> None:
    with pytest.raises(NoAgent, match="No such file"):
        runtime_folder(environment)
    made = Path(runtime_folder(environment, make=True))
    assert made.parent == Path(environment["XDG_RUNTIME_DIR"])
    assert made.stat().st_mode & 0o777 == 0o700
    assert runtime_folder(environment) == str(made)


def test_one_that_others_may_enter_is_refused(environment: dict[str, str]) -> None:
    made = Path(runtime_folder(environment, make=True))
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
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {path_of(KEEPER, environment, make=True)}
    for where, name, value in (
        (smartserver, "__version__", "0.0.0"),
        (smartserver, "__file__", "/elsewhere/smartserver/__init__.py"),
        (os, "readlink", lambda _path: "net:[1]"),
        (os, "uname", lambda: os.uname_result(("Linux", "elsewhere", "", "", ""))),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            paths.add(path_of(KEEPER, environment))
    assert len(paths) == 5


def test_what_was_installed_anew_in_the_same_folder_has_another_address(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "__init__.py"
    package.touch()
    monkeypatch.setattr(smartserver, "__file__", str(package))
    before = path_of(KEEPER, environment, make=True)
    assert path_of(KEEPER, environment) == before
    os.utime(package, (1, 1))
    installed = path_of(KEEPER, environment)
    package.unlink()
    assert len({before, installed, path_of(KEEPER, environment)}) == 3


def test_a_path_that_no_socket_can_have(environment: dict[str, str]) -> None:
    base = Path(environment["XDG_RUNTIME_DIR"], "a" * 90)
    base.mkdir()
    with pytest.raises(NoAgent, match="at most 107 bytes for a socket"):
        path_of(KEEPER, {"XDG_RUNTIME_DIR": str(base)}, make=True)


pytestmark = pytest.mark.sockets


def process(environment: dict[str, str]) -> int:
    return ask(Status(), decode_held, environment)[0].process


def test_what_is_given_before_it_is_loaded_is_held(environment: dict[str, str]) -> None:
    """The first to give starts it, and may be gone when it looks."""
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            assert give(Give("k", "hpss://here:4155/", 7, 1.0), [ours.fileno()], environment)
        lent = borrow("k", environment)
        assert lent is not None
        assert lent.last_id == 7
        os.close(lent.descriptors[0])


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
