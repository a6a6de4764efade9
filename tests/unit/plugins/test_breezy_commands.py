"""plugins.breezy.commands, plugins.breezy.given: what the command that runs reads, writes and keeps, by its row and by
what it was given."""

from __future__ import annotations

import pytest
from brz_running import running as runs
from brz_running import specs

from smartserver.plugins.breezy.commands import (
    COMMANDS,
    FETCHES,
    OTHER,
    copies_there,
    may_remember,
    reads_options,
    running,
    wanted,
    wants_history,
)
from smartserver.plugins.breezy.given import given, is_ours

URL, BESIDE, ELSEWHERE = "hpss://localhost/p/trunk", "hpss://localhost/p/new/", "hpss+ssh://localhost/q/new"


def test_the_row_of_the_command_that_runs() -> None:
    assert running() is FETCHES
    assert given("location") is None
    with runs("pull", location=URL):
        assert running() is COMMANDS["pull"]
        assert (given("location"), given("directory")) == (URL, None)
        with runs("log"):  # One that another has begun.
            assert running() is COMMANDS["log"]
            assert given("location") is None
        with runs("unknown-command"):
            assert running() is OTHER
        assert running() is COMMANDS["pull"]


def test_options_alone() -> None:
    with reads_options():
        assert running() is FETCHES
    with runs("log", location=URL):
        with reads_options():
            assert (wanted(), wants_history(), given("location")) == (None, False, None)
        assert running() is COMMANDS["log"]
        assert given("location") == URL


@pytest.mark.parametrize(
    ("location", "ours"),
    [(URL, True), (ELSEWHERE, True), ("bzr://localhost/p", False), ("/p/hpss://x", False), (None, False), (3, False)],
)
def test_whose_url_it_is(location: object, ours: bool) -> None:
    assert is_ours(location) is ours


@pytest.mark.parametrize(
    ("command", "arguments", "wants"),
    [
        ("log", {}, True),
        ("bind", {}, False),
        ("commit", {}, False),
        ("branch", {"from_location": URL, "to_location": BESIDE}, False),
        ("branch", {"from_location": URL, "to_location": "here"}, True),
    ],
)
def test_whether_history_is_going_to_be_asked_for(command: str, arguments: dict[str, object], wants: bool) -> None:
    with runs(command, **arguments):
        assert wants_history() is wants


def test_a_program_that_uses_breezy_wants_history_and_keeps_none() -> None:
    assert wants_history()
    assert running().fetches


@pytest.mark.parametrize(("command", "reads"), [("log", True), ("grep", True), ("pull", False), ("missing", False)])
def test_whether_what_comes_is_only_read(command: str, reads: bool) -> None:
    with runs(command):
        assert running().fetches is not reads


@pytest.mark.parametrize(
    ("command", "arguments", "may"),
    [
        ("tag", {"directory": URL}, True),
        ("tag", {"directory": URL, "revision": specs("2")}, False),
        ("tag", {"directory": "."}, False),
        ("config", {"directory": URL, "name": "a=b"}, True),
        ("config", {"directory": URL, "remove": True}, False),
        ("nick", {"directory": URL}, True),
        ("uncommit", {"location": URL}, True),
        ("uncommit", {"location": None}, False),  # A checkout's own branch.
        ("push", {"location": URL}, False),
    ],
)
def test_what_may_follow_from_what_is_remembered(command: str, arguments: dict[str, object], may: bool) -> None:
    with runs(command, **arguments):
        assert may_remember() is may


@pytest.mark.parametrize(
    ("command", "arguments", "copies"),
    [
        ("branch", {"from_location": URL, "to_location": BESIDE}, True),
        ("branch", {"from_location": URL + "/", "to_location": BESIDE}, True),
        ("branch", {"from_location": URL, "to_location": ELSEWHERE}, False),
        ("branch", {"from_location": URL, "to_location": None}, False),
        ("branch", {"from_location": "trunk", "to_location": BESIDE}, False),
        ("branch", {"from_location": URL, "to_location": BESIDE, "revision": specs("3")}, False),
        ("checkout", {"from_location": URL, "to_location": BESIDE}, False),
    ],
)
def test_what_is_made_from_what_lies_beside_it(command: str, arguments: dict[str, object], copies: bool) -> None:
    with runs(command, **arguments):
        assert copies_there() is copies
