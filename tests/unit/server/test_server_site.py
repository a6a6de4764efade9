"""server.site, startup, upkeep: from a client's path to a repository; all repositories are found, and tidied one by one
at a pace."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import MAIN
from counting import Counting
from dialogs import PATH, Dialog, Lanes, Served, SteppedExecutor, message
from memory_transport import MemoryTransport
from session_calls import set_ref
from trips import Trips

from smartserver.errors import InvalidPath, LimitExceeded, NestedRepository, Unsupported
from smartserver.meters import BYTES_READ
from smartserver.server import site, upkeep
from smartserver.server.executor import InlineExecutor, Lane
from smartserver.server.site import Site
from smartserver.server.startup import MAX_DEPTH, inside_of, repositories, tidy_all
from smartserver.server.upkeep import SlowPace, UpkeepQueue
from smartserver.store.format import FOLDERS
from smartserver.store.index_build import Pace
from smartserver.store.repack import AHEAD
from smartserver.store.repository import PackRepository
from transports.base import Capability, ReadFile, Stat, Step, Transport
from transports.decorators.ahead import AheadTransport
from transports.decorators.passing import PassingTransport
from transports.errors import NoSpace, PermissionDenied
from transports.local import LocalTransport


@pytest.fixture
def served() -> Served:
    served = Served()
    line = served.history.line(2)
    served.push(line, {MAIN: line[1]}, "team/project")
    return served


def test_a_repository_is_found_by_its_path_alone(served: Served) -> None:
    found = served.site.find("/team/project/")
    assert found.at == "team/project"
    assert found.repository.exists()
    assert served.site.find("team/project").repository is found.repository
    assert not served.site.find("team").exists
    assert not served.site.find("other").exists
    with pytest.raises(NestedRepository) as caught:
        served.site.find("team/project/below/it")
    assert caught.value.inside == "team/project"


def test_the_longest_prefix(served: Served) -> None:
    assert served.site.find_above("team/project/a/b").at == "team/project"
    assert served.site.find_above("team/project").at == "team/project"
    nowhere = served.site.find_above("team/other/a")
    assert (nowhere.at, nowhere.repository.path) == ("", "team/other/a")
    assert served.site.find_above("").at == ""


def test_below_a_repository_names_are_those_of_branches_and_files(served: Served) -> None:
    for path in ("team/project", "team/project/a/b", "team/project/log", "team/project/trunk/.file", "team/project/.b"):
        found = served.site.find_below(path)
        assert (found.exists, found.at) == (True, "team/project")
    nowhere = served.site.find_below("team/other/a")
    assert (nowhere.exists, nowhere.repository.path) == (False, "team/other/a")
    for path in ("team/other/.a", "team/other/log", "team/project/../a"):
        with pytest.raises(InvalidPath):
            served.site.find_below(path)


def test_what_is_too_large_for_a_format_is_not_read(served: Served) -> None:
    served.transport.put("team/format", [bytes(1000)])
    counting = Counting()
    assert not served.site.find_above("team/other").exists
    assert counting[BYTES_READ] == 0


class Closed(PassingTransport):
    """Nobody may look at one of its files."""

    def stat(self, path: str) -> Stat:
        if self.full(path) == "team/format":
            raise PermissionDenied(path, "it is closed")
        return super().stat(path)

    def open_read(self, path: str) -> ReadFile:
        if self.full(path).startswith("team/format"):
            raise PermissionDenied(path, "it is closed")
        return super().open_read(path)


def test_what_cannot_be_looked_at_above_a_repository_is_not_looked_at(served: Served) -> None:
    site = Site(Closed(served.transport))
    assert site.find_above("team/project/a").at == "team/project"
    assert Site(site.root).find("team/project").exists
    with pytest.raises(PermissionDenied):
        site.find_above("team/other")


class Asked(Trips):
    """A folder of a store that lets nobody look into the store's own folder."""

    def __init__(self, store: Asked | None, inner: Transport, at: str = "") -> None:
        super().__init__(inner.child(at) if at else inner)
        self._store, self._at = store, at

    def whole(self) -> tuple[Transport, str]:
        return self._store or self, self._at

    def perform(self, steps: Sequence[Step]) -> None:
        seen = [step for step in steps if step is steps[0] or step.path != "format"]
        super().perform(seen)
        if len(seen) < len(steps):
            raise PermissionDenied("format", "it is closed")


