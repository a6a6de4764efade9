"""plugins.breezy.effects, branch, change: options with an effect at a client, and changes of a branch."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, cast

import pytest
from breezy.config import BranchConfig, BranchStore, LocationStack
from breezy.transport.memory import MemoryTransport

from smartserver.plugins.breezy.branch import HpssBranch, OptionConfig
from smartserver.plugins.breezy.change import (
    OPTIONS_FILE,
    TAGS_FILE,
    TIP_FILE,
    changed_tags,
    files_of,
    options_change,
    tags_updates,
    tip_of,
)
from smartserver.plugins.breezy.effects import EffectiveStack
from smartserver.plugins.breezy.place import BranchState
from smartserver.plugins.breezy.words import NotOnServer
from smartserver.verbs.fields import MAX_IDS, MAX_NAME
from smartserver.verbs.map_update import EntryChange, How


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


STATE = BranchState("p", "", b"r3", b"3", {"v1": b"r1", "v2": b"r2"}, b"nickname = a\n")


def test_files_and_back_of_a_branch_that_keeps_a_revision() -> None:
    files = files_of(STATE)
    assert files[TIP_FILE] == b"3 r3\n"
    assert tip_of(files[TIP_FILE]) == (3, b"r3")
    assert files[OPTIONS_FILE] == b"nickname = a\n"
    assert changed_tags(STATE.tags, files[TAGS_FILE]) == []
    assert files_of(BranchState("p", "")) == {TIP_FILE: b"0 null:\n", TAGS_FILE: b"", OPTIONS_FILE: b""}
    with pytest.raises(NotOnServer, match="cannot be empty"):
        tip_of(b"0 null:\n")


def test_tags_that_are_set_moved_and_removed() -> None:
    long = "x" * (MAX_NAME + 1)
    now = files_of(BranchState("p", "", b"r3", b"3", {"v1": b"r3", "new": b"r2", long: b"r1"}))[TAGS_FILE]
    assert sorted(changed_tags(STATE.tags, now), key=lambda each: each.key) == [
        EntryChange(b"new", b"r2", How.EQUAL, None),
        EntryChange(b"v1", b"r3", How.EQUAL, b"r1"),
        EntryChange(b"v2", None, How.EQUAL, b"r2"),
    ]


def test_a_change_goes_with_what_it_was_and_many_tags_in_several_calls() -> None:
    update = options_change(b"b", b"a")
    assert update.strict
    assert update.entries == [EntryChange(b"", b"b", How.EQUAL, b"a")]
    assert options_change(b"", b"a").entries == [EntryChange(b"", None, How.EQUAL, b"a")]
    entries = [EntryChange(b"%d" % number, b"r") for number in range(MAX_IDS + 1)]
    assert [len(each.entries) for each in tags_updates(entries)] == [MAX_IDS, 1]
    assert tags_updates([]) == []
