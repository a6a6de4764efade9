"""plugins.breezy.options, plugins.breezy.effects: what was only remembered of a branch's options never loses what
somebody else has set; and which of them have an effect at a client."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from breezy.config import BranchConfig, LocationStack
from brz_running import running
from smartserver.plugins.breezy.changes import NotAsRemembered
from smartserver.plugins.breezy.options import OptionConfig, OptionStore

from smartserver.plugins.breezy import changes
from smartserver.plugins.breezy.branch import HpssBranch
from smartserver.plugins.breezy.effects import EffectiveStack
from smartserver.plugins.breezy.place import State
from smartserver.plugins.breezy.remote import Remote


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
        return OptionStore(self, self.remote)

    def _get_config(self) -> OptionConfig:
        return OptionConfig(self.remote, self.base)

    def lock_read(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    def set_config(remote: Remote, content: bytes) -> None:
        cast("Server", remote).set(content)

    monkeypatch.setattr(changes, "set_config", set_config)
    return Server(b"nickname = seen\n", b"nickname = seen\nparent_location = set_meanwhile\n")


def branch(server: Server) -> HpssBranch:
    return cast("HpssBranch", Owner(server))


def test_an_option_is_set_in_what_is_there(server: Server) -> None:
    OptionConfig(cast("Remote", server), "hpss://example.org/project/trunk/").set_option("mine", "nickname")
    assert server.there.splitlines() == [b"nickname = mine", b"parent_location = set_meanwhile"]
    assert len(server.written) == 1


def test_an_option_is_removed_from_what_is_there(server: Server) -> None:
    OptionConfig(cast("Remote", server), "hpss://example.org/project/trunk/").remove_option("nickname")
    assert server.there == b"parent_location = set_meanwhile\n"


def test_it_is_tried_once_more_and_not_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def set_config(remote: Remote, content: bytes) -> None:
        tried.append(content)
        raise NotAsRemembered

    monkeypatch.setattr(changes, "set_config", set_config)
    with pytest.raises(NotAsRemembered):
        OptionConfig(cast("Remote", server), "hpss://example.org/project/trunk/").set_option("mine", "nickname")
    assert len(tried) == 2


def test_a_store_is_saved_into_what_is_there(server: Server) -> None:
    store = OptionStore(branch(server), cast("Remote", server))
    store.get_mutable_section(None).set("nickname", "mine")
    store.save_changes()
    assert server.there.splitlines() == [b"nickname = mine", b"parent_location = set_meanwhile"]


HARMFUL = b"""\
post_commit = __import__('os').system
post_commit_mailer = sh
post_commit_to = everybody@example.org
email = Somebody Else <else@example.org>
editor = sh
check_signatures = ignore
unknown_command = sh
push_location = hpss://example.org/{smtp_password}
submit_branch = hpss+sftp://example.org/srv/project?host-key=any
nickname = seen
parent_location = ../parent
append_revisions_only = True
[public_branch]
nickname = other
"""
OBEYED = {"nickname": "seen", "parent_location": "../parent"}


def names(content: bytes) -> list[str]:
    lines = content.decode().partition("[")[0].splitlines()
    return [line.partition(" = ")[0] for line in lines]


def test_what_a_server_says_has_an_effect_by_an_allow_list(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breezy and its plugins run some options as programs, whoever set them."""
    monkeypatch.setenv("BRZ_EMAIL", "Jane <jane@example.org>")
    server.remembered = server.there = HARMFUL
    stack = EffectiveStack(branch(server))
    for name in names(HARMFUL):
        if name != "append_revisions_only":
            expected = OBEYED.get(name, LocationStack("hpss://example.org/project/trunk/").get(name))
            assert stack.get(name) == expected, name
    assert stack.get("append_revisions_only") is True
    seen = [name for store, section in stack.iter_sections() if store is stack.store for name in section.options]
    assert sorted(seen) == sorted([*OBEYED, "append_revisions_only"])


def test_it_is_the_same_by_breezys_older_interface(server: Server) -> None:
    server.remembered = server.there = HARMFUL
    options = OptionConfig(cast("Remote", server), "hpss://example.org/project/trunk/")
    for name in names(HARMFUL):
        expected = {**OBEYED, "append_revisions_only": "True"}.get(name)
        assert options.get_option(name) == expected, name
    assert options.get_option("nickname", "public_branch") is None
    tree = BranchConfig(cast("HpssBranch", Owner(server)))
    assert tree._get_branch_data_config().get_user_option("post_commit_mailer") is None


def test_what_has_no_effect_is_kept(server: Server) -> None:
    server.remembered = server.there = HARMFUL
    OptionConfig(cast("Remote", server), "hpss://example.org/project/trunk/").set_option("mine", "nickname")
    assert server.there == HARMFUL.replace(b"nickname = seen", b"nickname = mine")


def test_brz_config_shows_all_options(server: Server) -> None:
    server.remembered = server.there = HARMFUL
    with running("config"):
        stack = EffectiveStack(branch(server))
        assert [stack.get(name, expand=False, convert=False) for name in ("post_commit_mailer", "editor")] == [
            "sh",
            "sh",
        ]
        seen = [name for store, section in stack.iter_sections() if store is stack.store for name in section.options]
        assert seen == [*names(HARMFUL), "public_branch"]  # Breezy takes a section for one of them.


def test_an_option_without_an_effect_is_not_asked_for(server: Server) -> None:
    """Breezy reads this one in the midst of locking a checkout: that would take a round trip."""
    stack = EffectiveStack(branch(server))
    assert stack.get("bzr.workingtree.worth_saving_limit") == 10
    assert server.asked == 0
    assert stack.get("nickname") == "seen"
    assert server.asked
