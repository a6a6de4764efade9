"""plugins.breezy_options: what was only remembered of a branch's options never loses what somebody else has set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from breezy.config import Stack

from smartserver.plugins import breezy_changes
from smartserver.plugins.breezy_branch import HpssBranch
from smartserver.plugins.breezy_options import OF_CHECKOUTS, OptionConfig, OptionStack, OptionStore
from smartserver.plugins.breezy_remembered import NotAsRemembered
from smartserver.plugins.breezy_remote import Remote, State


@dataclass
class Server:
    """A branch's options as they are, and as they are remembered here."""

    remembered: bytes
    there: bytes
    asked: int = 0
    """Times that they were read."""
    written: list[bytes] = field(default_factory=list)

    def state(self) -> State:
        self.asked += 1
        return State("", "", config=self.remembered)

    def set(self, content: bytes) -> None:
        if self.remembered != self.there:
            self.remembered = self.there
            raise NotAsRemembered
        self.remembered = self.there = content
        self.written.append(content)


@dataclass
class Owner:
    """A branch, as far as its options go."""

    remote: Any
    base: str = "hpss://example.org/project/trunk/"

    def _get_config_store(self) -> OptionStore:
        return OptionStore(cast("HpssBranch", self))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    def set_config(remote: Remote, content: bytes) -> None:
        cast("Server", remote).set(content)

    monkeypatch.setattr(breezy_changes, "set_config", set_config)
    return Server(b"nickname = seen\n", b"nickname = seen\nparent_location = set_meanwhile\n")


def branch(server: Server) -> HpssBranch:
    return cast("HpssBranch", Owner(server))


def test_an_option_is_set_in_what_is_there(server: Server) -> None:
    OptionConfig(branch(server)).set_option("mine", "nickname")
    assert server.there.splitlines() == [b"nickname = mine", b"parent_location = set_meanwhile"]
    assert len(server.written) == 1


def test_an_option_is_removed_from_what_is_there(server: Server) -> None:
    OptionConfig(branch(server)).remove_option("nickname")
    assert server.there == b"parent_location = set_meanwhile\n"


def test_it_is_tried_once_more_and_not_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def set_config(remote: Remote, content: bytes) -> None:
        tried.append(content)
        raise NotAsRemembered

    monkeypatch.setattr(breezy_changes, "set_config", set_config)
    with pytest.raises(NotAsRemembered):
        OptionConfig(branch(server)).set_option("mine", "nickname")
    assert len(tried) == 2


def test_a_store_is_saved_into_what_is_there(server: Server) -> None:
    store = OptionStore(branch(server))
    store.get_mutable_section(None).set("nickname", "mine")
    store.save_changes()
    assert server.there.splitlines() == [b"nickname = mine", b"parent_location = set_meanwhile"]


def test_what_is_of_a_checkout_is_not_asked_for(server: Server) -> None:
    stack: Stack = OptionStack(branch(server))
    assert stack.get(OF_CHECKOUTS) == 10
    assert server.asked == 0
    assert stack.get("nickname") == "seen"
    assert server.asked
