"""vcs.git.reading, vcs.git.shallow: fetches of a part of the commits or of their objects; the file of the cut.

vcs.git.content, vcs.git.names: names of revisions, trees with all there may be in them, headers of odd commits."""

from __future__ import annotations

import codecs
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import KINDS, History, push
from calls import calls_of
from charging import Charged
from memory_transport import MemoryTransport
from traced_memory import traced
from trips import Trips

from smartserver.errors import Cancelled, LimitExceeded, MissingRevision, NoSuchPart, Unsupported
from smartserver.records import browse
from smartserver.records.browse import ChangedPath, Node, NodeType
from smartserver.records.bulk import read_bulk
from smartserver.records.delta import decompress
from smartserver.records.model import Key, Record, RefValue, RevisionId, Tip
from smartserver.records.segment import SegmentStream, decode_segment, frames
from smartserver.store.model import ContentPlan
from smartserver.store.repository import PackRepository
from smartserver.vcs.git.content import GitContents, find_by_prefix
from smartserver.vcs.git.format import BLOB, COMMIT, FORMATS, TAG, TREE
from smartserver.vcs.git.selector import (
    BLOBS,
    FETCH,
    MAX_DEPTH,
    MAX_EXCLUDED,
    MAX_FILTERS,
    MAX_SHALLOW,
    TREES,
    FetchSelector,
    decode,
    decode_cut,
    encode,
)
from smartserver.vcs.git.shallow import ShallowChange, ShallowFileError, read
from smartserver.vcs.git.system import GIT, git_key

E = b"A <a@example.org> 5 +0130"


