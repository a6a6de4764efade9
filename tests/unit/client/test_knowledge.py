"""smartserver.client.knowledge: what is kept of a remote, and that losing it costs nothing but a round trip."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Raw

from smartserver.client import knowledge as client_knowledge
from smartserver.client.knowledge import DIGEST, Knowledge, KnowledgeFile, cache_folder, decode, encode
from smartserver.records.model import Tip
from smartserver.verbs.repository_open import OpenResult
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_TIPS_KNOWN
from smartserver.wire.messages import KnownVersion, State, raw

URL = "hpss://example.org:4155/project"
MAIN, TOPIC = b"refs/heads/main", b"refs/heads/topic"
HERE = b"i" * 16


def numbered(number: int) -> bytes:
    return number.to_bytes(20, "big")


def value(*numbers: int) -> Raw:
    """Tips as they travel."""
    return raw([[numbered(number)] for number in numbers])


def full(refs: dict[bytes, Raw], version: int = 1, incarnation: bytes = HERE) -> State:
    return State(incarnation, version, None, refs, vcs="git sha1", settings={"HEAD": MAIN})


def delta(refs: dict[bytes, Raw], since: int, version: int) -> State:
    return State(HERE, version, since, refs)


def tip_ids(knowledge: Knowledge) -> dict[bytes, list[bytes]]:
    return {name: [tip.id for tip in tips] for name, tips in knowledge.refs().items()}


def test_what_was_learnt_is_there_for_the_next_command(tmp_path: Path) -> None:
    Knowledge(str(tmp_path / "k"), URL).learn(full({MAIN: value(1), TOPIC: value(2, 3)}), ["Server.ping"])
    knowledge = Knowledge(str(tmp_path / "k"), URL)
    assert knowledge.met
    assert knowledge.known == KnownVersion(HERE, 1)
    assert (knowledge.vcs, knowledge.settings) == ("git sha1", {"HEAD": MAIN})
    assert tip_ids(knowledge) == {MAIN: [numbered(1)], TOPIC: [numbered(2), numbered(3)]}
    assert [path.name for path in (tmp_path / "k").iterdir()] == [Path(knowledge.path or "").name]
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o700


def test_a_delta_changes_what_it_names() -> None:
    knowledge = Knowledge(None, URL)
    knowledge.learn(full({MAIN: value(1), TOPIC: value(2)}))
    knowledge.learn(delta({MAIN: value(4), TOPIC: raw(None), b"refs/tags/absent": raw(None)}, 1, 2))
    assert tip_ids(knowledge) == {MAIN: [numbered(4)]}
    assert knowledge.known == KnownVersion(HERE, 2)
    assert (knowledge.vcs, knowledge.settings) == ("git sha1", {"HEAD": MAIN})
    assert knowledge.tips() == [numbered(4), numbered(1), numbered(2)]


def test_the_ring_keeps_the_newest_each_once() -> None:
    knowledge = Knowledge(None, URL)
    for number in range(MAX_TIPS_KNOWN + 10):
        knowledge.learn(full({MAIN: value(number)}, number + 1))
    newest = [numbered(number) for number in reversed(range(10, MAX_TIPS_KNOWN + 10))]
    assert knowledge.tips() == newest
    knowledge.learn(full({MAIN: value(20)}, 1000))
    assert knowledge.tips()[0] == numbered(20)
    assert sorted(knowledge.tips()) == sorted(newest)


def test_more_tips_than_a_repository_has_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_knowledge, "MAX_ENTRIES", 3)
    knowledge = Knowledge(None, URL)
    knowledge.learn(full({b"a": value(1, 2), b"b": value(3)}))
    with pytest.raises(RemoteProtocolError, match="expected at most 3 tips of refs, got 4"):
        knowledge.learn(full({b"a": value(1, 2), b"b": value(3, 4)}, 2))
    assert tip_ids(knowledge) == {b"a": [numbered(1), numbered(2)], b"b": [numbered(3)]}


def test_refs_are_not_kept_in_the_answer_too() -> None:
    answer = full({MAIN: value(1), TOPIC: value(2)})
    knowledge = Knowledge(None, URL)
    knowledge.learn(answer)
    assert answer.refs == {}
    assert tip_ids(knowledge) == {MAIN: [numbered(1)], TOPIC: [numbered(2)]}


NO_TIPS = [[], [[]], [[3]], [["text"]], [[b"id", 4]], [None], [[], []], [[[]]], [[None]], "text", b"id", 3, {}]


@pytest.mark.parametrize(
    ("refs", "maps", "why"),
    [
        *[({TOPIC: raw(wrong)}, {}, r"expected tips of b'refs/heads/topic'") for wrong in NO_TIPS],
        ({}, {"tags": raw({b"a": 1})}, "expected entries of a map"),
    ],
)
def test_refs_without_a_tip_and_maps_that_are_none_are_refused_and_change_nothing(
    tmp_path: Path, refs: dict[bytes, Raw], maps: dict[str, Raw], why: str
) -> None:
    knowledge = Knowledge(str(tmp_path), URL)
    knowledge.learn(full({MAIN: value(1)}))
    before = Path(knowledge.path or "").read_bytes()
    with pytest.raises(RemoteProtocolError, match=why):
        knowledge.learn(State(HERE, 2, 1, {MAIN: raw(None), **refs}, maps))
    assert knowledge.known == KnownVersion(HERE, 1)
    assert tip_ids(knowledge) == {MAIN: [numbered(1)]}
    assert knowledge.maps() == []
    assert Path(knowledge.path or "").read_bytes() == before


def test_an_answer_that_says_nothing_new_writes_nothing(tmp_path: Path) -> None:
    knowledge = Knowledge(str(tmp_path), URL)
    knowledge.learn(full({MAIN: value(1)}))
    Path(knowledge.path or "").unlink()
    knowledge.learn(delta({}, 1, 1))
    assert list(tmp_path.iterdir()) == []
    knowledge.learn(delta({}, 1, 2))
    assert Knowledge(str(tmp_path), URL).known == KnownVersion(HERE, 2)


def test_every_flipped_bit_and_every_cut_and_another_remote_or_release_is_noticed() -> None:
    content = encode(KnowledgeFile(URL, HERE, 3, "git sha1", {"HEAD": MAIN}))
    assert decode(content, URL).version == 3
    for at in range(len(content)):
        assert decode(content[:at], URL) == KnowledgeFile(URL)
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        assert decode(bytes(damaged), URL) == KnowledgeFile(URL)
    assert decode(b"\0" * DIGEST + content[DIGEST:], URL) == KnowledgeFile(URL)
    assert decode(encode(KnowledgeFile("hpss://elsewhere:4155/a", HERE, 3)), URL) == KnowledgeFile(URL)


# -- a URL that may lead below a repository

HOST = "hpss://example.org:4155/"


def below(tmp_path: Path | None, path: str) -> Knowledge:
    return Knowledge(str(tmp_path) if tmp_path else None, HOST + path, path)


def opened(at: str, branch: bytes = b"trunk", inner: str = "") -> OpenResult:
    return OpenResult(at, "", "bzr 2a", branch, inner)


def test_two_branches_of_a_repository_share_what_is_known_of_it(tmp_path: Path) -> None:
    first = below(tmp_path, "project/trunk")
    assert (first.at, first.named, first.path) == (None, None, None)
    first.learn(full({b"trunk": value(1)}), ["x"], opened("project", inner="a"))
    assert (first.at, first.named, first.branch, first.inner) == ("project", b"trunk", b"trunk", "a")
    second = below(tmp_path, "project/team/fix")
    assert (second.at, second.named, second.branch) == ("project", b"team/fix", b"")
    assert second.known == KnownVersion(HERE, 1)
    assert second.tips() == [numbered(1)]
    # As does who names the repository itself.
    assert Knowledge(str(tmp_path), HOST + "project").known == KnownVersion(HERE, 1)
    assert below(tmp_path, "project").named == b"."
    assert below(tmp_path, "project2").at is None


def test_another_branch_of_a_repository_is_known_by_what_was_answered_not_by_an_older_file(tmp_path: Path) -> None:
    below(tmp_path, "project/trunk").learn(full({b"trunk": value(1), b"fix": value(1)}), ["x"], opened("project"))
    first = below(tmp_path, "project/trunk")
    assert first.path is not None
    old = Path(first.path).read_bytes()
    first.learn(full({b"trunk": value(2), b"fix": value(3)}, 2), ["x"], opened("project"))
    Path(first.path).write_bytes(old)  # As where the disk was full.
    second = first.beside("project/fix")
    assert (second.at, second.named, second.known) == ("project", b"fix", KnownVersion(HERE, 2))
    assert second.ref(b"fix") == (Tip(numbered(3), b""),)
    assert first.beside("project2/fix").at is None
    below(tmp_path, "project/sub/trunk").learn(full({b"trunk": value(9)}), ["x"], opened("project/sub"))
    assert first.beside("project/sub/trunk").at == "project/sub", "another repository lies on the way"
    nowhere = below(None, "trunk")
    assert nowhere.beside("fix").at is None
    nowhere.learn(full({b"trunk": value(1), b"fix": value(2)}), ["x"], opened(""))
    assert nowhere.beside("fix").ref(b"fix") == (Tip(numbered(2), b""),)


def test_a_longer_prefix_comes_first_and_a_wrong_one_goes(tmp_path: Path) -> None:
    below(tmp_path, "a/trunk").learn(full({}), [], opened("a"))
    longer = below(tmp_path, "a/trunk")
    longer.learn(full({}, 3, b"j" * 16), [], opened("a/trunk", b"."))
    assert (longer.at, longer.named) == ("a/trunk", b".")
    assert below(tmp_path, "a/trunk").known == KnownVersion(b"j" * 16, 3)
    assert below(tmp_path, "a/other").known == KnownVersion(HERE, 1)
    # The longer one is gone, and its place is a branch of the other now.
    again = below(tmp_path, "a/trunk")
    again.learn(full({b"trunk": value(4)}, 5), [], opened("a"))
    assert (again.at, again.known) == ("a", KnownVersion(HERE, 5))
    assert below(tmp_path, "a/trunk").at == "a"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_refusal_tells_is_kept_when_an_answer_says_where_it_is(tmp_path: Path) -> None:
    knowledge = below(tmp_path, "a/trunk")
    knowledge.learn(full({b"trunk": value(1)}, 3))
    assert (knowledge.at, knowledge.known) == (None, KnownVersion(HERE, 3))
    assert list(tmp_path.iterdir()) == []
    knowledge.learn(delta({b"fix": value(2)}, 3, 4), [], opened("a"))
    assert below(tmp_path, "a/b").tips() == [numbered(1), numbered(2)]
    assert tip_ids(knowledge) == {b"trunk": [numbered(1)], b"fix": [numbered(2)]}


def test_a_refusal_of_another_repository_is_not_kept_as_that_of_this_one(tmp_path: Path) -> None:
    below(tmp_path, "a/trunk").learn(full({b"trunk": value(1)}), [], opened("a"))
    knowledge = below(tmp_path, "a/trunk")
    knowledge.learn(full({b"trunk": value(2)}, 1, b"j" * 16))
    assert (knowledge.at, knowledge.known) == (None, KnownVersion(b"j" * 16, 1))
    assert below(tmp_path, "a/trunk").known == KnownVersion(HERE, 1)


# -- maps


def test_maps_are_kept_and_changed_by_what_an_answer_names(tmp_path: Path) -> None:
    knowledge = Knowledge(str(tmp_path), URL)
    first = State(HERE, 1, None, {}, {"tags": raw({b"a\0v1": b"1", b"a\0v2": b"2", b"ab\0v1": b"3"})}, vcs="x")
    knowledge.learn(first)
    knowledge.learn(State(HERE, 2, 1, {}, {"tags": raw({b"a\0v1": None, b"k": b"4"}), "config": raw({b"a\0": b"c"})}))
    for each in (knowledge, Knowledge(str(tmp_path), URL)):
        assert each.map("tags") == {b"a\0v2": b"2", b"ab\0v1": b"3", b"k": b"4"}
        assert each.map("tags", b"a") == {b"v2": b"2"}
        assert each.map("config", b"a") == {b"": b"c"}
    knowledge.learn(State(HERE, 3, None, {}, {"config": raw({})}))
    assert knowledge.map("tags") == knowledge.map("config") == {}


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/smartserver/remotes"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/smartserver/remotes"),
        ({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/smartserver/remotes"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/smartserver/remotes"),
        ({"XDG_CACHE_HOME": "relative"}, None),
        ({"HOME": ""}, None),
        ({}, None),
    ],
)
def test_cache_folder(environment: dict[str, str], folder: str | None) -> None:
    assert cache_folder(environment) == folder
