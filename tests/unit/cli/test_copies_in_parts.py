"""client.copy, client.load: more refs than one request may hold are copied, and nobody sees a part of them; a dump that
is longer than a part is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from builders import MAIN, History, push
from cli_runs import grow, opened, refs, repository, run, stored, why

from smartserver.cli.copying import repository_at
from smartserver.client import body, copy, load
from smartserver.client.copy import CopySource
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import ConnectionLost
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import PushOutcome, call_of
from smartserver.errors import IncompleteRepository
from smartserver.records.model import Tip
from smartserver.store.model import INCOMPLETE
from smartserver.verbs.map_update import MapKind, map_update
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from smartserver.verbs.repository_create import CopyPart
from smartserver.verbs.repository_stats import StatsRequest, repository_stats
from smartserver.wire.limits import MAX_CALLS, MAX_REQUEST
from smartserver.wire.messages import Call, Request, State, encode, raw

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
