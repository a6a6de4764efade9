"""plugins.git.hint: what a command line says."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

import pytest
from needs import needs

from smartserver.plugins.git.hint import ANCESTORS, Hint, parse, proc_command_line, ps_command_line, read


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git fetch", Hint("fetch")),
        ("/usr/bin/git fetch origin main", Hint("fetch", words=("origin", "main"))),
        ("/usr/libexec/git-core/git-fetch origin", Hint("fetch", words=("origin",))),
        ("git -C /x -c a=b --git-dir=/y --no-pager --work-tree /z push o", Hint("push", words=("o",))),
        ("git push -- -o x", Hint("push", words=("-o", "x"))),
        ("git push -o x origin", Hint("push", frozenset({"-o"}), {"-o": "x"}, ("origin",))),
        ("git push --push-option=x o", Hint("push", frozenset({"--push-option"}), {"--push-option": "x"}, ("o",))),
        ("git push -fd o x", Hint("push", frozenset({"-f", "-d"}), {}, ("o", "x"))),
        ("git push --del o x", Hint("push", frozenset({"--delete"}), {}, ("o", "x"))),
        ("git push --force o", Hint("push", frozenset({"--force"}), {}, ("o",))),
        ("git push --fol --no-fol o", Hint("push", frozenset({"--follow-tags", "--no-follow-tags"}), {}, ("o",))),
        ("git push --unknown o", Hint("push", frozenset({"--unknown"}), {}, ("o",))),
        ("git clone -bmain u d", Hint("clone", frozenset({"-b"}), {"-b": "main"}, ("u", "d"))),
        ("git clone -qb main u", Hint("clone", frozenset({"-q", "-b"}), {"-b": "main"}, ("u",))),
        ("git clone --branch main u", Hint("clone", frozenset({"--branch"}), {"--branch": "main"}, ("u",))),
        ("git clone --bra main u", Hint("clone", frozenset({"--branch"}), {"--branch": "main"}, ("u",))),
        ("git clone -b", Hint("clone", frozenset({"-b"}), {"-b": ""})),
        ("git clone --branch", Hint("clone", frozenset({"--branch"}))),
        ("git fetch -", Hint("fetch", words=("-",))),
        ("git remote-hpss origin hpss://h/x", Hint()),
        ("git status", Hint()),
        ("git", Hint()),
        ("git -c", Hint()),
        ("sh -c fetch", Hint()),
        ("", Hint()),
    ],
)
def test_parse(line: str, expected: Hint) -> None:
    assert parse(shlex.split(line)) == expected


@pytest.mark.parametrize(
    ("line", "leases"),
    [
        ("git push o", ()),
        ("git push --force-with-lease o", ("",)),
        ("git push --force-w=main:abc --force-with-lease=x o", ("main:abc", "x")),
        ("git push --force-with-lease=x --no-force-with-lease o", ()),
        ("git push --no-force-with-lease --force-with-lease o", ("",)),
    ],
)
def test_leases(line: str, leases: tuple[str, ...]) -> None:
    hint = parse(shlex.split(line))
    assert hint.leases == leases
    assert hint.words == ("o",)


@pytest.mark.parametrize(
    ("line", "refs_only", "refspecs"),
    [
        ("git ls-remote u", True, ()),
        ("git remote show origin", True, ("origin",)),
        ("git push o a b:c", False, ("a", "b:c")),
    ],
)
def test_what_a_hint_says(line: str, refs_only: bool, refspecs: tuple[str, ...]) -> None:
    hint = parse(shlex.split(line))
    assert (hint.refs_only, hint.refspecs) == (refs_only, refspecs)


def test_the_nearest_known_command_counts() -> None:
    processes = {
        7: (6, ["git", "remote-hpss", "o", "u"]),
        6: (5, ["git", "fetch", "o"]),
        5: (4, ["git", "pull", "o", "main"]),
        4: (1, ["git", "push"]),
    }
    assert read(processes.get, 7) == Hint("fetch", words=("o",))
    assert read(processes.get, 5) == Hint("push")
    assert read(processes.get, 3) == Hint()


def test_a_chain_is_followed_only_so_far() -> None:
    deep = {number: (number - 1, ["sh"]) for number in range(1, 50)}
    deep[40] = (39, ["git", "fetch"])
    assert read(deep.get, 40 + ANCESTORS - 1).command == "fetch"
    assert read(deep.get, 40 + ANCESTORS).command == ""


@pytest.mark.parametrize(
    "reader",
    [pytest.param(proc_command_line, marks=needs("/proc")), pytest.param(ps_command_line, marks=needs("ps"))],
)
def test_this_process_is_read(reader: Callable[[int], tuple[int, list[str]] | None]) -> None:
    found = reader(os.getpid())
    assert found is not None
    parent, words = found
    assert parent == os.getppid()
    assert any("py" in word for word in words)


def test_a_process_that_is_gone() -> None:
    assert proc_command_line(2**22 + 1) is None
    assert ps_command_line(2**22 + 1) is None
