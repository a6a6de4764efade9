"""gateway.cache, gateway.gateway: the cache follows the store, and has nothing that the store does not serve."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import operator
import os
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from gateways import new_repository

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate
from smartserver.gateway import cache as module
from smartserver.gateway.cache import GitCache
from smartserver.gateway.gateway import Gateway, Visitor
from smartserver.gateway.ssh import LaterExecutor
from smartserver.plugins.git.push import LocalSource
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from smartserver.store.prune import prune
from smartserver.vcs.base import ToolFailed, VcsError
from smartserver.vcs.git.repository import GitRepository
from smartserver.verbs.rules import Rule
from transports.local import LocalTransport

pytestmark = pytest.mark.interop

VISITOR = Visitor(invoking_user("anna"), {}, "a test", "test")


class Place:
    """A store with a repository, and its gateway."""

    def __init__(self, folder: Path, cache_size: int | None = None) -> None:
        self.folder = folder
        self.path = "project"
        (folder / "root").mkdir()
        self.site = Site(LocalTransport(folder / "root"))
        self.executor = LaterExecutor()
        self.gateway = Gateway(self.site, str(folder / "cache"), self.executor, cache_size=cache_size)
        self.git = new_repository(folder / "work")

    def push(self, ref: str, name: str = "") -> None:
        """Push an object to a ref; delete that without one."""
        tip = bytes.fromhex(self.git("rev-parse", name).strip()) if name else None
        with (
            Client(lambda: SameProcess(self.site, invoking_user("anna"))) as client,
            GitRepository(self.git.folder / ".git", self.git.environment) as local,
        ):
            new = NewRepository(local.vcs, local.kinds, {"HEAD": b"refs/heads/main"})
            remote = RemoteRepository(client, self.path, Knowledge(None, self.path))
            pushed = remote.push(PushRequest([RefUpdate(ref.encode(), tip, Rule.FORCE)], LocalSource(local), new))
            assert pushed.refs[0].outcome is Outcome.DONE

    def bring(self) -> Path:
        """The generation that a request would be served by."""
        state = self.gateway.state(VISITOR, self.path)
        lease = self.gateway.lease(self.path, state) or self.gateway.bring(self.path)
        lease.close()
        return Path(lease.folder)

    def refs(self) -> str:
        return subprocess.run(["git", "--git-dir", self.bring(), "show-ref"], text=True, stdout=subprocess.PIPE).stdout

    def has(self, name: str) -> bool:
        key = self.git("rev-parse", name).strip()
        command = ["git", "--git-dir", str(self.bring()), "cat-file", "-e", key]
        return not subprocess.run(command, stderr=subprocess.DEVNULL).returncode


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_only_what_is_new_is_pulled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        place.git.commit(f"f{n}")
    place.push("refs/heads/main", "main")
    place.bring()
    pulled: list[int] = []
    original = Gateway._pull

    def pull(self: Gateway, *arguments: object) -> object:
        answer = original(self, *arguments)  # type: ignore[arg-type]
        pulled.append(answer.result.segments)
        return answer

    monkeypatch.setattr(Gateway, "_pull", pull)
    place.git.commit("new")
    place.push("refs/heads/main", "main")
    place.bring()
    place.push("refs/heads/other", "main~5")
    place.bring()
    assert pulled == [1]


def test_objects_that_refs_left_behind_are_gone_after_a_while(place: Place) -> None:
    place.push("refs/heads/main", "main")
    place.git("checkout", "-q", "--orphan", "elsewhere")
    place.git.commit("secret")
    place.push("refs/heads/elsewhere", "elsewhere")
    first = place.bring()
    assert place.has("elsewhere:secret")
    place.push("refs/heads/elsewhere")
    place.bring()
    place.executor.finish()
    assert place.bring() != first
    assert not first.exists()
    assert not place.has("elsewhere:secret")
    assert place.has("main")


def test_a_deletion_that_leaves_nothing_behind_builds_nothing(place: Place) -> None:
    place.push("refs/heads/main", "main")
    place.push("refs/heads/merged", "main")
    place.git.commit("two")
    place.push("refs/heads/main", "main")
    first = place.bring()
    place.push("refs/heads/merged")
    assert place.refs() == place.git("show-ref")
    place.executor.finish()
    assert place.bring() == first
    current = GitCache(str(first.parent))._current()
    assert current is not None
    assert not current.left


def test_what_was_removed_from_the_store_is_not_in_the_next_generation(place: Place) -> None:
    """However many revisions there are by then."""
    place.push("refs/heads/main", "main")
    place.git("checkout", "-q", "-b", "wrong")
    place.git.commit("secret")
    place.push("refs/heads/main", "wrong")
    first = place.bring()
    place.push("refs/heads/main", "main")
    assert place.bring() == first
    assert place.has("wrong:secret")
    assert prune(place.site.find("project").repository) == 1
    place.git("checkout", "-q", "main")
    for name in ("two", "three"):
        place.git.commit(name)
    place.push("refs/heads/main", "main")
    assert place.bring() != first
    assert not place.has("wrong:secret")
    assert place.has("main:three")


def test_two_updates_at_once_build_nothing_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that comes late has read an older state."""
    place.push("refs/heads/main", "main")
    place.bring()
    place.git.commit("two")
    place.push("refs/heads/main", "main")
    original, others = GitCache._locked, list[Path]()

    def late(self: GitCache) -> AbstractContextManager[None]:
        monkeypatch.setattr(GitCache, "_locked", original)
        place.git.commit("three")
        place.push("refs/heads/main", "main")
        others.append(place.bring())
        return original(self)

    monkeypatch.setattr(GitCache, "_locked", late)
    assert [place.bring()] == others
    assert place.refs() == place.git("show-ref")


