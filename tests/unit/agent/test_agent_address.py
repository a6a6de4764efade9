"""agent.address: where the sockets are, and whose the folder must be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import smartserver
from smartserver.agent.address import KEEPER, NoAgent, is_wanted, path_of, runtime_folder

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
    with monkeypatch.context() as patch:
        patch.setattr(smartserver, "__version__", "0.0.0")
        paths.add(path_of(KEEPER, environment))
    with monkeypatch.context() as patch:
        patch.setattr(smartserver, "__file__", "/elsewhere/smartserver/__init__.py")
        paths.add(path_of(KEEPER, environment))
    with monkeypatch.context() as patch:
        patch.setattr(os, "readlink", lambda _path: "net:[1]")
        paths.add(path_of(KEEPER, environment))
    with monkeypatch.context() as patch:
        patch.setattr(os, "uname", lambda: os.uname_result(("Linux", "elsewhere", "", "", "")))
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