def test_nothing_is_made_in_the_folders_of_one_around_what_is_served(served: Served) -> None:
    """It is asked with what is below, and who may not look there is not kept from his own."""
    served.transport.make_directory("team/project/packs/a")
    served.transport.make_directory("team/other")
    store = Asked(None, served.transport)

    def at(path: str) -> Site:
        made = Asked(store, served.transport, path)
        made.log = store.log
        return Site(made)

    with pytest.raises(InvalidPath, match=r"team/project is a repository: name a place outside it"):
        at("team/project/packs/a").find("it")
    folders = ("cluster", "cluster/team")
    for folder in folders:
        served.transport.make_directory(folder)
    served.transport.put("cluster/smartserver-cluster", [b"{}"])
    for folder in folders:
        with pytest.raises(InvalidPath, match=r"cluster has its logs in a database, which cannot be reached from here"):
            at(folder).find("it")
    listed = {each.path: each.problem for each in served.site.listing("")}
    assert listed["cluster"] == "a store whose logs are in a database: list that by itself"
    store.log.clear()
    assert not at("team/other").find("it").exists
    alone = Asked(None, served.transport.child("team/other"))
    assert not Site(alone).find("it").exists
    assert len(alone.log) == len(store.log)
    with pytest.raises(NestedRepository):
        at("team/project").find("it")
    served.transport.put("team/format", [b"of something else"])
    assert not at("team/other").find("it").exists


def test_nothing_is_made_in_the_root_when_it_is_one(served: Served) -> None:
    project = Site(served.transport.child("team/project"))
    for path in ("below", "below/it"):
        with pytest.raises(NestedRepository):
            project.find(path)
    assert project.find_above("below/it").repository.path == ""


def test_a_place_out_of_the_root(served: Served) -> None:
    served.site.inside = lambda name: name != "link"
    for look in (served.site.find, served.site.find_above, served.site.find_below):
        with pytest.raises(InvalidPath, match="out of the served folder"):
            look("link")
        look("team/project")


def test_links_out_of_the_root_are_noticed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "root-outside"
    for folder in (root / "inner", outside):
        folder.mkdir(parents=True)
    (root / "out").symlink_to(outside)
    (root / "in").symlink_to(root / "inner")
    (root / "loop").symlink_to(root / "loop")
    inside = inside_of(LocalTransport(root))
    assert [inside(name) for name in ("", "inner", "in", "new", "new/deep", "in/x")] == [True] * 6
    assert [inside(name) for name in ("out", "out/deeper")] == [False] * 2


def test_the_most_used_stay_open(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "MAX_OPEN", 2)
    line = list(served.history.parents)
    for path in ("one", "two", "four"):
        served.push(line, {}, path)
    first = served.site.find("one").repository
    assert served.site.find("two").exists
    assert served.site.find("one").repository is first
    assert not served.site.find("three").exists  # What is not there pushes nothing out.
    assert served.site.find("one").repository is first
    for path in ("two", "four"):
        assert served.site.find(path).exists
    assert served.site.find("one").repository is not first


# -- listing


def paths(served: Served, path: str = "", after: str = "", most: int = 99) -> list[str]:
    return [each.path for each in served.site.listing(path, after, most)]