def test_a_generation_that_is_served_stays(place: Place) -> None:
    place.push("refs/heads/main", "main")
    lease = place.gateway.bring("project")
    first = Path(lease.folder)
    (first / "packed-refs").unlink()
    second = place.bring()
    assert second != first
    assert first.exists()
    lease.close()
    place.git.commit("two")
    place.push("refs/heads/main", "main")
    assert place.bring() == second
    assert not first.exists()


def test_packs_are_joined(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PACKS", 3)
    for n in range(6):
        place.git.commit(f"f{n}")
        place.push("refs/heads/main", "main")
        first = place.bring()
    assert len(list(first.glob("objects/pack/*.pack"))) == 6
    place.executor.finish()
    assert len(list(first.glob("objects/pack/*.pack"))) < 3
    assert place.bring() == first
    subprocess.run(["git", "--git-dir", first, "fsck", "--strict"], check=True)


def test_bitmaps_are_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_REVISIONS", 0)
    place.push("refs/heads/main", "main")
    first = place.bring()
    place.executor.finish()
    assert list(first.glob("objects/pack/*.bitmap"))
    assert place.bring() == first
    place.executor.finish()


def test_what_a_killed_update_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut before each of its steps, and done again."""
    place.push("refs/heads/main", "main")
    first = place.bring()
    for n, name in enumerate(("_write_refs", "GitCache._write", "open_bare")):
        place.git.commit(f"f{n}")
        place.push("refs/heads/main", "main")
        with monkeypatch.context() as patched:
            patched.setattr(f"smartserver.gateway.cache.{name}", _killed)
            with pytest.raises(KeyboardInterrupt):
                place.bring()
        assert place.refs() == place.git("show-ref")
    assert place.bring() == first


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_generation_that_was_never_finished_goes(place: Place) -> None:
    place.push("refs/heads/main", "main")
    first = place.bring()
    (first.parent / "half.git" / "objects").mkdir(parents=True)
    (first / "HEAD").unlink()
    place.bring()
    assert sorted(each.name for each in first.parent.glob("*.git")) == [place.bring().name]


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("step", ["_write_refs", "GitCache._files", "GitCache._remove_others"])
def test_a_cache_that_is_deleted_while_it_is_built(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: str, always: bool
) -> None:
    """It is built once more. If it is deleted each time, its client is told so, and not where it was."""
    place.push("refs/heads/main", "main")
    original = operator.attrgetter(step)(module)

    def deleted(*arguments: object) -> object:
        if not always:
            monkeypatch.undo()
        shutil.rmtree(place.folder / "cache")
        return original(*arguments)

    monkeypatch.setattr(f"smartserver.gateway.cache.{step}", deleted)
    if always:
        with pytest.raises(VcsError, match=r"^the server could not build its cache of the repository; "):
            place.bring()
    else:
        assert place.refs() == place.git("show-ref")


def test_a_cache_that_git_cannot_build_is_built_once_a_request(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.push("refs/heads/main", "main")
    builds: list[None] = []

    def failed(*_: object) -> None:
        builds.append(None)
        raise ToolFailed("git index-pack", 128, "damaged")

    monkeypatch.setattr(module, "_write_refs", failed)
    with pytest.raises(VcsError, match=r"^the server could not build its cache of the repository; "):
        place.bring()
    assert len(builds) == 1


def test_clients_are_told_no_folder_of_the_server(place: Place) -> None:
    folder = place.gateway.folder
    for wrong in (OSError(errno.ENOSPC, "full", f"{folder}/x"), ToolFailed("git", 128, f"cannot write {folder}/x\n")):
        told = place.gateway.words(wrong)
        assert "full" in told or "cannot write" in told
        assert folder not in told
        assert "\n" not in told


def test_quarantines_of_killed_processes_are_cleared(place: Place) -> None:
    with place.gateway.quarantine() as living:
        left = Path(living).parent / "left"
        (left / "objects").mkdir(parents=True)
        place.gateway.clear_quarantine()
        assert os.path.isdir(living)
        assert not left.exists()
    assert not os.path.exists(living)


def test_clients_cause_no_more_checks_than_one_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[str] = []
    now = 100.0

    def check(self: GitCache) -> None:
        nonlocal now
        checks.append(self.folder)
        now += 5

    monkeypatch.setattr(GitCache, "check", check)
    monkeypatch.setattr("smartserver.gateway.gateway.time.monotonic", lambda: now)
    for _ in range(3):
        place.gateway.check("project")
    place.gateway.check("other")
    place.executor.finish()
    assert len(checks) == 2
    now += 99
    place.gateway.check("other")
    place.gateway.check("project")
    place.executor.finish()
    assert len(checks) == 3
    now += 100
    place.gateway.check("project")
    place.executor.finish()
    assert len(checks) == 4


def test_the_caches_used_least_recently_make_room(tmp_path: Path) -> None:
    place = Place(tmp_path, cache_size=1)
    folders = {}
    for path in ("one", "two", "three"):
        place.path = path
        place.push("refs/heads/main", "main")
        folders[path] = place.bring()
        os.utime(folders[path].parent / "current", times=(1.0, 1.0 + len(folders)))
    served = place.gateway.lease("two", None)
    os.utime(folders["two"].parent / "current", times=(5.0, 5.0))
    place.path = "one"
    assert place.bring() == folders["one"]  # It was used last, now.
    place.executor.finish()
    assert [path for path, folder in folders.items() if folder.exists()] == ["one", "two"]
    assert served is not None
    served.close()
    place.path = "three"
    assert place.refs() == place.git("show-ref")
    place.executor.finish()
    assert [path for path, folder in folders.items() if folder.exists()] == []
    assert place.bring().exists()


@pytest.mark.parametrize("step", ["_write_refs", "GitCache.tidy"])
def test_caches_make_room_on_a_full_disk(place: Place, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(module, "FEW_REVISIONS", 0)
    for path in ("one", "two", "three"):
        place.path = path
        place.push("refs/heads/main", "main")
        if path != "three":
            place.bring()
    place.executor.finish()
    place.gateway = Gateway(place.site, place.gateway.folder, place.executor, cache_size=1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(f"smartserver.gateway.cache.{step}", full)
    with contextlib.suppress(OSError):
        place.bring()
    place.executor.finish()
    assert len(list(Path(place.gateway.folder).glob("*/*.git/packed-refs"))) == 1


def test_two_stores_share_no_cache(place: Place, tmp_path: Path) -> None:
    """Though one is a copy of the other: their users are others."""
    place.push("refs/heads/main", "main")
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    other = Gateway(Site(LocalTransport(tmp_path / "copy")), str(tmp_path / "cache"), LaterExecutor())
    lease = other.bring("project")
    lease.close()
    assert Path(lease.folder).parent != place.bring().parent


def test_a_request_waits_for_no_update_that_it_does_not_need(place: Place) -> None:
    place.push("refs/heads/main", "main")
    folder = place.bring().parent
    with open(folder / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place.bring()  # It is up to date, and waits for nobody.
