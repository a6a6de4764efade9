"""agent.start: one agent at a time, which nobody waits for."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

import pytest

import smartserver
from smartserver.agent.address import KEEPER, NoAgent, path_of
from smartserver.agent.lending import ask, borrow, give
from smartserver.agent.messages import Give, Status, decode_held
from smartserver.agent.start import start

pytestmark = pytest.mark.sockets

PATIENCE = 20.0
"""Seconds."""


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


def test_there_is_one(environment: dict[str, str]) -> None:
    assert start(environment)
    first = process(environment)
    assert not start(environment)
    assert process(environment) == first
    assert os.getsid(first) == first


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


def test_nothing_stays_open_of_what_its_command_had_open(environment: dict[str, str]) -> None:
    """A lock that `flock 9` took for a push, and a pipe whose reader waits for its end."""
    ends, open_too = os.pipe()
    with open(ends, "rb") as reader:
        os.set_inheritable(open_too, True)
        assert start(environment)
        os.close(open_too)
        assert select.select([reader], [], [], PATIENCE)[0], "nobody else has it open"
        assert process(environment)


def test_the_sockets_are_its_users_and_what_another_left_is_replaced(environment: dict[str, str]) -> None:
    path = Path(path_of(KEEPER, environment, make=True))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(path))
    assert start(environment)
    assert process(environment)
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
