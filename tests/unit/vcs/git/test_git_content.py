"""vcs.git.content, vcs.git.names: names of revisions, trees with all there may be in them, headers of odd commits."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping

import pytest
from calls import calls_of
from charging import Charged
from traced_memory import traced

from smartserver.errors import LimitExceeded, MissingRevision, NoSuchPart
from smartserver.records import browse
from smartserver.records.browse import ChangedPath, Node, NodeType
from smartserver.records.model import Key, Record, RefValue, RevisionId, Tip
from smartserver.vcs.git.content import GitContents, find_by_prefix
from smartserver.vcs.git.format import BLOB, COMMIT, FORMATS, TAG, TREE
from smartserver.vcs.git.system import git_key

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