def test_repositories_are_listed_by_path(served: Served) -> None:
    line = list(served.history.parents)
    for path in ("a", "b-c", "b/c", "b/d/e", "team/x.y"):
        served.push(line, {MAIN: line[0], b"refs/heads/b": line[1]}, path)
    for folder in ("empty", "b/.hidden", "team/git", "team/git/objects"):
        served.transport.make_directory(folder)
    for file in ("file", "team/git/HEAD"):
        served.transport.put(file, (b"x",))
    everything = ["a", "b/c", "b/d/e", "b-c", "team/project", "team/x.y"]
    assert paths(served) == everything
    assert paths(served, "b") == ["b/c", "b/d/e"]
    assert paths(served, "team/project/refs") == paths(served, "team/project") == ["team/project"]
    assert paths(served, "nowhere") == paths(served, "file") == paths(served, "empty") == []
    for number, last in enumerate(everything):
        assert paths(served, after=last) == everything[number + 1 :]
        assert paths(served, after=last, most=2) == everything[number + 1 : number + 3]
    assert paths(served, "a", after="a") == []
    first = served.site.listing("a")[0]
    assert (first.vcs, first.refs, first.problem) == ("git sha1", (b"refs/heads/b", MAIN), "")


def test_deleted_ones_above_a_path_are_those_that_the_user_may_read(served: Served) -> None:
    served.site.find("team/project").repository.delete(bytes(16), 0, "user")
    found = served.site.deleted_above("team/project/below", lambda path: True)
    assert [repository.path for repository in found] == ["team/project"]
    assert not served.site.deleted_above("team/project/below", lambda path: path != "team/project")


def test_a_damaged_one_is_listed_and_a_deleted_one_is_not(served: Served) -> None:
    line = list(served.history.parents)
    served.push(line, {}, "damaged")
    served.push(line, {}, "gone")
    served.site.find("gone").repository.delete(bytes(16), 0, "user")
    served.push(line, {}, "gone/below")
    served.transport.delete("damaged/log/0000000002")
    served.transport.put("damaged/log/0000000002", (b"no record",))
    damaged, below, whole = Site(served.transport).listing("")
    assert (damaged.path, damaged.vcs, below.path, whole.path) == ("damaged", "", "gone/below", "team/project")
    assert "log/0000000002" in damaged.problem


def test_what_somebody_called_as_we_do_is_no_repository(served: Served) -> None:
    served.transport.put("format", (b"hi\n",))
    for name in ("team/format", "team/root"):
        served.transport.make_directory(name)
    fresh = Site(served.transport)
    assert [each.path for each in fresh.listing("")] == ["team/project"]
    assert fresh.find_above("team/project/x").at == "team/project"
    assert not fresh.find("team/new").exists
    assert not fresh.find_above("team/new").exists
    served.transport.delete("team/project/format")
    served.transport.put("team/project/format", (b"smartserver repository 9\n",))
    with pytest.raises(Unsupported):
        Site(served.transport).find("team/project/new")


def test_what_the_store_lets_nobody_into_is_on_one_page(served: Served) -> None:
    class Jailed(PassingTransport):
        def wrap(self, inner: Transport, prefix: str) -> Jailed:
            return Jailed(inner, prefix=prefix)

        def list_directory(self, path: str) -> list[str]:
            if path in ("b", "b/c"):
                raise InvalidPath(path, "it leads out")
            return self.inner.list_directory(path)

    line = list(served.history.parents)
    for path in ("a", "c"):
        served.push(line, {}, path)
    served.transport.make_directory("b")
    jailed = Site(Jailed(served.transport))
    pages = [each for after in ("", "a", "b", "c") for each in jailed.listing("", after, 1)]
    listed = [(each.path, each.problem) for each in pages]
    assert listed == [("a", ""), ("b", "it leads out"), ("c", ""), ("team/project", "")]
    assert jailed.listing("b/c", "b/c") == []


