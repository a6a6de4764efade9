"""store.proof.Judge: which records are refused, which are only counted, and which are not looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from smartserver.errors import CorruptRecord
from smartserver.records.faults import Level, Policy
from smartserver.records.model import Key, Record
from smartserver.store.proof import Judge
from smartserver.vcs.git.format import BLOB, COMMIT, TREE
from smartserver.vcs.git.fsck import MAX_GITATTRIBUTES, MAX_GITMODULES

KEY = b"k" * 20
BLOB_KEY = b"b" * 20
DOTGIT = Record(0, KEY, TREE, b"100644 .git\0" + BLOB_KEY)
PADDED = Record(0, KEY, TREE, b"0100644 f\0" + BLOB_KEY)
NAMELESS = Record(0, KEY, COMMIT, b"tree x\nauthor <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\n")
MODULES = Record(0, KEY, TREE, b"100644 .gitmodules\0" + BLOB_KEY)
BAD_MODULES = Record(0, BLOB_KEY, BLOB, b'[submodule "a"]\nurl = -x\n')


def judge(
    policy: Policy, stored: frozenset[Key] = frozenset(), found: Record | None = None, vcs: str = "git sha1"
) -> Judge:
    @contextlib.contextmanager
    def read(kind: int, key: Key) -> Iterator[Record]:
        assert found is not None
        yield found

    measured = None if found is None else (found.meta, len(found.text))
    return Judge(vcs, policy, lambda kind, key: key in stored, lambda kind, key: measured, read)


def test_errors_are_refused_where_all_is_strict() -> None:
    safe = judge(Policy())
    safe.weigh_record(b"r", PADDED, None)
    safe.weigh_record(b"r", NAMELESS, None)
    safe.weigh_record(b"r", NAMELESS, None)
    assert safe.warnings == {"zeroPaddedFilemode": (1, KEY), "missingNameBeforeEmail": (2, KEY)}
    with pytest.raises(CorruptRecord, match="zeroPaddedFilemode"):
        judge(Policy(Level.STRICT)).weigh_record(b"r", PADDED, None)


def test_what_is_ignored_or_off_is_not_said() -> None:
    for policy in (Policy(Level.OFF), Policy(Level.STRICT, frozenset(("hasDotgit", "zeroPaddedFilemode")))):
        quiet = judge(policy)
        quiet.weigh_record(b"r", DOTGIT, None)
        quiet.weigh_record(b"r", PADDED, None)
        assert quiet.warnings == {}


def test_what_is_stored_is_not_judged() -> None:
    old = judge(Policy(Level.STRICT), frozenset((KEY,)), BAD_MODULES)
    old.weigh_record(b"r", DOTGIT, None)
    old.weigh_record(b"r", MODULES, None)
    old.finish(b"r")
    assert old.warnings == {}


def test_a_stored_file_that_gets_the_name_is_judged_and_one_that_has_it_is_not() -> None:
    stored = frozenset((BLOB_KEY,))
    other = Record(0, b"o" * 20, TREE, b"100644 some.module\0" + BLOB_KEY)
    renamed = judge(Policy(), stored, BAD_MODULES)
    renamed.weigh_record(b"r", MODULES, other)
    with pytest.raises(CorruptRecord, match="gitmodulesUrl"):
        renamed.finish(b"r")
    kept = judge(Policy(), stored, BAD_MODULES)
    beside = Record(0, b"o" * 20, TREE, MODULES.text + b"100644 x\0" + b"x" * 20)
    kept.weigh_record(b"r", beside, MODULES._replace(key=b"p" * 20))
    kept.finish(b"r")


@pytest.mark.parametrize(
    ("name", "meta", "size", "fault"),
    [
        (b".gitmodules", BLOB, MAX_GITMODULES + 1, "gitmodulesLarge"),
        (b".gitattributes", BLOB, MAX_GITATTRIBUTES + 1, "gitattributesLarge"),
        (b".gitmodules", TREE, MAX_GITMODULES + 1, "gitmodulesBlob"),
        (b".gitattributes", TREE, 0, "gitattributesBlob"),
    ],
)
def test_a_file_is_refused_by_its_type_and_size_before_it_is_read(
    name: bytes, meta: bytes, size: int, fault: str
) -> None:
    reads: list[Key] = []

    def read(kind: int, key: Key) -> contextlib.AbstractContextManager[Record]:
        reads.append(key)
        return contextlib.nullcontext(BAD_MODULES)

    for ignored in (False, True):
        policy = Policy(ignored=frozenset((fault,)) if ignored else frozenset())
        large = Judge("git sha1", policy, lambda kind, key: False, lambda kind, key: (meta, size), read)
        large.weigh_record(b"r", Record(0, KEY, TREE, b"100644 " + name + b"\0" + BLOB_KEY), None)
        with contextlib.nullcontext() if ignored else pytest.raises(CorruptRecord, match=fault):
            large.finish(b"r")
    assert reads == []


def test_a_file_that_only_stored_trees_name_is_not_read() -> None:
    old = judge(Policy(), frozenset((KEY,)))
    old._measure = lambda kind, key: pytest.fail("it is measured")
    old.weigh_record(b"r", MODULES, None)
    old.finish(b"r")


def test_other_systems_have_no_faults() -> None:
    none = judge(Policy(Level.STRICT), vcs="bzr 2a")
    none.weigh_record(b"r", DOTGIT, None)
    none.finish(b"r")
    assert none.warnings == {}
