"""cli.push, cli.pull, cli.copying, client.copy: one repository of ours copied into another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import KINDS, MAIN, History, push
from bzr_samples import FIRST, FIRST_PARENTS, segment
from bzr_samples import push as push_bzr
from cli_runs import run, why
from mercurial import obsolete
from stored import pack_of, stored

from smartserver.cli.copying import _parts, between, repository_at
from smartserver.cli.errors import CommandError
from smartserver.cli.progress import ProgressLine
from smartserver.client import link
from smartserver.client.body import Relay, SourceFailed
from smartserver.client.call import Client
from smartserver.client.copy import CopyEndpoint, pull
from smartserver.client.exchange import PullAnswer
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import ConnectionLost
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome
from smartserver.errors import NoSuchRepository
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import Transaction
from smartserver.vcs.hg.kinds import KINDS as KINDS_OF_HG
from smartserver.vcs.hg.markers import key_of
from smartserver.vcs.hg.system import HG
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest
from transports.local import LocalTransport

OTHER = b"refs/heads/other"


def opened(folder: Path) -> Snapshot:
    return PackRepository(LocalTransport(folder)).snapshot()


def refs(folder: Path) -> dict[bytes, bytes]:
    """Return the refs of a repository in a folder, with their tips."""
    return {name: value[0].id for name, value in opened(folder).state.refs().items()}


def test_what_is_missing_is_brought_and_nothing_twice(source: tuple[Path, History], target: tuple[str, Path]) -> None:
    folder, history = source
    place, there = target
    first = run("push", str(folder), place)
    assert (first.exit_code, first.stderr) == (0, ""), first.exception
    assert first.stdout.splitlines()[0].startswith("5 revisions, 1 ref")
    assert refs(there) == refs(folder)
    line = history.line(2, list(history.parents)[-1])
    push(PackRepository(LocalTransport(folder)), history, line, {MAIN: line[-1], OTHER: line[0]})
    named = run("push", "--ref", "other", str(folder), place)
    assert named.stdout == "1 revision, 1 ref\n    refs/heads/other\n"
    assert run("push", str(folder), place).stdout == "1 revision, 1 ref\n    refs/heads/main\n"
    assert refs(there) == refs(folder)
    assert run("push", str(folder), place).stdout == "nothing new\n"
    assert run("verify", str(there)).stdout.endswith(": all well\n")


def test_the_other_way_round(source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path) -> None:
    folder, history = source
    place, there = target
    assert run("push", str(folder), place).exit_code == 0
    mine = tmp_path / "mine"
    assert run("pull", place, str(mine)).stdout.startswith("5 revisions, 1 ref (a new repository)\n")
    line = history.line(2, list(history.parents)[-1])
    push(PackRepository(LocalTransport(there)), history, line, {MAIN: line[-1], OTHER: line[0]})
    assert run("pull", "--ref", "other", place, str(mine)).stdout == "1 revision, 1 ref\n    refs/heads/other\n"
    assert run("pull", place, str(mine)).stdout == "1 revision, 1 ref\n    refs/heads/main\n"
    assert run("pull", place, str(mine)).stdout == "nothing new\n"
    assert refs(mine) == refs(there)
    assert run("verify", str(mine)).stdout.endswith(": all well\n")


def test_what_diverged_needs_force(source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path) -> None:
    folder, history = source
    place, there = target
    assert run("push", str(folder), place).exit_code == 0
    line = history.line(1, next(iter(history.parents)))
    apart = tmp_path / "apart"
    apart.mkdir()
    push(PackRepository(LocalTransport(apart)), history, [*list(history.parents)[:1], *line], {MAIN: line[-1]})
    refused = run("push", str(apart), place)
    assert "refs/heads/main: " in why(refused)
    assert refused.stdout == ""
    assert refs(there) == refs(folder)
    assert run("push", "--force", str(apart), place).exit_code == 0
    assert refs(there) == refs(apart)
    assert (refused := run("pull", place, str(folder))).stdout == ""
    assert "refs/heads/main: " in why(refused)
    assert run("pull", "--force", place, str(folder)).exit_code == 0
    assert refs(folder) == refs(apart)


def test_of_what_is_refused_nothing_is_counted(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path
) -> None:
    folder, history = source
    place, there = target
    assert run("push", str(folder), place).exit_code == 0
    line = history.line(2, next(iter(history.parents)))
    apart = tmp_path / "apart"
    apart.mkdir()
    tips = {MAIN: line[-1], OTHER: line[0]}
    push(PackRepository(LocalTransport(apart)), history, [*list(history.parents)[:1], *line], tips)
    partly = run("push", str(apart), place)
    assert why(partly).startswith("refs/heads/main: ")
    assert partly.stdout == "1 revision, 1 ref\n    refs/heads/other\n"
    assert refs(there) == {**refs(folder), OTHER: line[0]}


def test_an_empty_repository_is_copied_too(tmp_path: Path) -> None:
    def create(transaction: Transaction) -> bytes:
        transaction.create("git sha1", KINDS, {"HEAD": MAIN})
        return b""

    empty = tmp_path / "empty"
    empty.mkdir()
    PackRepository(LocalTransport(empty)).commit(os.urandom(16), 0, "tester", create)
    for command in ("push", "pull"):
        there = tmp_path / command
        assert run(command, str(empty), str(there)).stdout == "0 revisions, 0 refs (a new repository)\n"
        assert opened(there).state.refs() == {}
        assert run(command, str(empty), str(there)).stdout == "nothing new\n"


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ("sftp://h/srv/code?host-key=any", ("sftp://h/srv?host-key=any", "code")),
        ("sftp://h/srv/new/code/", ("sftp://h/srv", "new/code")),
        ("sftp://h/srv/.new/code/a%20b", ("sftp://h/srv/.new", "code/a b")),
        ("sftp://h/~/new/code", ("sftp://h/~", "new/code")),
        ("sftp://me@h:22/srv/a%20b/", ("sftp://me@h:22/srv", "a b")),
        ("sftp://h/~/a", ("sftp://h/~", "a")),
        ("sftp://h/code", ("sftp://h/", "code")),
        ("vfs://h/a/b", ("vfs://h/", "a/b")),
        ("vfs://h/a", ("vfs://h/", "a")),
        ("file:///srv/a%20b", ("/srv", "a b")),
        ("/absent/a/b", ("/absent", "a/b")),
        ("/tmp/absent/.a/b", ("/tmp/absent/.a", "b")),
        ("/tmp/absent/a/b", ("/tmp", "absent/a/b")),
        ("/srv/a%20b", ("/srv", "a%20b")),
        *[
            (itself, (itself, ""))
            for itself in (
                "sftp://h/~", "sftp://h/", "sftp://h/a%2Fb", "sftp://h/srv/%ff", "sftp://h/srv/packs", "sftp://[h/srv/a",
                "vfs://h/", "/srv", "/",
            )
        ],
    ],
)  # fmt: skip
def test_what_is_served(place: str, parts: tuple[str, str]) -> None:
    assert _parts(place) == parts


@pytest.mark.parametrize("as_store", [False, True])
def test_none_is_made_in_the_folders_of_another(
    source: tuple[Path, History], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_store: bool
) -> None:
    """The check holds at any depth, for any name, and by any path that leads there."""
    folder, _ = source
    around = tmp_path / "around"
    assert run("push", str(folder), str(around)).exit_code == 0
    (around / "packs" / "a" / ".b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(around / "packs")
    monkeypatch.chdir(around / "packs")
    for below in ("packs/n", "packs/a/n", "packs/a/.b/n", "packs/c/d/n", "tables/n"):
        there = around / below
        said = why(run("push", str(folder), there.as_uri() if as_store else str(there)))
        assert f"{around} is a repository: nothing is made inside it" in said
        assert not there.exists()
    for way in ("n", tmp_path / "link" / "n"):
        assert f"{around} is a repository" in why(run("push", str(folder), str(way)))
    assert run("delete", "--yes", str(around)).exit_code == 0
    assert run("push", str(folder), str(around / "packs" / "a" / "n")).exit_code == 0


def test_what_is_missing_on_the_way_is_made(source: tuple[Path, History], target: tuple[str, Path]) -> None:
    """Missing folders of the path are created, as for a push of git."""
    folder, _ = source
    place, there = target
    assert run("push", str(folder), f"{place}/new/deep/project").exit_code == 0
    assert refs(there / "new" / "deep" / "project") == refs(folder)


def test_what_a_server_would_log_is_not_said_besides(source: tuple[Path, History]) -> None:
    words = [sys.executable, "-m", "smartserver.cli.main", "push", str(source[0]), "/absent/code/project"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "smartserver: /absent/code/project: /absent is not there\n"


@pytest.mark.parametrize(
    ("place", "meant"),
    [
        ("me@host:srv/x", "sftp://me@host/~/srv/x for a folder of me@host"),
        ("host:/srv/x", "sftp://host/srv/x for a folder of host"),
        ("~/x", "/home/me/x for a folder below a home"),
    ],
)
def test_what_is_rather_another_place_is_made_only_when_said_so(
    source: tuple[Path, History], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, meant: str
) -> None:
    folder, _ = source
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    before = sorted(tmp_path.rglob("*"))
    for command in ("push", "pull"):
        said = why(run(command, str(folder), place))
        assert said.startswith(f"{place} is not there: say {meant}, ./{place} for one "), said
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / place.partition("/")[0]).mkdir()
    assert run("push", str(folder), place).exit_code == 0
    assert refs(tmp_path / place) == refs(folder)


def test_another_kind_is_refused_by_name(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path
) -> None:
    """The error does not report damage that would come from reading the repository as the other kind."""
    folder, _ = source
    place, there = target
    bazaar = tmp_path / "bazaar"
    push_bzr(
        PackRepository(LocalTransport(tmp_path), "bazaar"), segment(FIRST, FIRST_PARENTS), refs={b".": FIRST[0].key}
    )
    assert run("push", str(bazaar), place).exit_code == 0
    before = refs(there)
    said = why(run("push", str(folder), place))
    assert said.endswith("is bzr 2a, not git sha1")
    kinds = f"{place} is a repository of bzr 2a, {folder} one of git sha1"
    assert why(run("pull", place, str(folder))) == f"{kinds}: only one of the same kind can be copied into it"
    kinds = f"{folder} is a repository of git sha1, {bazaar} one of bzr 2a"
    assert why(run("pull", str(folder), str(bazaar))) == f"{kinds}: only one of the same kind can be copied into it"
    assert refs(there) == before


def test_what_is_done_is_shown_and_banned_wherever_it_is_done(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = source
    place, there = target
    mine = tmp_path / "mine"
    assert "no such rule: 'nonsense'" in run("-Dhpss-ban=nonsense", "push", str(folder), place).output
    assert "rpc:*" in why(run("-Dhpss-ban=rpc:*", "push", str(folder), place))
    assert not there.exists()
    assert "Repository.insert_pack" in run("-Dhpss", "push", str(folder), place).stderr
    assert "rpc:*" in why(run("-Dhpss-ban=rpc:*", "pull", place, str(mine)))
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpss")
    assert "Repository.insert_pack" in run("pull", place, str(mine)).stderr


class _Ends(SameProcess):
    """A connection that breaks after so many bytes."""

    left = 1 << 60

    def read(self, size: int) -> bytes:
        if self.left <= 0:
            raise ConnectionLost("somebody pulled the plug")
        got = super().read(min(size, self.left))
        self.left -= len(got)
        return got


def test_a_source_that_is_lost_half_way_is_not_taken_for_the_target(
    source: tuple[Path, History], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RECEIVE_CHUNK", 16)  # So that the answer does not come with all of its body.
    folder, _ = source
    sites = Site(LocalTransport(folder)), Site(LocalTransport(tmp_path))
    media: list[_Ends] = []

    def connect() -> SameProcess:
        media.append(_Ends(sites[0], invoking_user("tester")))
        return media[-1]

    with Client(connect) as client, Client(lambda: SameProcess(sites[1], invoking_user("tester"))) as other:
        there = RemoteRepository(client, "", Knowledge(None, "far"))
        here = RemoteRepository(other, "mine", Knowledge(None, "near"))
        there.learn_refs()
        pulls = there.pull

        def then_break(*arguments: Any, **options: Any) -> PullAnswer:
            pulled = pulls(*arguments, **options)
            media[-1].left = 100
            return pulled

        there.pull = then_break  # type: ignore[method-assign]
        with pytest.raises(CommandError, match=r"^far: somebody pulled the plug$"), between("far", "near"):
            pull(CopyEndpoint("far", there), CopyEndpoint("near", here), (), ProgressLine("pull", False), force=False)
        with pytest.raises(NoSuchRepository):
            here.learn_refs()
    assert len(media) == 1


def marker(number: int) -> tuple[bytes, bytes]:
    """Return the key of an obsolescence marker, and the marker."""
    made = (number.to_bytes(20, "big"), (b"s" * 20,), 0, ((b"user", b"u"),), (0.0, 0), None)
    encoded = b"".join(obsolete.encodemarkers([made], False, 1))
    return key_of(encoded), encoded


def add_markers(place: str, markers: Mapping[bytes, bytes]) -> None:
    updates = [MapUpdateRequest("obsolete", MapKind.OPAQUE, [EntryChange(*each) for each in markers.items()])]
    with repository_at(place, set()) as remote:
        assert remote.push(PushRequest([], new=NewRepository(HG, KINDS_OF_HG), maps=updates)).error() is None


def markers_of(folder: Path) -> dict[bytes, bytes]:
    return dict(opened(folder).state.map("obsolete").items())


@pytest.mark.unbanned("per-item: what does not fit into a request goes in several")
@pytest.mark.parametrize("command", ["push", "pull"])
def test_a_map_that_is_not_told(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries go in requests of their own, of bounded size, and only the entries that the other side lacks."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    every = dict(marker(number) for number in range(10))
    add_markers(source, every)
    monkeypatch.setattr("smartserver.client.copy.AT_ONCE", 400)
    monkeypatch.setattr("smartserver.vcs.hg.reading.PAGE", 400)
    sent: list[int] = []
    pushes = RemoteRepository.push

    def counted(self: RemoteRepository, request: PushRequest) -> PushOutcome:
        sent.extend(len(each.entries) for each in request.maps)
        return pushes(self, request)

    monkeypatch.setattr(RemoteRepository, "push", counted)
    first = run(command, source, target)
    assert first.exception is None, first.exception
    assert first.stdout == "0 revisions, 0 refs, 10 entries of maps (a new repository)\n"
    assert markers_of(tmp_path / "target") == every
    assert sum(sent) == 10
    assert max(sent) == 4
    sent.clear()
    assert run(command, source, target).stdout == "nothing new\n"
    more = dict([marker(10)])
    monkeypatch.setattr(RemoteRepository, "push", pushes)
    add_markers(source, more)
    monkeypatch.setattr(RemoteRepository, "push", counted)
    assert run(command, source, target).stdout == "0 revisions, 0 refs, 1 entry of maps\n"
    assert markers_of(tmp_path / "target") == every | more
    assert sent == [1]


def test_what_came_is_passed_on_once() -> None:
    passed = Relay(iter([b"ab", b"cd"]), 2, 4, ProgressLine("pull", False))
    assert list(passed()) == [(b"ab", 0), (b"cd", 2)]
    with pytest.raises(SourceFailed, match=r"^its data cannot be read a second time"):
        list(passed())
    again = Relay([b"ab", b"cd"], 2, 4, ProgressLine("load", False))
    assert list(again()) == list(again()) == [(b"ab", 0), (b"cd", 2)]


def test_damage_is_of_the_side_it_came_from(source: tuple[Path, History], target: tuple[str, Path]) -> None:
    """Only the written side decodes a record, and so finds the damage."""
    folder, _ = source
    place, there = target
    pack = pack_of(folder)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 0x41
    pack.chmod(0o600)
    pack.write_bytes(content)
    for command in ("push", "pull") if place == str(there) else ("push",):
        said = why(run(command, str(folder), place))
        assert said.startswith(f"{folder}: "), said
        assert not (there / "root").exists()


def test_what_cannot_be(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, _ = source
    assert "there is no ref 'nix'; there is refs/heads/main" in why(run("push", "--ref", "nix", str(folder), "/x"))
    for command in ("push", "pull"):
        assert "by way of a folder here" in why(run(command, "hpss://h/x", "hpss://h/y"))
    assert "push to it" in why(run("pull", str(folder), "hpss://h/x"))
    assert "pull from it" in why(run("push", "hpss://h/x", str(folder)))
    assert why(run("push", str(tmp_path), "hpss://h/x")) == f"{tmp_path} is not a repository of smartserver"
    assert run("push", "a", "b", "c").exit_code == 2
    assert "no repository" in why(run("pull", str(tmp_path / "nothing"), str(tmp_path / "here")))
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("command", ["push", "pull"])
def test_what_only_a_tag_reaches_comes_along(source: tuple[Path, History], tmp_path: Path, command: str) -> None:
    folder, history = source
    tip = list(history.parents)[-1]
    side = history.line(2, tip, "side")
    ghost = bytes(20)

    def tag(transaction: Transaction) -> bytes:
        transaction.set_map("tags", "ids", MAIN + b"\0side", side[-1])
        transaction.set_map("tags", "ids", MAIN + b"\0ghost", ghost)
        return b""

    repository = PackRepository(LocalTransport(folder))
    push(repository, history, side, {b"refs/heads/side": side[-1]})
    push(repository, history, [], {b"refs/heads/side": None})
    repository.commit(os.urandom(16), 0, "tester", tag)
    assert run(command, str(folder), str(tmp_path / "copy")).exit_code == 0
    copied = opened(tmp_path / "copy")
    assert copied.ordinal(side[-1]) is not None
    assert dict(copied.state.maps["tags"].items()) == {MAIN + b"\0side": side[-1], MAIN + b"\0ghost": ghost}
    assert run(command, str(folder), str(tmp_path / "copy")).stdout == "nothing new\n"


def test_tags_and_maps_come_along(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, history = source
    there = tmp_path / "there"
    place = str(there)
    tip = list(history.parents)[-1]

    def put(where: Path, value: bytes) -> None:
        def plan(transaction: Transaction) -> bytes:
            transaction.set_map("tags", "ids", MAIN + b"\0v1", value)
            transaction.set_map("notes", "opaque", b"x", b"y")
            return b""

        PackRepository(LocalTransport(where)).commit(os.urandom(16), 0, "tester", plan)

    def maps(where: Path) -> dict[str, dict[bytes, bytes]]:
        return {name: dict(found.items()) for name, found in opened(where).state.maps.items()}

    put(folder, tip)
    assert "2 entries of maps" in run("push", str(folder), place).stdout
    assert maps(there) == {"notes": {b"x": b"y"}, "tags": {MAIN + b"\0v1": tip}}
    assert run("push", str(folder), place).stdout == "nothing new\n"
    other = next(iter(history.parents))
    put(there, other)
    done = run("push", str(folder), place)
    assert (done.exit_code, done.stdout) == (0, "nothing new\n")
    assert done.stderr == "1 entry of maps differs and was left as it is (--force replaces it)\n"
    assert run("push", "--force", str(folder), place).stdout.startswith("0 revisions, 0 refs, 1 entry of maps")
    mine = tmp_path / "mine"
    assert "2 entries of maps" in run("pull", place, str(mine)).stdout
    assert maps(mine) == maps(there) == maps(folder)
    # Of a ref that is named only what belongs to it.
    assert "1 entry of maps" in run("pull", "--ref", "main", place, str(tmp_path / "some")).stdout


OWNER = 65534
"""The owner of the served folder, where the tests run as root."""


@pytest.mark.parametrize("words", [
    ("push", "{source}", "{target}"), ("push", "{source}", "{target}-new"), ("pull", "{source}", "{target}"),
    ("config", "{target}", "head", "other"),
])  # fmt: skip
def test_root_is_the_owner_of_a_folder_before_it_writes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A server of that account could not read files that root owns."""
    source, served = tmp_path / "source", tmp_path / "served"
    stored(source)
    stored(served / "target", 1)
    for each in (served, *served.rglob("*")) if os.geteuid() == 0 else ():
        os.chown(each, OWNER, OWNER)
    owner = served.stat().st_uid
    before = {each: each.read_bytes() for each in served.rglob("*") if each.is_file()}
    became: list[int] = []

    def become(number: int) -> None:
        assert {each: each.read_bytes() for each in served.rglob("*") if each.is_file()} == before
        became.append(number)
        monkeypatch.setattr(os, "geteuid", lambda: number)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "setgroups", lambda groups: None)
    monkeypatch.setattr(os, "setgid", lambda number: None)
    monkeypatch.setattr(os, "setuid", become)
    run(*[word.format(source=source, target=served / "target") for word in words])
    assert became == [owner]