class Sample(Charged):
    """Objects, refs and settings, and what reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.named: dict[bytes, RevisionId] = {}
        self.settings: dict[str, bytes] = {}
        self.contents = GitContents(self, FORMATS["sha1"])

    def refs(self) -> Mapping[bytes, RefValue]:
        last = {b"refs/other/last": self.order[-1]} if self.order else {}
        return {name: (Tip(tip),) for name, tip in {**self.named, **last}.items()}

    def setting(self, name: str) -> bytes | None:
        return self.settings.get(name)

    def add(self, meta: bytes, text: bytes) -> Key:
        key = git_key("git-sha1", meta, text)
        self.records[0, key] = Record(0, key, meta, text)
        return key

    def _revision(self, meta: bytes, text: bytes) -> RevisionId:
        self.order.append(self.add(meta, text))
        return self.order[-1]

    def tree(self, *entries: tuple[bytes, bytes, bytes]) -> bytes:
        return self.add(TREE, b"".join(b"%b %b\0%b" % entry for entry in entries))

    def blob(self, text: bytes) -> bytes:
        return self.add(BLOB, text)

    def commit(
        self, tree: bytes, parents: Iterable[bytes] = (), author: bytes = E, rest: bytes = b"\n\nwhat\n"
    ) -> bytes:
        lines = b"".join(b"parent %b\n" % parent.hex().encode() for parent in parents)
        text = b"tree %b\n%bauthor %b\ncommitter C <c@example.org> 9 -0800%b"
        return self._revision(COMMIT, text % (tree.hex().encode(), lines, author, rest))

    def tag(self, target: bytes, kind: bytes = b"commit") -> bytes:
        text = b"object %b\ntype %b\ntag v1\ntagger A <a@example.org> 1 +0000\n\nA tag.\n"
        return self._revision(TAG, text % (target.hex().encode(), kind))


@pytest.fixture
def sample() -> Sample:
    return Sample()


@pytest.fixture
def whole(sample: Sample) -> bytes:
    """A commit with a node of each type."""
    inner = sample.tree((b"100644", b"file", sample.blob(b"inner\n")))
    tree = sample.tree(
        (b"100755", b"run", sample.blob(b"#!\n")),
        (b"120000", b"link", sample.blob(b"a/file")),
        (b"100664", b"old", sample.blob(b"")),
        (b"40000", b"a", inner),
        (b"160000", b"sub", b"\x11" * 20),
    )
    return sample.commit(tree)


def names(nodes: Iterable[Node]) -> Mapping[bytes, NodeType]:
    return {node.path: node.type for node in nodes}


def test_the_tree_of_a_tag_and_of_a_tree(sample: Sample, whole: bytes) -> None:
    tag = sample.tag(sample.tag(whole), b"tag")
    assert names(sample.contents.nodes(tag, b"", deep=True)) == names(sample.contents.nodes(whole, b"", deep=True))
    tree = sample.tree((b"100644", b"x", sample.blob(b"")))
    assert list(names(sample.contents.nodes(sample.tag(tree, b"tree"), b"", deep=True))) == [b"", b"x"]
    with pytest.raises(NoSuchPart, match="is a file, not a tree"):
        list(sample.contents.nodes(sample.tag(sample.blob(b"x"), b"blob"), b"", deep=True))


def test_what_is_missing_is_damage(sample: Sample) -> None:
    commit = sample.commit(sample.tree((b"40000", b"gone", b"\x22" * 20)))
    with pytest.raises(ValueError, match="22222222 is missing"):
        list(sample.contents.nodes(commit, b"", deep=True))
    with pytest.raises(MissingRevision):
        sample.contents.header(b"\x33" * 20)


def test_names_in_the_order_of_git(sample: Sample, whole: bytes) -> None:
    other, tagged = sample.commit(sample.tree()), sample.tag(whole)
    sample.named = {b"refs/heads/main": whole, b"refs/heads/both": whole, b"refs/tags/both": tagged}
    sample.settings["HEAD"] = b"refs/heads/main"
    find = sample.contents.find
    for name in ("", "HEAD", "@", "main", "refs/heads/main", "heads/main"):
        assert find(name) == whole
    assert find("both") == tagged
    assert find(other.hex()) == find(other.hex()[:9]) == other
    for name in ("nowhere", "beef" * 10, other.hex()[:3], "main~1"):
        with pytest.raises(NoSuchPart, match=f"unknown revision '{name}'"):
            find(name)


def test_a_head_that_is_not_there(sample: Sample) -> None:
    sample.settings["HEAD"] = b"refs/heads/gone"
    with pytest.raises(NoSuchPart, match="HEAD names the branch refs/heads/gone, which does not exist"):
        sample.contents.find("")


def test_the_state_of_a_path(sample: Sample, whole: bytes) -> None:
    same = sample.commit(sample.tree((b"100755", b"run", sample.blob(b"#!\n"))))
    plain = sample.commit(sample.tree((b"100644", b"run", sample.blob(b"#!\n"))))
    state = sample.contents.state
    assert state(whole, b"run") == state(same, b"run") != state(plain, b"run")
    assert state(whole, b"nowhere") is None


def test_an_encoding_that_python_does_not_have_is_not_asked_for(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the name of each that it was asked for, as long as the server runs."""
    asked = calls_of(monkeypatch, codecs, "lookup", lambda name: name)
    for coding in (b"x" * 1000, b"nonsense-1", b"iso--8859---1", b"ISO.8859.1"):
        header = sample.contents.header(sample.commit(sample.tree(), rest=b"\nencoding %b\n\n\xe4" % coding))
        assert header is not None
        assert header.message == ("\u00e4" if b"8859" in coding else "\ufffd")
    assert asked == ["iso_8859_1"] * 2  # Of two spellings.


def test_a_message_that_is_too_long_is_refused_by_name(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "MAX_MESSAGE", 10)
    commit = sample.commit(sample.tree(), rest=b"\n\n" + b"x" * 11)
    with pytest.raises(
        LimitExceeded, match=f"too many bytes of the message of {commit.hex()}: 11, at most 10 are allowed"
    ):
        sample.contents.header(commit)


def test_a_folder_that_is_at_hand_is_charged_each_time(sample: Sample) -> None:
    """Without that, a tree of ten levels of ten times the same empty folder is looked through for ever, for nothing."""
    tree = sample.tree()
    for _ in range(3):
        tree = sample.tree(*[(b"40000", b"%d" % number, tree) for number in range(10)])
    assert list(sample.contents.changes(sample.commit(tree))) == []
    assert sample.allowance.steps == 1111 - 4  # What is read of the store is charged there.
    assert sample.allowance.decoded == (111 - 3) * len(sample.records[0, tree].text)


