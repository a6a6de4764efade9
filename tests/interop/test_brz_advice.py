"""plugins.breezy.terminal: what a server advises, as brz and git show it: a line a day, and always in `brz info`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from brz_histories import Served as Packs
from brz_sides import CLOSING, Users
from builders import MAIN, History, request_id
from builders import push as push_git
from git_sides import Served, Side

from smartserver.records.model import Tip
from smartserver.server.advice import MANY_PACKS
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

NEWER = "import smartserver.server.advice as a; a.OLDEST_CLIENT = '99.0'; from smartserver.cli.main import main; main()"
"""A server that expects a release nobody has."""
PACKS = f"it lies in {MANY_PACKS + 1} packs: `brz pack "
CLIENT = "its server expects smartserver 99.0 or newer here, this is "


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("newer"), "--anonymous", "write", program=("-c", NEWER))
    yield server
    assert server.close() == ""


def leave_one_branch(repository: PackRepository, tip: Tip, line: list[bytes]) -> None:
    """Have one branch, and not one for each push."""

    def plan(changing: Transaction) -> bytes:
        for each in line:
            changing.set_ref(each, None)
        changing.set_ref(b"trunk", (tip,))
        return b""

    repository.commit(request_id(), 0, "user", plan, None)


@pytest.fixture
def many(newer: Served, tmp_path: Path) -> Users:
    """A repository in many packs, as a server leaves them that cannot join them."""
    users = Users(tmp_path / "users", newer, f"many-{tmp_path.name}")
    users.make("source")
    served = Packs()
    served.repository = PackRepository(LocalTransport(newer.root), users.place)
    line: list[bytes] = []
    for number in range(MANY_PACKS + 1):
        line.append(users.commit("source", str(number)))
        with users.branch("source") as branch:
            served.push(branch.repository, line[-1:], line[-2:-1])
    leave_one_branch(served.repository, Tip(line[-1], b"%d" % len(line)), line)
    (users.folder / "a").mkdir()
    return users


def advised(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("hpss: ")]


def test_once_a_day_and_always_in_info(many: Users) -> None:
    first = many.run("a", "revno", many.url(), "-Dhpss")
    assert first.out == f"{MANY_PACKS + 1}\n"
    packs, client = advised(first.err)
    assert PACKS in packs
    assert CLIENT in client
    assert CLOSING.findall(first.err) == [("1", "0")]
    assert first.counts.rounds == 2
    assert advised(many.run("a", "revno", many.url()).said) == []
    told = many.ask("info", "a", "info", many.url())
    assert advised(told) == [packs, client]
    assert advised(many.run("a", "revno", many.url()).said) == []
    (shown,) = (many.cache("a") / "smartserver" / "remotes").glob("*.advice")
    shown.unlink()
    quiet = many.run("a", "revno", "-q", many.url())
    assert (quiet.status, advised(quiet.said)) == (0, [])
    assert advised(many.run("a", "revno", many.url()).said) == [packs]


def test_what_it_says_to_run_helps(many: Users) -> None:
    (packs, _) = advised(many.run("a", "info", many.url()).err)
    command = packs.partition("`brz ")[2].partition("`")[0].split()
    assert many.run("a", *[word.replace("URL", many.url("")) for word in command]).status == 0
    assert [line for line in advised(many.run("a", "info", many.url()).said) if "packs" in line] == []


def test_a_repository_with_nothing_to_say_says_nothing(users: Users) -> None:
    for words in (("info", users.url()), ("pull",)):
        assert advised(users.run("b", *words).said) == []
    assert list(users.cache("b").rglob("*.advice")) == []


def test_git_shows_it_too(newer: Served, tmp_path: Path) -> None:
    history = History()
    line = history.line(MANY_PACKS + 1)
    repository = PackRepository(LocalTransport(newer.root), "git-many")
    for revision in line:
        push_git(repository, history, [revision], {MAIN: revision})
    side = Side(tmp_path / "side", newer.url("git-many"), newer)
    first = side.run("git ls-remote $URL")
    packs, client = advised(first.err)
    assert f"it lies in {MANY_PACKS + 1} packs: `smartserver pack URL` joins them" in packs
    assert CLIENT in client
    assert first.counts.rounds == 2
    assert advised(side.run("git ls-remote $URL").err) == []