def test_a_listing_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        served.transport.make_directory(f"folder{number}")
    monkeypatch.setattr(site, "MAX_FOLDERS", 7)
    with pytest.raises(LimitExceeded):
        served.site.listing("")

    def no_more() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        served.site.listing("", go_on=no_more)
    served.site.inside = lambda name: name != "team"
    assert paths(served) == []
    with pytest.raises(InvalidPath):
        served.site.listing("../x")


def test_what_is_read_ahead_is_bounded_as_a_listing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one folder holds more."""
    asked: list[str] = []

    class Asked(PassingTransport):
        def list_directory(self, path: str) -> list[str]:
            if path.rpartition("/")[2] not in FOLDERS:
                asked.append(path)
            return super().list_directory(path)

    store = MemoryTransport()
    for name in ("a", "b", "b/c", "d", "e"):
        store.make_directory(name)
    site.read_ahead(AheadTransport(Asked(store)))
    assert sorted(asked) == ["", "a", "b", "b/c", "d", "e"]
    asked.clear()
    monkeypatch.setattr(site, "MAX_FOLDERS", 3)
    site.read_ahead(AheadTransport(Asked(store)))
    assert len(asked) == 3


@pytest.mark.parametrize("few", [0, site.FEW])
def test_repositories_of_one_depth_are_read_together(served: Served, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a link, however many there are: what all folders hold, and their logs with it or next."""
    monkeypatch.setattr(site, "FEW", few)
    line = list(served.history.parents)
    for path in ("b/one", "b/two", "team/other"):
        served.push(line, {}, path)
    trips = Trips(served.transport)
    ahead = AheadTransport(trips)
    site.read_ahead(ahead)
    trips_ahead = len(trips.log)
    assert trips_ahead == 3 + (few == 0)  # Three depths of folders, and the logs of the last.
    listed = Site(ahead).listing("")
    assert [each.path for each in listed] == ["b/one", "b/two", "team/other", "team/project"]
    assert [each for each in trips.log[trips_ahead:] if "log/" in each or "checkpoints" in each] == []


def test_of_objects_no_record_is_asked_for_that_is_not_there(served: Served) -> None:
    """Each question is paid for; of other stores behind a link they are asked in one trip, without a listing."""
    trips = Trips(served.transport)
    trips.capabilities |= Capability.OBJECTS
    site.read_ahead(AheadTransport(trips))
    assert [each for each in trips.log if "log/" in each] == []


@pytest.fixture
def stocked() -> Served:
    served = Served()
    line = served.history.line(2)
    for path in ("one", "team/two", "team/deep/three"):
        served.push(line, {MAIN: line[1]}, path)
    served.transport.make_directory("team/empty")
    served.transport.make_directory(".hidden")
    served.transport.put("a file", [b"x"])
    return served


def test_repositories_are_found(stocked: Served) -> None:
    assert sorted(repositories(stocked.transport)) == ["one", "team/deep/three", "team/two"]
    assert list(repositories(stocked.transport, path="one")) == ["one"]
    assert list(repositories(stocked.transport.child("one"))) == [""]
    assert list(repositories(stocked.transport, path="nowhere")) == []
    assert list(repositories(stocked.transport, path="a file")) == []
    stocked.site.find("one").repository.delete(bytes(16), 0, "user")
    stocked.push(list(stocked.history.parents), {}, "one/below")
    assert sorted(repositories(stocked.transport, path="one")) == ["one", "one/below"]
    # What a link leads out of the root to is not looked at.
    assert list(repositories(stocked.transport, lambda path: not path.startswith("team"))) == ["one", "one/below"]


def test_the_search_ends() -> None:
    transport = MemoryTransport()
    for depth in range(MAX_DEPTH + 3):
        folders = [f"d{number}" for number in range(depth)]
        for name in ("", "repository", "repository/packs", "repository/incoming"):
            if folders or name:
                transport.make_directory("/".join([*folders, name]) if name else "/".join(folders))
    assert len(list(repositories(transport))) == MAX_DEPTH


