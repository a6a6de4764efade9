"""cli.push, cli.pull, cli.copying, client.copy, client.load: one repository of ours copied into another, also with more
refs than one request may hold, of which nobody sees a part; a dump that is longer than a part is loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from builders import MAIN, History, push
from cli_runs import OTHER, flip, grow, opened, pack_of, refs, repository, run, stored, stored_bzr, why
from mercurial import obsolete

from smartserver.cli.copying import _parts, repository_at
from smartserver.cli.progress import ProgressLine
from smartserver.client import body, copy, link, load
from smartserver.client.body import Relay, SourceFailed
from smartserver.client.copy import CopySource
from smartserver.client.exchange import PullAnswer
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import ConnectionLost
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, PushOutcome, call_of
from smartserver.errors import IncompleteRepository
from smartserver.records.model import Tip
from smartserver.server.same_process import SameProcess
from smartserver.store.model import INCOMPLETE
from smartserver.store.transaction import Transaction
from smartserver.vcs.hg.kinds import KINDS as KINDS_OF_HG
from smartserver.vcs.hg.markers import key_of
from smartserver.vcs.hg.system import HG
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest, map_update
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from smartserver.verbs.repository_create import CopyPart
from smartserver.verbs.repository_stats import StatsRequest, repository_stats
from smartserver.wire.limits import MAX_CALLS, MAX_REQUEST
from smartserver.wire.messages import Call, Request, State, encode, raw


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


REFS = 20

Copied = tuple[Path, list[str], Path]
"""A repository, the command that copies it, and where to."""


@pytest.fixture(params=["push", "pull", "load"])
def copied(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """A repository of as many refs as four requests hold."""
    monkeypatch.setattr(copy, "CALLS_AT_ONCE", REFS // 4)
    source, target = tmp_path / "source", tmp_path / "target"
    first = next(iter(stored(source, 3).parents))
    push(repository(source), History(), [], {b"refs/heads/%d" % number: first for number in range(REFS - 1)})
    if request.param == "load":
        assert run("dump", str(source), str(tmp_path / "dumped")).exit_code == 0
        return source, ["load", str(tmp_path / "dumped"), str(target)], target
    return source, [request.param, str(source), str(target)], target


def counted(monkeypatch: pytest.MonkeyPatch, sent: Callable[[int], object] = lambda number: None) -> list[CopyPart]:
    """The part of each request of a copy; `sent` is told its number before it is sent."""
    parts: list[CopyPart] = []
    inner = RemoteRepository.push

    def counting(remote: RemoteRepository, request: PushRequest) -> PushOutcome:
        if not request.check_only:
            parts.append(request.new.part if request.new else CopyPart.WHOLE)
            sent(len(parts))
        return inner(remote, request)

    monkeypatch.setattr(RemoteRepository, "push", counting)
    return parts


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int, *command: str) -> None:
    """Run a copy whose connection is lost before the request of this number."""

    def lost(number: int) -> None:
        if number == at:
            raise ConnectionLost("the link is lost")

    with monkeypatch.context() as patch:
        counted(patch, lost)
        assert "the link is lost" in why(run(*command))


def test_all_refs_are_copied(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    source, command, target = copied
    parts = counted(monkeypatch)
    done = run(*command)
    assert (done.exit_code, done.exception) == (0, None)
    assert refs(target) == refs(source)
    assert INCOMPLETE not in opened(target).state.settings
    assert parts == [CopyPart.MORE, CopyPart.MORE, CopyPart.MORE, CopyPart.LAST]
    assert run(*command).stdout == "nothing new\n"


def test_nobody_sees_learns_or_copies_a_part_and_a_copy_goes_on(
    copied: Copied, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, command, target = copied
    interrupt(monkeypatch, 3, *command)
    assert "is incomplete: a copy into it was interrupted" in why(run("log", target))
    assert run("verify", str(target)).exit_code == 0
    with repository_at(str(target), set()) as remote:
        with pytest.raises(IncompleteRepository):
            remote.learn_refs()
        remote.ask((repository_stats, StatsRequest()))
        remote.ask((repository_configure, ConfigureRequest({"HEAD": MAIN})))
        assert not remote.knowledge.met
    listed = run("list", "--refs", str(target)).stdout
    assert "is incomplete" in listed
    assert "refs/heads" not in listed
    with monkeypatch.context() as patch:
        patch.setattr(copy, "CALLS_AT_ONCE", REFS + 1)
        assert "is incomplete" in why(run("push", target, tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    done = run(*command)
    assert (done.exit_code, done.exception) == (0, None)
    assert refs(target) == refs(source)
    assert run("log", str(target)).exit_code == 0


@pytest.mark.parametrize("threshold", [1, 1 << 20], ids=["the graph first", "at once"])
@pytest.mark.parametrize("stop", [2, 4])
def test_a_long_load_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, threshold: int) -> None:
    """It is interrupted between parts of the revisions, and of the refs. A part that is there is not stored twice."""
    monkeypatch.setattr(copy, "CALLS_AT_ONCE", REFS // 4)
    monkeypatch.setattr(load, "PART", 3000)
    monkeypatch.setattr(body, "GRAPH_FIRST_THRESHOLD", threshold)
    source, target, dumped = tmp_path / "source", tmp_path / "target", tmp_path / "dumped"
    first = next(iter(stored(source, 20).parents))
    push(repository(source), History(), [], {b"refs/heads/%d" % number: first for number in range(9)})
    assert run("dump", str(source), str(dumped)).exit_code == 0
    interrupt(monkeypatch, stop, "load", str(dumped), str(target))
    done = run("load", str(dumped), str(target))
    assert (done.exit_code, done.exception) == (0, None)
    assert refs(target) == refs(source)
    assert INCOMPLETE not in opened(target).state.settings
    assert opened(target).graph.count == 20


def test_a_repository_that_is_there_stays_visible(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    source, command, target = copied
    history = stored(target, 3)
    assert refs(target) == {MAIN: list(history.parents)[-1]}
    seen: list[int] = []
    counted(monkeypatch, lambda number: seen.append(run("log", str(target)).exit_code))
    assert run(*command).exit_code == 0
    assert refs(target) == refs(source)
    assert set(seen) == {0}


@pytest.mark.parametrize("refused", [1, 2])
@pytest.mark.parametrize("command", ["push", "pull", "load"])
def test_a_refused_ref_keeps_back_none_of_a_later_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, refused: int
) -> None:
    """The copy goes into a repository that exists. One of the two refs of the first request has diverged there, or
    both."""
    monkeypatch.setattr(copy, "CALLS_AT_ONCE", 2)
    source, target, dumped = tmp_path / "source", tmp_path / "target", tmp_path / "dumped"
    history = stored(target, 1)
    (root,) = history.parents
    theirs, *ours = (history.commit({name: b"x"}, [root]) for name in ("theirs", "first", "second", "third"))
    names = [b"refs/heads/a", b"refs/heads/b", b"refs/heads/c"]
    before = dict(zip(names, [theirs] * refused + [root] * (3 - refused), strict=True))
    push(repository(target), history, [theirs], before)
    push(repository(source), history, [root, *ours], dict(zip(names, ours, strict=True)))
    if command == "load":
        assert run("dump", str(source), str(dumped)).exit_code == 0
    done = run(command, str(dumped if command == "load" else source), str(target))
    assert f"3 revisions, {3 - refused} ref" in done.output
    assert "refs/heads/a" in str(done.exception)
    assert refs(target) == {MAIN: root} | before | dict(zip(names[refused:], ours[refused:], strict=True))


def test_what_is_public_is_told_before_the_refs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository that publishes, copied into one that does not."""
    monkeypatch.setattr(copy, "CALLS_AT_ONCE", 2)
    there = Knowledge(None, "hpss://there/x")
    there.learn(State(bytes(16), 1, None, {}, vcs="hg sha1", settings={"publishing": b"no"}))
    tips = [bytes([number]) * 20 for number in range(4)]
    copied = CopySource("hg sha1", {}, {b"branch %d" % tip[0]: (Tip(tip),) for tip in tips}, {})
    (_, (public,)), *later = copied.requests(there, force=False)
    assert [(each.key, each.value) for each in public.entries] == [(tip.hex().encode(), b"1") for tip in tips]
    assert [len(maps) for _, maps in later] == [0, 0]


