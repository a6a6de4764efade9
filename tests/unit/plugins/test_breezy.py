"""plugins.breezy.terminal, words, patches, controldir, credentials: what is Breezy's own, in its words."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from breezy import errors, ui, uncommit
from breezy.bzr.bzrdir import BzrDir, BzrDirMetaFormat1
from breezy.bzr.workingtree_4 import DirStateWorkingTree
from breezy.controldir import ControlDir

from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.places import ADVICE
from smartserver.client.url import TcpLocation
from smartserver.errors import (
    AccessDenied,
    CorruptFile,
    CorruptRecord,
    NoSuchBranch,
    NoSuchRepository,
    OutcomeUnknown,
    ServerBusy,
)
from smartserver.plugins.breezy.controldir import change_breezy
from smartserver.plugins.breezy.credentials import BreezyCredentials
from smartserver.plugins.breezy.patches import put_around, watch_trees
from smartserver.plugins.breezy.terminal import ServerProgress, moving
from smartserver.plugins.breezy.words import in_breezys_words
from smartserver.records.varint import Malformed
from smartserver.vcs.base import CannotSend
from smartserver.wire.errors import RemoteProtocolError
from transports.errors import NoSpace, PermissionDenied, TransportFailed


class Bar:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def update(self, *what: object) -> None:
        self.told.append(what)

    def finished(self) -> None:
        self.told.append(("finished",))


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    """The bars that were begun."""
    begun: list[Bar] = []

    class Factory:
        def nested_progress_bar(self) -> Bar:
            begun.append(Bar())
            return begun[-1]

    monkeypatch.setattr(ui, "ui_factory", Factory())
    return begun


def test_bytes_and_revisions_are_shown_after_a_second(monkeypatch: pytest.MonkeyPatch, bars: list[Bar]) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * 0.4)
    with moving("Sending") as moved:
        for size in range(1, 5):
            moved(size * 1_000_000, size // 4, 1)
    (bar,) = bars
    assert bar.told == [("Sending, 3.0 MB", 0, 1), ("Sending, 4.0 MB", 1, 1), ("finished",)]


def test_nothing_is_shown_of_what_is_quick(bars: list[Bar]) -> None:
    with moving("Sending") as moved:
        moved(1, 0, 2)
        moved(2, 2, 2)
    assert not bars


def test_the_bar_ends_with_an_error(monkeypatch: pytest.MonkeyPatch, bars: list[Bar]) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * 2)
    with contextlib.suppress(ConnectionError), moving("Sending") as moved:
        moved(1, 0, 3)
        raise ConnectionError
    assert bars[0].told[-1] == ("finished",)


def test_what_the_server_says(bars: list[Bar]) -> None:
    progress = ServerProgress()
    progress("checking", 1, 0)
    progress("che\x1bcking", 2, 3)
    progress("checking", 3, 3)
    progress("swap", 1, 2)
    assert [bar.told for bar in bars] == [
        [
            ("server: checking", 1, None),
            ("server: che cking", 2, 3),
            ("server: checking", 3, 3),
            ("finished",),
        ],
        [("server: swap", 1, 2)],
    ]


URL = "hpss://example.org/project/"
LOCATION = TcpLocation("example.org", 4155, "project")

NO_BRANCH, DENIED = f'Not a branch: "{URL}"', f'Permission denied: "{URL}": '
LOST = "Connection error: example.org:4155: "
LOOK = "look at the repository before you repeat the command"
BUSY = "the server is busy: it takes no more than 3 connections at a time; try again later "


@pytest.mark.parametrize(
    ("wrong", "expected", "said"),
    [
        (NoSuchRepository("project"), errors.NotBranchError, f"{NO_BRANCH}."),
        (NoSuchRepository("project", "a file\n"), errors.NotBranchError, f"{NO_BRANCH}: there is a file ."),
        (NoSuchBranch(b"."), errors.NotBranchError, f"{NO_BRANCH}: location is a repository."),
        (NoSuchBranch(b"trunk"), errors.NotBranchError, f"{NO_BRANCH}."),
        (AccessDenied("write", "read only"), errors.PermissionDenied, f"{DENIED}not allowed to write: read only"),
        (PermissionDenied("x"), errors.PermissionDenied, f"{DENIED}permission denied: 'x'"),
        (CannotConnect("h", "refused"), errors.ConnectionError, "Connection error: cannot connect to h: refused "),
        (ConnectionLost("gone"), errors.ConnectionError, f"{LOST}gone "),
        (RemoteProtocolError("no hpss"), errors.ConnectionError, f"{LOST}no hpss "),
        (
            OutcomeUnknown("x"),
            errors.ConnectionError,
            f"{LOST}it is unknown whether the change was made: x; {LOOK} ",
        ),
        (ServerBusy("connections", 3), errors.ConnectionError, f"{LOST}{BUSY}"),
        (
            Malformed(3, "cut off"),
            errors.ConnectionError,
            f"{LOST}the server's answer cannot be read: malformed at byte 3: cut off ",
        ),
        (
            CorruptFile("packs/1.pack", 70, "why"),
            errors.BzrError,
            f"the repository 'project' is damaged: packs/1.pack at byte 70: why {ADVICE}",
        ),
        (
            CorruptRecord(b"r1", b"", "why"),
            errors.BzrError,
            "revision r1 is not valid: why (`brz check` shows whether it is damaged here)",
        ),
        (NoSpace("x"), errors.BzrError, "example.org:4155: no space left to write 'x'"),
        (TransportFailed("", f"no {LOCATION.where}: x"), errors.BzrError, f"no {LOCATION.where}: x"),
        (CannotSend("a text\x1b[2J is missing"), errors.BzrError, "a text [2J is missing"),
    ],
)
def test_each_error_is_one_of_breezys(wrong: Exception, expected: type[Exception], said: str) -> None:
    with pytest.raises(expected) as caught, in_breezys_words(URL, LOCATION):
        raise wrong
    assert (type(caught.value), str(caught.value)) == (expected, said)


def test_what_is_breezys_already_stays() -> None:
    with pytest.raises(errors.NoSuchTag), in_breezys_words(URL, LOCATION):
        raise errors.NoSuchTag("v1")


CHANGED = [
    (ControlDir, "open_containing_from_transport"),
    (ControlDir, "find_branches"),
    (BzrDirMetaFormat1, "initialize_on_transport_ex"),
    (BzrDir, "sprout"),
    (DirStateWorkingTree, "__init__"),
    (uncommit, "uncommit"),
]


def test_what_a_release_does_not_have_is_left_out() -> None:
    put_around(ControlDir, "another", lambda stock, control: stock(control))
    assert not hasattr(ControlDir, "another")


@pytest.mark.parametrize(("owner", "name"), CHANGED, ids=[name for _, name in CHANGED])
def test_each_is_there_and_changed_once(owner: object, name: str) -> None:
    change_breezy()
    watch_trees()
    first = getattr(owner, name)
    change_breezy()
    watch_trees()
    assert getattr(owner, name) == first
    assert first.__wrapped__.__name__ == name


WHERE = "localhost:4155"

SECTIONS = """
[all] host=localhost password=hpss_all
[web] scheme=https host=localhost password=hpss_web
[secret] scheme=hpss host=localhost port=4157 password=secret
[other] scheme=hpss host=localhost port=4156 token=hpss_other
[tls] scheme=hpss+tls host=::1 password=hpss_tls
[ours] scheme=hpss host=localhost password=hpss_kept
""".replace("] ", "] user=x ").replace(" ", "\n")
"""Sections of which three are for other servers: one has no scheme, one another, and one no token."""


class Asked(ui.SilentUIFactory):  # type: ignore[misc]  # Breezy is not typed.
    """A user who gives one answer."""

    def __init__(self, answer: str | None) -> None:
        super().__init__()
        self.answer = answer
        self.prompts: list[str] = []

    def get_password(self, prompt: str = "", **kwargs: str) -> str | None:
        self.prompts.append(prompt % kwargs)
        return self.answer


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BRZ_HOME", str(tmp_path))
    (tmp_path / "breezy").mkdir()
    made = tmp_path / "breezy" / "authentication.conf"
    made.write_text(SECTIONS)
    made.chmod(0o600)
    return made


@pytest.mark.parametrize(
    ("scheme", "where", "token"),
    [
        ("hpss", WHERE, "hpss_kept"),
        ("hpss", "localhost:4156", "hpss_other"),
        ("hpss+tls", "[::1]:4155", "hpss_tls"),
        ("hpss", "localhost:4157", ""),
        ("hpss+tls", WHERE, ""),
        ("hpss", "example.org:4155", ""),
    ],
)
def test_the_section_of_a_server(file: Path, scheme: str, where: str, token: str) -> None:
    assert BreezyCredentials(scheme, where).stored() == token
    assert file.read_text() == SECTIONS


def test_one_that_was_refused_is_given_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked("hpss_typed")
    monkeypatch.setattr(ui, "ui_factory", asked)
    found = BreezyCredentials("hpss", WHERE)
    assert found.ask() == "hpss_kept"
    assert asked.prompts == []
    found.reject()
    assert (found.stored(), found.ask()) == ("", "hpss_typed")


@pytest.mark.parametrize("user", [Asked(None), Asked(""), ui.SilentUIFactory()])
def test_nobody_knows_one(monkeypatch: pytest.MonkeyPatch, user: ui.UIFactory) -> None:
    """A program that uses Breezy as a library may have no user."""
    monkeypatch.setattr(ui, "ui_factory", user)
    assert BreezyCredentials("hpss", "example.org:4155").ask() == ""
