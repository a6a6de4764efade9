"""cli.push, cli.pull, cli.copying, client.copy: one repository of ours copied into another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import MAIN, History, push
from cli_runs import OTHER, flip, grow, opened, pack_of, refs, repository, run, stored, stored_bzr, why
from mercurial import obsolete

from smartserver.cli.copying import _parts, repository_at
from smartserver.cli.progress import ProgressLine
from smartserver.client import link
from smartserver.client.body import Relay, SourceFailed
from smartserver.client.exchange import PullAnswer
from smartserver.client.medium import ConnectionLost
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome
from smartserver.server.same_process import SameProcess
from smartserver.store.transaction import Transaction
from smartserver.vcs.hg.kinds import KINDS as KINDS_OF_HG
from smartserver.vcs.hg.markers import key_of
from smartserver.vcs.hg.system import HG
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest


def test_what_is_missing_is_brought_and_nothing_twice(source: tuple[Path, History], target: tuple[str, Path]) -> None:
    folder, history = source
    place, there = target
    first = run("push", folder, place)
    assert (first.exit_code, first.stderr) == (0, ""), first.exception
    assert first.stdout.splitlines()[0].startswith("5 revisions, 1 ref")
    assert refs(there) == refs(folder)
    grow(folder, history, 1, ref=OTHER)
    grow(folder, history, 1)
    named = run("push", "--ref", "other", folder, place)
    assert named.stdout == "1 revision, 1 ref\n    refs/heads/other\n"
    assert run("push", folder, place).stdout == "1 revision, 1 ref\n    refs/heads/main\n"
    assert refs(there) == refs(folder)
    assert run("push", folder, place).stdout == "nothing new\n"
    assert run("verify", there).stdout.endswith(": all well\n")


def test_what_diverged_needs_force(source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path) -> None:
    """Of what is refused nothing is counted."""
    folder, history = source
    place, there = target
    assert run("push", folder, place).exit_code == 0
    root = next(iter(history.parents))
    line = history.line(2, root)
    apart = tmp_path / "apart"
    push(repository(apart), history, [root, *line], {MAIN: line[-1], OTHER: line[0]})
    for stdout in ("1 revision, 1 ref\n    refs/heads/other\n", ""):
        refused = run("push", apart, place)
        assert why(refused).startswith("refs/heads/main: ")
        assert refused.stdout == stdout
        assert refs(there) == {**refs(folder), OTHER: line[0]}
    assert run("push", "--force", apart, place).exit_code == 0
    assert refs(there) == refs(apart)
    assert why(run("pull", place, folder)).startswith("refs/heads/main: ")
    assert refs(folder)[MAIN] != line[-1]
    assert run("pull", "--force", place, folder).exit_code == 0
    assert refs(folder) == refs(apart)


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
    assert run("push", folder, around).exit_code == 0
    (around / "packs" / "a" / ".b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(around / "packs")
    monkeypatch.chdir(around / "packs")
    for below in ("packs/n", "packs/a/n", "packs/a/.b/n", "packs/c/d/n", "tables/n"):
        there = around / below
        said = why(run("push", folder, there.as_uri() if as_store else there))
        assert f"{around} is a repository: name a place outside it" in said
        assert not there.exists()
    for way in ("n", tmp_path / "link" / "n"):
        assert f"{around} is a repository" in why(run("push", folder, way))
    assert run("delete", "--yes", around).exit_code == 0
    assert run("push", folder, around / "packs" / "a" / "n").exit_code == 0


def test_what_is_missing_on_the_way_is_made(source: tuple[Path, History], target: tuple[str, Path]) -> None:
    """Missing folders of the path are created, as for a push of git."""
    folder, _ = source
    place, there = target
    assert run("push", folder, f"{place}/new/deep/project").exit_code == 0
    assert refs(there / "new" / "deep" / "project") == refs(folder)


def test_what_a_server_would_log_is_not_said_besides(source: tuple[Path, History]) -> None:
    words = [sys.executable, "-m", "smartserver.cli.main", "push", str(source[0]), "/absent/code/project"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "smartserver: /absent/code/project: /absent does not exist\n"


@pytest.mark.parametrize(
    ("place", "meant"),
    [
        ("me@host:srv/x", "sftp://me@host/~/srv/x for a folder of me@host"),
        ("host:/srv/x", "sftp://host/srv/x for a folder of host"),
        ("~/x", "/home/me/x for one below a home"),
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
        said = why(run(command, folder, place))
        assert said.startswith(f"{place} does not exist: use {meant}, ./{place} for one "), said
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / place.partition("/")[0]).mkdir()
    assert run("push", folder, place).exit_code == 0
    assert refs(tmp_path / place) == refs(folder)


def test_another_kind_is_refused_by_name(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path
) -> None:
    """The error does not report damage that would come from reading the repository as the other kind."""
    folder, _ = source
    place, there = target
    bazaar = stored_bzr(tmp_path / "bazaar")
    assert run("push", bazaar, place).exit_code == 0
    before = refs(there)
    said = why(run("push", folder, place))
    assert said.endswith("is bzr 2a, not git sha1")
    kinds = f"{place} is a repository of bzr 2a, {folder} one of git sha1"
    assert why(run("pull", place, folder)) == f"{kinds}: only one of the same kind can be copied into it"
    kinds = f"{folder} is a repository of git sha1, {bazaar} one of bzr 2a"
    assert why(run("pull", folder, bazaar)) == f"{kinds}: only one of the same kind can be copied into it"
    assert refs(there) == before


def test_what_is_done_is_shown_and_banned_wherever_it_is_done(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = source
    place, there = target
    mine = tmp_path / "mine"
    assert "no such rule: 'nonsense'" in run("-Dhpss-ban=nonsense", "push", folder, place).output
    assert "rpc:*" in why(run("-Dhpss-ban=rpc:*", "push", folder, place))
    assert not there.exists()
    assert "Repository.insert_pack" in run("-Dhpss", "push", folder, place).stderr
    assert "rpc:*" in why(run("-Dhpss-ban=rpc:*", "pull", place, mine))
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpss")
    assert "Repository.insert_pack" in run("pull", place, mine).stderr


def test_a_source_that_is_lost_half_way_is_not_taken_for_the_target(
    source: tuple[Path, History], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RECEIVE_CHUNK", 16)  # So that the answer does not come with all of its body.
    read, pulls = SameProcess.read, RemoteRepository.pull
    readers: list[SameProcess] = []
    left: dict[SameProcess, int] = {}

    def reading(medium: SameProcess, size: int) -> bytes:
        readers.append(medium)
        most = left.get(medium, size)
        if most <= 0:
            raise ConnectionLost("somebody pulled the plug")
        got = read(medium, min(size, most))
        if medium in left:
            left[medium] -= len(got)
        return got

    def then_break(*arguments: Any, **options: Any) -> PullAnswer:
        pulled = pulls(*arguments, **options)
        left[readers[-1]] = 100
        return pulled

    monkeypatch.setattr(SameProcess, "read", reading)
    monkeypatch.setattr(RemoteRepository, "pull", then_break)
    lost = "the connection to the server broke (somebody pulled the plug)"
    assert why(run("pull", source[0], tmp_path / "mine")) == f"{source[0]}: {lost}"
    assert len(set(readers)) == 2  # The source is not asked again.
    assert not (tmp_path / "mine" / "format").exists()


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
    assert sent == []
    more = dict([marker(10)])
    add_markers(source, more)
    sent.clear()
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
    flip(pack, pack.stat().st_size // 2)
    for command in ("push", "pull") if place == str(there) else ("push",):
        said = why(run(command, folder, place))
        assert said.startswith(f"{folder}: "), said
        assert not repository(there).exists()


def test_what_cannot_be(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, _ = source
    assert "the source has no branch or tag 'nix'; it has refs/heads/main" in why(
        run("push", "--ref", "nix", folder, "/x")
    )
    for command in ("push", "pull"):
        assert "through a local folder" in why(run(command, "hpss://h/x", "hpss://h/y"))
    assert "cannot copy into: run `smartserver push" in why(run("pull", folder, "hpss://h/x"))
    assert "cannot copy from: run `smartserver pull" in why(run("push", "hpss://h/x", folder))
    assert why(run("push", tmp_path, "hpss://h/x")) == f"{tmp_path} is not a repository of smartserver"
    assert run("push", "a", "b", "c").exit_code == 2
    assert "no repository" in why(run("pull", tmp_path / "nothing", tmp_path / "here"))
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("command", ["push", "pull"])
def test_what_only_a_tag_reaches_comes_along(source: tuple[Path, History], tmp_path: Path, command: str) -> None:
    folder, history = source
    tip = list(history.parents)[-1]
    side = history.line(2, tip, "side")
    ghost = bytes(20)

    def tag(transaction: Transaction) -> None:
        transaction.set_map("tags", "ids", MAIN + b"\0side", side[-1])
        transaction.set_map("tags", "ids", MAIN + b"\0ghost", ghost)

    push(repository(folder), history, side, {OTHER: side[-1]})
    push(repository(folder), history, [], {OTHER: None}, first=tag)
    assert run(command, folder, tmp_path / "copy").exit_code == 0
    copied = opened(tmp_path / "copy")
    assert copied.ordinal(side[-1]) is not None
    assert dict(copied.state.maps["tags"].items()) == {MAIN + b"\0side": side[-1], MAIN + b"\0ghost": ghost}
    assert run(command, folder, tmp_path / "copy").stdout == "nothing new\n"


def test_tags_and_maps_come_along(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, history = source
    there = tmp_path / "there"
    place = str(there)
    tip = list(history.parents)[-1]

    def put(where: Path, value: bytes) -> None:
        def entries(transaction: Transaction) -> None:
            transaction.set_map("tags", "ids", MAIN + b"\0v1", value)
            transaction.set_map("notes", "opaque", b"x", b"y")

        push(repository(where), history, [], first=entries)

    def maps(where: Path) -> dict[str, dict[bytes, bytes]]:
        return {name: dict(found.items()) for name, found in opened(where).state.maps.items()}

    put(folder, tip)
    assert "2 entries of maps" in run("push", folder, place).stdout
    assert maps(there) == {"notes": {b"x": b"y"}, "tags": {MAIN + b"\0v1": tip}}
    assert run("push", folder, place).stdout == "nothing new\n"
    other = next(iter(history.parents))
    put(there, other)
    done = run("push", folder, place)
    assert (done.exit_code, done.stdout) == (0, "nothing new\n")
    assert done.stderr == "1 entry of maps differs and was left as it is (--force replaces it)\n"
    assert run("push", "--force", folder, place).stdout.startswith("0 revisions, 0 refs, 1 entry of maps")
    mine = tmp_path / "mine"
    assert "2 entries of maps" in run("pull", place, mine).stdout
    assert maps(mine) == maps(there) == maps(folder)
    # Of a ref that is named only what belongs to it.
    assert "1 entry of maps" in run("pull", "--ref", "main", place, tmp_path / "some").stdout


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