def test_what_cannot_be_tidied_is_logged_and_the_rest_is_done(
    stocked: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tidied: list[str] = []

    def collect(repository: PackRepository) -> int:
        tidied.append(repository.path)
        if repository.path == "one":
            raise NoSpace("lock")
        return 0

    monkeypatch.setattr(PackRepository, "collect_garbage_files", collect)
    tidy_all(stocked.site, InlineExecutor())
    assert sorted(tidied) == ["one", "team/deep/three", "team/two"]
    assert [record.message for record in caplog.records] == ["tidying one: no space left to write 'lock'"]


def test_a_server_that_stops_tidies_no_further_repository(stocked: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    tidied: list[str] = []
    executor = SteppedExecutor()

    def collect(repository: PackRepository) -> int:
        tidied.append(repository.path)
        executor.stopping = True
        return 0

    monkeypatch.setattr(PackRepository, "collect_garbage_files", collect)
    tidy_all(stocked.site, executor)
    assert len(tidied) == 1


def test_one_tidying_of_a_repository_waits(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedExecutor()
    first, second = served.repository(), PackRepository(served.transport, "other")
    told: list[str] = []

    def tidy(repository: PackRepository, pace: Pace) -> None:
        told.append(repository.path)
        if len(told) == 1:
            served.site.upkeep.tidy_later(stepped, repository)  # A push that comes while it is tidied.

    monkeypatch.setattr(upkeep, "tidy", tidy)
    again = PackRepository(served.transport, PATH)  # As the site has it once it has forgotten the first.
    for repository in (first, again, second, first, second):
        served.site.upkeep.tidy_later(stepped, repository)
    assert len(stepped.waiting) == 2
    stepped.run_all()
    assert told == [PATH, "other", PATH]
    served.site.upkeep.tidy_later(stepped, first)
    stepped.run_all()
    assert told == [PATH, "other", PATH, PATH]


@pytest.mark.parametrize("tidies", [True, False])
def test_of_a_store_behind_a_link_the_log_alone_is_tidied(
    served: Served, line: list[bytes], tidies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for name in ("tidy", "save_log"):
        monkeypatch.setattr(PackRepository, name, lambda *_, name=name: called.append(name))
    executor = Lanes()
    served.site.tidies = tidies
    dialog = Dialog(served.site, executor=executor)
    dialog.begin(message(set_ref(line[1], b"refs/heads/other"), path="team/project"))
    executor.run_all()
    assert Lane.UPKEEP in executor.lanes
    assert called == ["tidy" if tidies else "save_log"]


def test_the_pace_is_left_where_the_server_stops(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would wait for the end of a repack three times as long."""
    rests = resting(monkeypatch)
    executor = SteppedExecutor()

    def tidy(repository: PackRepository, pace: Pace) -> None:
        pace()
        executor.stopping = True
        pace()

    monkeypatch.setattr(PackRepository, "tidy", tidy)
    served.site.upkeep.tidy_later(executor, served.repository())
    executor.run_all()
    assert len(rests) == 1


def resting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rests of a slow pace, which has always something to rest from."""
    rests: list[float] = []
    ticks = itertools.count()
    monkeypatch.setattr(upkeep, "SlowPace", lambda hurried: SlowPace(hurried, lambda: float(next(ticks)), rests.append))
    return rests


def test_a_repository_presses_until_it_is_taken() -> None:
    storage, due = MemoryTransport(), UpkeepQueue()
    one, again, other = (PackRepository(storage, path) for path in ("one", "one", "other"))
    assert [due.add(each) for each in (one, again, other)] == [True, False, True]
    pressing = []
    for _ in range(AHEAD):
        pressing.append(due.is_pressing)
        due.add(one)
    assert pressing == [*[False] * (AHEAD - 2), True, True]
    due.take(other)
    assert due.is_pressing
    due.take(again)
    assert not due.is_pressing
    assert due.add(one)
