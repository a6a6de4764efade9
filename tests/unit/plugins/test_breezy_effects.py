"""plugins.breezy.effects, plugins.breezy.branch: which options of a branch on a server have an effect at a client."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, cast

import pytest
from breezy.config import BranchConfig, BranchStore, LocationStack
from breezy.transport.memory import MemoryTransport

from smartserver.plugins.breezy.branch import HpssBranch, OptionConfig
from smartserver.plugins.breezy.effects import EffectiveStack


class Files(MemoryTransport):  # type: ignore[misc]  # Breezy is not typed.
    """The one file of a branch that has its options."""

    asked = 0
    """Times that it was read."""

    def get(self, relpath: str) -> Any:
        self.asked += 1
        return super().get(relpath)

    @property
    def content(self) -> bytes:
        found: bytes = super().get("branch.conf").read()
        return found

    def has_options(self, content: bytes) -> None:
        self.put_bytes("branch.conf", content)


@dataclass
class Owner:
    """A branch, as far as its options go."""

    control_transport: Files
    base: str = "hpss://example.org/project/trunk/"

    def _get_config_store(self) -> BranchStore:
        return BranchStore(self)

    def _get_config(self) -> OptionConfig:
        return OptionConfig(self.control_transport)

    def lock_read(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.fixture
def server() -> Files:
    made = Files()
    made.has_options(b"nickname = seen\n")
    return made


def branch(server: Files) -> HpssBranch:
    return cast("HpssBranch", Owner(server))


def test_an_option_is_set_and_removed(server: Files) -> None:
    OptionConfig(server).set_option("../parent", "parent_location")
    assert server.content.splitlines() == [b"nickname = seen", b"parent_location = ../parent"]
    OptionConfig(server).remove_option("nickname")
    assert server.content == b"parent_location = ../parent\n"


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


def test_what_a_server_says_has_an_effect_by_an_allow_list(server: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breezy and its plugins run some options as programs, whoever set them."""
    monkeypatch.setenv("BRZ_EMAIL", "Jane <jane@example.org>")
    server.has_options(HARMFUL)
    stack = EffectiveStack(branch(server))
    for name in names(HARMFUL):
        if name != "append_revisions_only":
            expected = OBEYED.get(name, LocationStack("hpss://example.org/project/trunk/").get(name))
            assert stack.get(name) == expected, name
    assert stack.get("append_revisions_only") is True
    seen = [name for store, section in stack.iter_sections() if store is stack.store for name in section.options]
    assert sorted(seen) == sorted([*OBEYED, "append_revisions_only"])


def test_it_is_the_same_by_breezys_older_interface(server: Files) -> None:
    server.has_options(HARMFUL)
    options = OptionConfig(server)
    for name in names(HARMFUL):
        expected = {**OBEYED, "append_revisions_only": "True"}.get(name)
        assert options.get_option(name) == expected, name
    assert options.get_option("nickname", "public_branch") is None
    tree = BranchConfig(cast("HpssBranch", Owner(server)))
    assert tree._get_branch_data_config().get_user_option("post_commit_mailer") is None


def test_what_has_no_effect_is_kept(server: Files) -> None:
    server.has_options(HARMFUL)
    OptionConfig(server).set_option("mine", "nickname")
    assert server.content == HARMFUL.replace(b"nickname = seen", b"nickname = mine")


def test_an_option_without_an_effect_is_not_asked_for(server: Files) -> None:
    """Breezy reads this one in the midst of locking a checkout: that would take a round trip."""
    stack = EffectiveStack(branch(server))
    assert stack.get("bzr.workingtree.worth_saving_limit") == 10
    assert server.asked == 0
    assert stack.get("nickname") == "seen"
    assert server.asked