@pytest.mark.parametrize("name", [b"refs/heads/%d", b"refs/heads/%0400d"], ids=["many", "long names"])
def test_each_request_is_within_the_limits_of_the_wire(name: bytes) -> None:
    """For the refs of a repository that two pushes have made."""
    refs = {name % number: (Tip(number.to_bytes(20, "big")),) for number in range(70_000)}
    tags = {ref + b"\0v1": value[0].id for ref, value in islice(refs.items(), 30_000)}
    copied = CopySource("bzr 2a", {}, refs, {"tags": (MapKind.IDS, tags)})
    requests = copied.requests(Knowledge(None, "hpss://there/x"), force=False)
    assert sum(len(updates) for updates, _ in requests) == len(refs)
    assert sum(len(update.entries) for _, maps in requests for update in maps) == len(tags)
    for updates, maps in requests:
        asked = [*map(call_of, updates), *[(map_update, update) for update in maps]]
        calls = [Call(verb.name, raw(arguments)) for verb, arguments in asked]
        message = Request("project", bytes(16), 0, [*calls, *calls[:3]])
        assert len(message.calls) <= MAX_CALLS
        assert len(encode(message)) < MAX_REQUEST


@pytest.mark.unbanned("resend: the target lost what it had")
def test_a_long_dump_for_a_target_that_was_restored(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client remembers tips that are gone."""
    folder, history = source
    there, where = target
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(load, "PART", 1000)
    assert run("dump", str(folder), str(tmp_path / "monday")).exit_code == 0
    assert run("load", str(tmp_path / "monday"), there).exit_code == 0
    shutil.copytree(where, tmp_path / "backup")
    grow(folder, history, 6)
    assert run("dump", str(folder), str(tmp_path / "tuesday")).exit_code == 0
    for _ in range(2):
        done = run("load", str(tmp_path / "tuesday"), there)
        assert done.stdout == "6 revisions, 1 ref\n    refs/heads/main\n", done.exception
        assert refs(where) == refs(folder)
        shutil.rmtree(where)
        shutil.copytree(tmp_path / "backup", where)


def test_a_long_dump_is_not_sent_where_all_refs_are_refused(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, history = source
    there, where = target
    assert run("dump", str(folder), str(tmp_path / "monday")).exit_code == 0
    assert run("load", str(tmp_path / "monday"), there).exit_code == 0
    monkeypatch.setattr(load, "PART", 1000)
    (diverged,) = history.line(1, refs(folder)[MAIN], "elsewhere")
    push(repository(where), history, [diverged], {MAIN: diverged})
    grow(folder, history, 6, refs(folder)[MAIN])
    assert run("dump", str(folder), str(tmp_path / "tuesday")).exit_code == 0
    result = run("load", str(tmp_path / "tuesday"), there)
    assert "'refs/heads/main' has diverged" in why(result)
    assert refs(where) == {MAIN: diverged}
    assert opened(where).graph.count == 6
    assert run("load", "--force", str(tmp_path / "tuesday"), there).stdout.startswith("6 revisions, 1 ref\n")
    assert refs(where) == refs(folder)