def test_changes_are_found_as_they_are_taken(sample: Sample) -> None:
    """A path is made when it is given, however many lie beside it: the folders above may have names of megabytes."""
    name = b"n" * 10_000
    inner = sample.tree(*[(b"100644", b"%03d" % number, sample.blob(b"")) for number in range(900)])
    commit = sample.commit(sample.tree((b"40000", name, inner)))
    changes = sample.contents.changes(commit)
    with traced() as memory:
        assert next(changes) == ChangedPath("A", name + b"/000")
    assert memory.peak < 1 << 20
    assert sum(1 for _ in changes) == 899


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ("ab12c", "ab12cd"),
        ("ab3", "ab34cd"),
        ("ab12ef", "ab12ef"),
        ("cd", "cd"),  # Though another begins so.
        *[(digits, None) for digits in ("ab12ce", "ee", "ab12cde", "ab12cd00")],
    ],
)
def test_the_id_that_begins_so(digits: str, expected: str | None) -> None:
    stored = Sample()
    stored.order = [bytes.fromhex(digits) for digits in ("ab12cd", "ab12ef", "ab34cd", "cd", "cdef")]
    assert find_by_prefix(stored, digits) == (bytes.fromhex(expected) if expected else None)
    with pytest.raises(NoSuchPart, match=r"the id a is ambiguous: ab12cd and ab(12ef|34cd) begin with it"):
        find_by_prefix(stored, "a")
    with pytest.raises(NoSuchPart, match="the id ab12 is ambiguous: ab12cd and ab12ef begin with it"):
        find_by_prefix(stored, "ab12")


FORM = GIT["git sha1"]
MAIN = b"refs/heads/main"


class Client:
    """A client that fetches: each object it has, with its text."""

    def __init__(self, history: History, repository: PackRepository) -> None:
        self.history = history
        self.repository = repository
        self.objects: dict[bytes, bytes] = {}
        self.shallow: set[bytes] = set()
        self.tips: set[bytes] = set()
        self.sent: list[bytes] = []
        """Keys of the last answer."""

    def fetch(self, wants: Sequence[bytes], *, partial: bool = False, **asked: Any) -> None:
        """Ask, and take what comes."""
        selector = FetchSelector(sorted(self.shallow), thin=not partial, **asked)
        transaction = self.repository.begin()
        plan, said = transaction.plan_read(encode(selector), wants, sorted(self.tips))
        assert isinstance(plan, ContentPlan)
        body = transaction.open_body(plan)
        stream = SegmentStream(graph_first=False)
        for text in read_bulk(iter(lambda: body.read(1 << 16), b"")):
            stream.feed(text)
        stream.finish()
        self.sent = []
        for whole in stream.segments():
            segment = decode_segment(whole, 0, KINDS)
            for entry, frame in zip(segment.entries, frames(segment, whole), strict=True):
                base = segment.base_of(entry)
                text = decompress(entry.encoding, bytes(frame), entry.length, self.objects[base] if base else b"")
                assert text == self.history.objects[entry.key].text
                assert entry.meta == self.history.objects[entry.key].meta
                self.objects[entry.key] = text
                self.sent.append(entry.key)
        cut = decode_cut(said, 20)
        self.shallow = (self.shallow | set(cut.shallow)) - set(cut.unshallow)
        self.tips.update(want for want in wants if self.history.objects[want].meta == COMMIT)

    def check(self) -> set[bytes]:
        """Check that everything the tips reach is here, up to the cut of history; the commits."""
        left, seen = list(self.tips), set[bytes]()
        while left:
            commit = left.pop()
            if commit in seen:
                continue
            seen.add(commit)
            tree, parents = FORM._format.commit(commit, self.objects[commit])
            assert set(self.history.closure(tree)) <= self.objects.keys()
            if commit not in self.shallow:
                left += parents
        return seen


def begun(history: History, revisions: Iterable[bytes], refs: dict[bytes, bytes]) -> Client:
    repository = PackRepository(MemoryTransport(), "project")
    push(repository, history, revisions, dict(refs))
    return Client(history, repository)


@pytest.fixture
def line() -> tuple[Client, list[bytes]]:
    history = History()
    made = history.line(6)
    return begun(history, made, {MAIN: made[-1]}), made


