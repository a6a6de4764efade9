"""plugins.breezy.remote: what one answer says of two branches of a repository is not asked twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from brz_running import running

from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy.remote import learn_beside, read_of
from smartserver.plugins.breezy.selection import Selection
from smartserver.plugins.breezy.server import Server
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.records.model import Tip

ROOT = "hpss://beside.example.org/"


@dataclass
class Known:
    """What is known of a path: the branches of one repository."""

    refs: dict[bytes, Tip]
    at: str | None = "p"
    path: str = ""

    @property
    def named(self) -> bytes | None:
        return None if self.at is None else self.path.removeprefix(f"{self.at}/").encode()

    def beside(self, path: str) -> Known:
        return Known(self.refs, self.at if self.at is None or path.startswith(f"{self.at}/") else "elsewhere", path)

    def ref(self, name: bytes) -> tuple[Tip, ...] | None:
        return (self.refs[name],) if name in self.refs else None


REFS = {b"trunk": Tip(b"one", b"1"), b"new": Tip(b"two", b"2")}


@dataclass
class Branch:
    """A branch on a server, as far as it is asked here, and what it learned or was asked."""

    transport: HpssTransport
    name: str = ""
    is_known: bool = False
    target: Any = None
    content: object = None
    options: bytes = b""
    asked: list[object] = field(default_factory=list)
    learned: list[tuple[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = self.transport.base
        self.path = "/".join(part for part in (self.transport.location.path, self.name) if part)
        self.server: Server = self.transport.server
        self.knowledge = Known(REFS, path=self.path)

    @property
    def branch_history(self) -> Branch:
        return self

    def ask_anew(self) -> None:
        self.asked.append("everything")

    def read_first(self, asked: Selection) -> None:
        self.asked.append(asked)
        self.content = "content"

    def look(self) -> Any:
        self.is_known = True
        return SimpleNamespace(at=self.knowledge.at)

    def remembered(self) -> Any:
        return SimpleNamespace(config=self.options)

    def learn_from(self, known: Known, content: object = None) -> None:
        self.learned.append((known.path, content))


def branch(path: str, **more: Any) -> Branch:
    return Branch(HpssTransport(ROOT + path), **more)


def beside(remote: Branch) -> dict[str, Any]:
    """By path, the branches that the command reads besides."""
    return read_of(remote.server).remotes


class Light:
    """A lightweight checkout of `p/trunk`."""

    branch = f"{ROOT}p/trunk"

    def parents(self) -> list[bytes]:
        return [b"one"]

    def changed(self) -> list[bytes]:
        return []


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> Light:
    made = Light()
    monkeypatch.setattr("smartserver.plugins.breezy.remote.open_checkout", lambda path: made)
    monkeypatch.setattr("smartserver.plugins.breezy.remote.checkout_of", lambda path: made)
    return made


# -- a heavy checkout that is switched: its old master, and the new one


@pytest.mark.parametrize(("has", "learned"), [(b"one", [("p/trunk", None)]), (b"another", [])])
def test_what_the_other_branch_was_told_is_enough_where_all_it_takes_is_here(
    has: bytes, learned: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smartserver.plugins.breezy.remote.open_checkout", lambda path: None)
    with running("switch", to_location=f"{ROOT}p/new"):
        remote = branch("p/trunk", target=SimpleNamespace(has_revision=lambda revision: revision == has))
        other = beside(remote)["p/new"] = branch("p/new")
        learn_beside(remote)  # type: ignore[arg-type]
        assert other.asked == ["everything"]
        assert remote.learned == learned


def test_nothing_is_learned_where_no_other_branch_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartserver.plugins.breezy.remote.open_checkout", lambda path: None)
    with running("switch", to_location=f"{ROOT}p/new"):
        remote = branch("p/trunk", target=SimpleNamespace(has_revision=lambda revision: True))
        beside(remote)["p/trunk"] = remote
        learn_beside(remote)  # type: ignore[arg-type]
        other = beside(remote)["q/new"] = branch("q/new", is_known=True)
        other.knowledge.at = "q"
        learn_beside(remote)  # type: ignore[arg-type]
        assert (remote.learned, other.asked) == ([], [])


# -- a lightweight checkout


@pytest.mark.parametrize("place", ["new", f"{ROOT}p/new", f"{ROOT}p,branch=new"])
def test_a_checkout_is_told_of_its_branch_by_the_one_it_is_switched_to(light: Light, place: str) -> None:
    with running("switch", to_location=place):
        remote = branch("p/trunk")
        other = beside(remote)["p/new"] = branch("p/new", content="content")
        learn_beside(remote)  # type: ignore[arg-type]
        assert remote.learned == [("p/trunk", "content")]
        assert other.asked == []
        learn_beside(other)  # type: ignore[arg-type]
        assert other.learned == [], "not by itself"


@pytest.mark.parametrize(
    "arguments",
    [
        {"to_location": None},
        {"to_location": "new", "create_branch": True},
        {"to_location": "lp:new"},
        {"to_location": "/"},  # A folder that is here.
        {"to_location": "hpss://other.example.org/p/new"},
        {"to_location": f"{ROOT}q/new"},
        {"to_location": f"{ROOT}p/none"},
    ],
)
def test_not_where_that_is_elsewhere(light: Light, arguments: dict[str, object]) -> None:
    with running("switch", **arguments):
        remote = branch("p/trunk")
        for path in ("q/new", "p/none"):
            beside(remote)[path] = branch(path, content="content")
        beside(remote)["q/new"].knowledge.at = "q"
        if arguments["to_location"] == f"{ROOT}p/none":
            remote.knowledge = Known({}, path="p/trunk")
            beside(remote)["p/none"].knowledge = Known({}, path="p/none")
        learn_beside(remote)  # type: ignore[arg-type]
        assert remote.learned == []


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"location": f"{ROOT}p/new"}, b""),
        ({"location": None}, b"parent_location = ../new/\n"),
        ({"location": None}, f"a = b\nparent_location={ROOT}p/new\n".encode()),
    ],
)
def test_a_checkout_is_told_of_its_branch_by_the_one_that_is_pulled(
    light: Light, arguments: dict[str, object], options: bytes
) -> None:
    with running("pull", **arguments):
        remote = branch("p/trunk", options=options)
        learn_beside(remote)  # type: ignore[arg-type]
        assert beside(remote).keys() == {"p/new"}
        (asked,) = beside(remote)["p/new"].asked
        assert isinstance(asked, Selection)
        assert (asked.ids, asked.trees is not None and asked.trees.had) == ([b"one"], [b"one"])
        assert remote.learned == [("p/trunk", "content")]


@pytest.mark.parametrize(
    ("location", "at"),
    [
        (None, "p"),
        ("../new", "p"),
        ("bzr://beside.example.org/p/new", "p"),
        (f"{ROOT}q/new", "p"),
        (f"{ROOT}q/new", None),
    ],
)
def test_what_is_pulled_from_elsewhere_is_read_for_itself(light: Light, location: str | None, at: str | None) -> None:
    with running("pull", location=location):
        remote = branch("p/trunk")
        remote.knowledge.at = at
        learn_beside(remote)  # type: ignore[arg-type]
        assert remote.learned == []
        assert [other.asked for other in beside(remote).values()] in ([], [[]])


def test_each_command_reads_for_itself() -> None:
    server = HpssTransport(ROOT).server
    with running("switch"):
        read_of(server).remotes["p/x"] = branch("p/x")  # type: ignore[assignment]
        assert read_of(server).by is hpss.running[-1]
    with running("switch"):
        assert read_of(server).remotes == {}
