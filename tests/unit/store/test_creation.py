"""store.creation and the first root: where a repository may be made, and what there is at every moment of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import MAIN, History, Lockless, push
from faulty_transport import FaultyTransport
from root_cases import create, make, many, new_root, tip
from smartserver.store.swap import RootFile
from trips import Trips

from smartserver.errors import InvalidPath, NestedRepository, NoSuchRepository, OutcomeUnknown
from smartserver.store.creation import Creation
from smartserver.store.format import Discipline
from smartserver.store.remains import describe_place
from smartserver.store.repository import PackRepository
from smartserver.store.surroundings import LOOKED_AT
from transports.base import Stat, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import FileExists, NoSuchFile, TransportFailed
from transports.local import LocalTransport
from transports.memory import MemoryTransport


@pytest.mark.parametrize("path", ["", "project", "group/sub/project"])
def test_a_repository_is_made_with_everything_above_it(storage: Transport, path: str) -> None:
    file = RootFile(storage, path)
    with pytest.raises(NoSuchRepository):
        file.read()
    assert create(file, *new_root(file.folder, {MAIN: tip(1)}))
    folder = storage.child(path) if path else storage
    assert folder.list_directory("") == ["format", "incoming", "lock", "log", "packs", "root", "tables"]
    assert folder.get("format") == b"smartserver repository 1 swap=file\n"
    assert RootFile(storage, path).read() == file.read()
    assert file.read().version == 1


def test_a_second_creation_sees_the_first(storage: Transport) -> None:
    make(storage, {MAIN: tip(1)}, "a")
    other = RootFile(storage, "a")
    assert not create(other, *new_root(other.folder, {MAIN: tip(2)}, incarnation=b"j" * 16))
    assert other.read().incarnation == b"i" * 16


def test_of_two_that_create_at_once_one_wins(tmp_path: object) -> None:
    for round_ in range(10):
        won: list[bytes] = []
        barrier = threading.Barrier(4)

        def make_it(incarnation: bytes, path: str, won: list[bytes], barrier: threading.Barrier) -> None:
            file = RootFile(LocalTransport(str(tmp_path)), path)
            root, files = new_root(file.folder, {MAIN: tip(1)}, incarnation=incarnation)
            barrier.wait()
            if create(file, root, files):
                won.append(incarnation)

        path = f"deep/{round_}"
        threads = [threading.Thread(target=make_it, args=(bytes([n]) * 16, path, won, barrier)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert RootFile(LocalTransport(str(tmp_path)), path).read().incarnation == won[0]


def test_half_made_leftovers_are_taken_over(storage: Transport) -> None:
    storage.make_directory("a")
    storage.make_directory("a/packs")
    storage.put("a/format", [b"smartserver repository 1 swap=file\n"])
    storage.put("a/root.0011223344556677", [b"torn"])
    with pytest.raises(NoSuchRepository):
        RootFile(storage, "a").read()
    file = make(storage, {MAIN: tip(1)}, "a")
    assert file.sweep() == ["root.0011223344556677"]
    assert file.read().version == 1


def test_no_repository_inside_another(storage: Transport) -> None:
    make(storage, {}, "a")
    with pytest.raises(NestedRepository) as raised:
        make(storage, {}, "a/packs/b")
    assert (raised.value.path, raised.value.inside) == ("a/packs/b", "a")


def test_no_repository_above_another(storage: Transport) -> None:
    make(storage, {}, "a/b/c")
    for above, inner in (("a", "b/c"), ("a/b", "c")):
        with pytest.raises(InvalidPath, match=f"a repository is below it at '{inner}': none can be made above that"):
            make(storage, {}, above)
    for path in ("d", "d/x", *[f"d/x/{number:03}" for number in range(LOOKED_AT)]):
        storage.make_directory(path)
    make(storage, {}, "d/x/later/e")  # Further down than is looked.
    with pytest.raises(InvalidPath, match="the folder holds 'x', which belongs to no repository"):
        make(storage, {}, "d")


@pytest.mark.parametrize("folders", [["root"], ["format"], ["format", "root"], []], ids=" ".join)
@pytest.mark.parametrize("discipline", [Discipline.FILE, Discipline.FOLDER])
def test_what_somebody_called_as_we_do_stops_nothing(
    storage: Transport, folders: list[str], discipline: Discipline
) -> None:
    for above in ("", "a/", "a/b/"):
        if above:
            storage.make_directory(above.rstrip("/"))
        for name in ("format", "root"):
            if name in folders:
                storage.make_directory(above + name)
            else:
                storage.put(above + name, [b"hi\n"])
    repository = PackRepository(storage, "a/b/c", discipline=discipline)
    assert not repository.exists()
    assert repository.describe_place() == ""
    push(repository, History(), [])
    assert repository.exists()


@pytest.mark.parametrize("name", ["root", "format"])
def test_a_folder_of_our_names_in_the_place_is_left_alone(storage: Transport, name: str) -> None:
    storage.make_directory("a")
    storage.make_directory(f"a/{name}")
    with pytest.raises(NoSuchRepository):
        RootFile(storage, "a").read()
    assert describe_place(storage, "a") == ""
    with pytest.raises(InvalidPath, match=f"the folder holds '{name}', which belongs to no repository"):
        make(storage, {}, "a")
    assert storage.list_directory("a") == [name]


@pytest.mark.parametrize(("name", "what"), [(".git", "a git repository"), (".hg", "a Mercurial"), (".bzr", "a Bazaar")])
def test_another_tools_repository_is_left_alone(storage: Transport, name: str, what: str) -> None:
    storage.make_directory("a")
    storage.make_directory(f"a/{name}")
    with pytest.raises(InvalidPath, match=what):
        make(storage, {}, "a")
    for inside in ("a/b", "a/b/c", f"a/{name}/b"):
        with pytest.raises(InvalidPath, match=f"'a' is {what}.*: nothing is made inside it"):
            make(storage, {}, inside)
    assert storage.list_directory("a") == [name]
    with pytest.raises(NoSuchRepository):
        RootFile(storage, "a").read()


def test_a_file_in_the_place_of_a_repository_is_left_alone(storage: Transport) -> None:
    storage.put("file", [b"somebody's"])
    for path, why in [("file", "a file is there"), ("file/a", "'file' is a file"), ("file/a/b", "'file' is a file")]:
        with pytest.raises(InvalidPath) as raised:
            make(storage, {}, path)
        assert (raised.value.path, raised.value.why) == (path, why)
    assert storage.list_directory("") == ["file"]
    assert storage.get("file") == b"somebody's"


def test_a_link_that_leads_nowhere_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(InvalidPath, match="'a' is a link that leads nowhere"):
        make(LocalTransport(str(tmp_path)), {}, "a/b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], ""),
        (["a/notes.txt"], ""),
        (["a"], "a file"),
        (["a/.git/HEAD"], "a git repository"),
        (["a/HEAD", "a/objects/x"], "a git repository"),
        (["a/root"], "what is left of one: a root and no 'format'"),
        (["a/log/1"], "what is left of one: 'log' files and no 'root'"),
        (["a/packs/1.pack"], "what is left of one: 'packs' files and no 'root'"),
    ],
)
def test_what_is_there_instead_of_a_repository(storage: Transport, files: list[str], found: str) -> None:
    for file in files:
        parts = file.split("/")
        for depth in range(1, len(parts)):
            with contextlib.suppress(FileExists):
                storage.make_directory("/".join(parts[:depth]))
        storage.put(file, [b""])
    assert describe_place(storage, "a") == found
    below = describe_place(storage, "a/b")
    assert below == ("a file, 'a', above it" if found == "a file" else "")


def test_what_lies_there_is_asked_for_in_one_trip(storage: Transport) -> None:
    storage.make_directory("a")
    store = Trips(storage)
    assert describe_place(store, "a/b") == ""
    assert len(store.log) == 1


def test_a_store_that_fails_knows_of_nothing_instead() -> None:
    class Sick(PassingTransport):
        def wrap(self, inner: Transport, prefix: str) -> Sick:
            return Sick(inner, prefix=prefix)

        def stat(self, path: str) -> Stat:
            raise TransportFailed(path, "input/output error")

    assert describe_place(Sick(MemoryTransport()), "a") == ""


def test_a_repository_on_a_store_without_locks_has_a_lock_folder() -> None:
    inner = MemoryTransport()
    file = make(Lockless(inner), {MAIN: tip(1)}, "a")
    assert inner.get("a/format") == b"smartserver repository 1 swap=folder\n"
    assert inner.list_directory("a/lock") == []
    assert RootFile(inner, "a").read() == file.read()


# -- the order of writes


SWAP = ["create root", "write root", "sync root", "rename root", "sync_directory ."]


def written(log: Sequence[str]) -> list[str]:
    """The calls on the repository at deep/a, without random names."""
    calls = [call.replace("deep/a/", "") for call in log]
    calls = [f"{call.removesuffix('deep/a')}." if call.endswith(" deep/a") else call for call in calls]
    return [call.split(".")[0] if "root." in call or "format." in call else call for call in calls]


def test_the_write_order_of_a_creation() -> None:
    """The place is held, by a tombstone that names nothing, before there is anything that a root may name."""
    faulty = FaultyTransport(MemoryTransport())
    make(faulty, {}, "deep/a")
    assert written(faulty.log) == [
        "make_directory deep",
        "make_directory .",
        *[f"make_directory {name}" for name in ("packs", "incoming", "tables", "log")],
        *["sync_directory .", "sync_directory deep", "sync_directory "],
        "lock lock",
        *[f"make_directory {name}" for name in ("packs", "incoming", "tables", "log")],
        *["create format", "write format", "sync format", "rename format", "sync_directory ."],
        *SWAP,
        "lock lock",
        *SWAP,
    ]


def test_the_write_order_of_a_creation_with_files() -> None:
    inner = MemoryTransport()
    faulty = FaultyTransport(inner)
    make(faulty, many(800), "deep/a")
    kinds = [call.split("/")[0] for call in written(faulty.log)]
    files = [f"{call} {place}" for place in ("tables", "log") for call in ("create", "write", "sync")]
    assert kinds[-19:] == [*SWAP, "lock lock", *files, "sync_directory log", "sync_directory tables", *SWAP]
    cut = MemoryTransport()
    renames = [number for number, call in enumerate(faulty.log, 1) if call == "rename deep/a/root"]
    with pytest.raises(OutcomeUnknown):
        make(FaultyTransport(cut, fail_at=renames[1], mode="die"), many(800), "deep/a")
    held = RootFile(cut, "deep/a").read()
    assert (held.deleted, held.version, held.log_since, held.packs, held.log_files) == (True, 1, 0, (), ())
    assert held.incarnation != b"i" * 16
    assert all(table.file is None for table in held.tables.values())


def test_another_may_create_at_any_moment_of_a_creation() -> None:
    """It is never told that the folder holds what is left of a repository."""
    inner = MemoryTransport()
    looked: list[str] = []

    class Watched(PassingTransport):
        def wrap(self, inner: Transport, prefix: str) -> Watched:
            return Watched(inner, prefix=prefix)

        def sync_directory(self, path: str) -> None:
            self.inner.sync_directory(path)
            looked.append(self.inner.describe(path))
            Creation(RootFile(inner, "a")).prepare()

    make(Watched(inner), many(800), "a")
    assert len(looked) > 5

    class Slow(PassingTransport):
        """Between two of its looks the other makes the whole repository."""

        def __init__(self, inner: Transport, prefix: str = "") -> None:
            super().__init__(inner, prefix=prefix)

        def wrap(self, inner: Transport, prefix: str) -> Slow:
            return Slow(inner, prefix)

        def stat(self, path: str) -> Stat:
            try:
                return self.inner.stat(path)
            except NoSuchFile:
                if path == "root" and not other.exists("a/root"):
                    make(other, many(800), "a")
                raise

        def list_directory(self, path: str) -> list[str]:
            found = self.inner.list_directory(path)
            if path == "log" and not other.exists("a/root"):
                make(other, many(800), "a")
            return found

    other = MemoryTransport()
    Creation(RootFile(Slow(other), "a")).prepare()
    assert other.exists("a/root")