def grown(chance: random.Random, history: History, tips: list[bytes], count: int) -> Iterator[bytes]:
    """Commits that change, move, remove and merge."""
    for number in range(count):
        parents = chance.sample(tips, min(len(tips), chance.choice((1, 1, 1, 2))))
        files = dict(history.files(parents[0])) if parents and chance.random() < 0.95 else {}
        for _ in range(chance.randint(1, 3)):
            path = f"{chance.choice(('', 'a/', 'a/b/', 'c/'))}f{chance.randint(0, 4)}"
            if path in files and chance.random() < 0.2:
                files[f"moved/{number}"] = files.pop(path)
            elif not any(each.startswith(f"{path}/") for each in files):
                files[path] = b"%d\n" % chance.randint(0, 30) + b"a line of its own\n" * chance.randint(0, 40)
        made = history.commit(files, parents, f"commit {number}")
        if made in tips:
            continue
        tips.append(made)
        if len(tips) > 4:
            tips.remove(chance.choice(tips[:-1]))
        yield made


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_fetched_in_whatever_order(seed: int) -> None:
    """After each fetch the client has all that git thinks it has."""
    chance = random.Random(seed)
    print(f"seed {seed}")
    history, tips = History(), list[bytes]()
    made = list(dict.fromkeys(grown(chance, history, tips, 12)))
    client = begun(history, made, {MAIN: made[-1]})
    for _ in range(8):
        new = [each for each in dict.fromkeys(grown(chance, history, tips, chance.randint(0, 4))) if each not in made]
        if new:
            made += new
            push(client.repository, history, new, {MAIN: new[-1]})
        wants = chance.sample(made, chance.randint(1, 3))
        hows: tuple[dict[str, Any], ...] = (
            {},
            {"depth": chance.randint(1, 5)},
            {"depth": chance.randint(1, 3), "relative": True},
            {"depth": MAX_DEPTH},
            {"excluded": [MAIN]},
        )
        how = chance.choice(hows)
        with suppress(NoSuchPart) if "excluded" in how else nullcontext():
            client.fetch(wants, **how)
        client.check()
    client.fetch([made[-1]], depth=MAX_DEPTH)
    assert client.check() >= history.ancestors([made[-1]])
    assert not client.shallow


def test_a_depth_counts_commits_of_the_shortest_path() -> None:
    history = History()
    root, one, two, three = history.line(4)
    merged = history.commit({**history.files(three), "x": b"x"}, [three, root])
    client = begun(history, [root, one, two, three, merged], {MAIN: merged})
    client.fetch([merged], depth=2)
    assert client.check() == {merged, three, root}
    assert client.shallow == {three, root}  # A root at that depth too, as with git.
    client.fetch([merged], depth=1, relative=True)
    assert client.check() == {merged, three, root, two}
    assert client.shallow == {two}


def test_only_what_is_missing_comes(line: tuple[Client, list[bytes]]) -> None:
    client, made = line
    client.fetch([made[-2]], depth=1)
    assert len(client.sent) == 5  # The commit, two trees and two files.
    client.fetch([made[-1]])
    assert len(client.sent) == 4
    client.fetch([made[-1]], depth=3)
    assert client.shallow == {made[-3]}
    assert len(client.sent) == 4
    client.fetch([made[-1]], depth=1)
    assert client.sent == []
    assert client.shallow == {made[-3], made[-1]}


@pytest.mark.parametrize(
    ("filters", "kinds"),
    [
        ([(TREES, 1)], {COMMIT: 6, TREE: 6}),
        ([(TREES, 2)], {COMMIT: 6, TREE: 12, b"\3": 1}),
        ([(TREES, 2), (BLOBS, 0)], {COMMIT: 6, TREE: 12}),
    ],
)
def test_filters_of_depths(
    line: tuple[Client, list[bytes]], filters: list[tuple[int, int]], kinds: dict[bytes, int]
) -> None:
    client, made = line
    client.fetch([made[-1]], filters=filters, partial=True)
    metas = [client.history.objects[key].meta for key in client.sent]
    assert {meta: metas.count(meta) for meta in metas} == kinds


@pytest.mark.parametrize("how", [{"depth": 1}, {"since": 1}, {"excluded": [b"old"]}])
def test_history_is_cut_at_commits_alone(how: dict[str, Any]) -> None:
    """Git takes a repository for damaged whose shallow commits are something else."""
    history = History()
    old, made = history.line(2)
    blob = history.bare(history.key_at(made, "README"))
    tag = history.tag(blob, "of-a-file")
    refs = {MAIN: made, b"refs/tags/old": old, b"refs/x/blob": blob, b"refs/tags/t": tag}
    client = begun(history, [old, made, blob, tag], refs)
    client.fetch([made, blob, tag], **how)
    assert client.shallow == (set() if "since" in how else {made})
    assert {blob, tag} <= client.objects.keys()


