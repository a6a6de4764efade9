"""plugins.breezy.given: up to which revision history is brought, and what is looked at to find out."""

from __future__ import annotations

import pytest
from breezy.errors import CommandError
from brz_running import running, specs

from smartserver.plugins.breezy.commands import COMMANDS, up_to
from smartserver.plugins.breezy.given import ids_given, one, until, what_to_look_at
from smartserver.vcs.bzr.selector import Called, RevisionsField, Tag
from smartserver.verbs.fields import MAX_NAME

BARE = RevisionsField(bare=True)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("5", 5),
        ("-3", -3),
        ("last:2", -2),
        ("before:7", 7),  # Its parent is what is brought.
        ("before:1", 1),
        ("revid:joe@example.org-1", b"joe@example.org-1"),
        ("tag:v1", Tag(b"v1")),
        ("tag:2026-11-22", Tag(b"2026-11-22")),
        ("v1", Tag(b"v1")),
        ("ünï", Tag("ünï".encode())),
        ("release-1.2", Tag(b"release-1.2")),
        ("tag:" + "x" * (MAX_NAME + 1), None),
        ("tag:", None),
        ("1.2.3", None),
        ("before:0", None),
        ("before:v1", None),
        ("yesterday", None),
        ("2026-11-22", None),
        ("date:yesterday", None),
        ("joe@example.org-20261122-x", None),
        ("ancestor:../other", None),
        ("branch:../other", None),
        ("-1.2", None),
        ("", None),
    ],
)
def test_up_to_where_history_is_brought(said: str, expected: Called | None) -> None:
    for command in ("branch", "checkout", "pull"):
        with running(command, revision=specs(said)):
            assert until(up_to()) == expected
    with running("merge", revision=specs(said)):
        assert until(up_to()) is None


def test_history_is_brought_up_to_one_revision_or_all_of_it() -> None:
    assert until(up_to()) is None
    for given in (None, [], specs("1", "2")):
        with running("branch", revision=given):
            assert until(up_to()) is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("1.2.3", BARE),
        ("before:1.2.3", BARE),
        ("before:tag:v1", BARE),
        ("ancestor:../other", BARE),
        ("mainline:1.2.3", BARE),
        ("date:yesterday", RevisionsField(left_hand=True)),
        ("yesterday", BARE),
        ("5", None),
        ("revid:joe@example.org-1", None),
        ("tag:v1", None),
        ("v1", None),
        ("before:5", None),
        ("", None),
    ],
)
def test_what_is_looked_at_to_find_the_revision(said: str, expected: RevisionsField | None) -> None:
    for command in (name for name, row in COMMANDS.items() if row.up_to_one):
        with running(command, revision=specs(said)):
            assert what_to_look_at(up_to()) == expected
    for given in (None, specs("1.2.3", "1.2.4")):
        with running("branch", revision=given):
            assert what_to_look_at(up_to()) is None
    with running("log", revision=specs("1.2.3")):
        assert what_to_look_at(up_to()) is None
    assert what_to_look_at(up_to()) is None


def test_ids_that_a_command_is_given() -> None:
    """A revision that the branch does not reach is asked for by its ID."""
    assert ids_given() == set()
    long = "x" * (MAX_NAME + 1)
    with running("log", revision=specs("revid:a", "before:revid:b"), change=None, other="revid:none"):
        assert ids_given() == {b"a", b"b"}
    with running("cat", revision=specs("joe@example.org-1", "v1", "branch:bzr://joe@example.org/", "before:a@b-2")):
        assert ids_given() == {b"joe@example.org-1", b"a@b-2"}
    with running("missing", revision=specs("5", f"revid:{long}"), my_revision=specs("revid:mine")):
        assert ids_given() == set()
    with running("revision-info", revision_info_list=["revid:c", "revid:"]):
        assert ids_given() == {b"c"}


def test_what_is_not_utf_8_is_no_revisions_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breezy.trace._trace_file", None)  # To which Breezy itself cannot write such words.
    for words in ("tag:v\udcff", "v\udcff", "revid:v\udcff"):
        with running("branch", revision=specs(words)), pytest.raises(CommandError) as refused:
            until(up_to())
        assert str(refused.value) == f"no revision is called {words[:-1]} : a name is written in UTF-8"
    with pytest.raises(CommandError):
        one({"revision": specs("tag:v\udcff")})