# -- hostile


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            FetchSelector([b"x"] * (MAX_SHALLOW + 1)),
            "too many shallow commits in a fetch: 65537, at most 65536",
        ),
        (
            FetchSelector(depth=MAX_DEPTH + 1),
            "too many commits of depth in a fetch: 2147483648, at most 2147483647",
        ),
        (FetchSelector(excluded=[b"x"] * (MAX_EXCLUDED + 1)), "too many excluded refs of a fetch: 257, at most"),
        (
            FetchSelector(filters=[(0, 1)] * (MAX_FILTERS + 1)),
            "too many filters of a fetch: 17, at most 16",
        ),
        (FetchSelector(follow=[b"x"] * (MAX_FILTERS + 1)), "too many followed prefixes of a fetch: 17, at most"),
    ],
)
def test_too_much(line: tuple[Client, list[bytes]], asked: FetchSelector, why: str) -> None:
    client, made = line
    with pytest.raises(LimitExceeded, match=why):
        client.repository.begin().plan_read(encode(asked), [made[-1]])


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (b"", "this selector of a git repository"),
        (b"x", "this selector of a git repository"),
        (FETCH, "this selector of a fetch"),
        (FETCH + msgspec.msgpack.encode([[], "1"]), "this selector of a fetch"),
        (FETCH + msgspec.msgpack.encode([[], 1 << 63]), "commits of depth in a fetch: 9223372036854775808"),
        (encode(FetchSelector(depth=-1)), "a depth of -1"),
        (encode(FetchSelector(filters=[(2, 0)])), "the filter 2=0"),
        (encode(FetchSelector(filters=[(0, -1)])), "the filter 0=-1"),
        (FETCH + msgspec.msgpack.encode([*msgspec.structs.astuple(FetchSelector()), 1]), "this selector of a fetch"),
    ],
)
def test_no_selector(selector: bytes, why: str) -> None:
    with pytest.raises((Unsupported, LimitExceeded), match=why):
        decode(selector)


def test_work_is_charged_and_ends_where_it_is_too_much(line: tuple[Client, list[bytes]]) -> None:
    """Whatever a fetch asks for, the charges of a long history end it."""
    client, made = line
    transaction = client.repository.begin()
    for asked in (FetchSelector(depth=MAX_DEPTH), FetchSelector(since=0), FetchSelector(list(made), 3, relative=True)):
        transaction.allowance.restart()
        transaction.plan_read(encode(asked), [made[-1]])
        assert transaction.allowance.steps > 5
        transaction.allowance.cancelled = True
        with pytest.raises(Cancelled):
            transaction.plan_read(encode(asked), [made[-1]])
        transaction.allowance.cancelled = False


def test_a_cut_that_is_none() -> None:
    for said in (b"", b"\xc0", msgspec.msgpack.encode(([b"short"], []))):
        with pytest.raises(ValueError, match="shallow commit"):
            decode_cut(said, 20)


def test_a_store_behind_a_link_is_read_in_few_trips() -> None:
    """Not in one for each object."""
    history = History()
    made = history.commit(
        {
            f"{folder}/{number}": random.Random(100 * folder + number).randbytes(4000)
            for folder in range(4)
            for number in range(25)
        }
    )
    transport = Trips(MemoryTransport())
    push(PackRepository(transport, "project"), history, [made], {MAIN: made})
    client = Client(history, PackRepository(transport, "project"))
    transport.log.clear()
    client.fetch([made], depth=1)
    assert len(client.sent) == 106
    assert 2 * len(transport.log) < len(client.sent), transport.log


ONE, TWO = b"\1" * 20, b"\2" * 20


def lines(*commits: bytes) -> str:
    return "".join([commit.hex() + "\n" for commit in commits])


def test_it_changes_when_that_is_said(tmp_path: Path) -> None:
    path = str(tmp_path / "shallow")
    assert read(path) == set()
    with ShallowChange(path, set(), {TWO, ONE}) as change:
        assert Path(change.lock).read_text() == lines(ONE, TWO)
        assert read(path) == set()
        change.commit()
    assert (tmp_path / "shallow").read_text() == lines(ONE, TWO)
    with ShallowChange(path, {ONE, TWO}, {ONE}):
        pass
    assert read(path) == {ONE, TWO}
    with ShallowChange(path, {ONE, TWO}, set()) as change:
        change.commit()
    assert os.listdir(tmp_path) == []


def test_another_process_changed_it(tmp_path: Path) -> None:
    (tmp_path / "shallow").write_text(lines(ONE))
    with pytest.raises(ShallowFileError, match="another process changed it; try again"):
        ShallowChange(str(tmp_path / "shallow"), set(), {TWO})
    assert os.listdir(tmp_path) == ["shallow"]


def test_it_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "shallow").write_text("nonsense\n")
    with pytest.raises(ShallowFileError, match="it holds something else than ids"):
        read(str(tmp_path / "shallow"))
