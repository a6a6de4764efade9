"""vcs.bzr.reading, store.content on random histories of Breezy's: what is sent is what Breezy itself says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from brz_histories import KINDS, RandomHistory, Served, all_keys, new_repository
from bzr_builders import planned
from bzr_histories import quiet

from smartserver.client.content import RecordGroup, read_content
from smartserver.records.model import Key
from smartserver.store.model import ContentPlan
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.selector import TreesField

pytestmark = pytest.mark.interop


class Random:
    """A history, served."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        with quiet():
            self.local = new_repository(f"memory:///content-{seed}")
            self.history = RandomHistory(self.local, seed, 60)
            self.served = Served()
            heads = [each for each in self.history.parents if self._is_head(each)]
            self.served.push(self.local, heads)
        self.heads = heads

    def _is_head(self, revision: bytes) -> bool:
        return not any(revision in parents for parents in self.history.parents.values())

    def parts(self, plan: ContentPlan) -> list[RecordGroup]:
        body = self.served.repository.begin().open_body(plan)
        return list(read_content(iter(lambda: body.read(3000), b""), KINDS))

    def plan(self, wants: Sequence[bytes], **options: Any) -> ContentPlan:
        return planned(self.served.repository.begin(), wants, **options)

    def tree(self, revision: bytes, **options: Any) -> dict[tuple[int, Key], bytes]:
        trees = TreesField([revision], **options)
        return self.records(self.parts(self.plan([], trees=trees)))

    def records(self, parts: list[RecordGroup]) -> dict[tuple[int, Key], bytes]:
        """What came, once each, and as Breezy has it."""
        found = {(record.kind, record.key): record for part in parts for record in part.records}
        assert len(found) == sum(len(part.records) for part in parts)
        stores = ("revisions", "signatures", "inventories", "chk_bytes", "texts")
        with self.local.lock_read():
            for (kind, key), record in found.items():
                store = getattr(self.local, stores[kind])
                for same in store.get_record_stream([tuple(key.split(b"\0"))], "unordered", True):
                    assert same.get_bytes_as("fulltext") == record.text
                    if kind == TEXT:
                        assert b"\0".join([parent[1] for parent in same.parents]) == record.meta
        return {place: record.text for place, record in found.items()}


@pytest.fixture(scope="module", params=range(2))
def served(request: pytest.FixtureRequest) -> Iterator[Random]:
    with quiet():
        yield Random(request.param)


def test_graphs_and_what_revisions_say(served: Random) -> None:
    parents = served.history.parents
    for head in served.heads:
        below = set(served.history.ancestors(head))
        bare = served.parts(served.plan([head], bare=True))
        assert {part.revision: tuple(parent.id for parent in part.parents) for part in bare} == {
            revision: parents[revision] for revision in below
        }
        assert all(parent.absent == (parent.id not in parents) for part in bare for parent in part.parents)
        said = served.records(served.parts(served.plan([head])))
        assert {key for kind, key in said if kind == REVISION} == below
        signed = {revision for (revision,) in all_keys(served.local)["signatures"]} & below
        assert {key for kind, key in said if kind == SIGNATURE} == signed
        line = served.parts(served.plan([head], left_hand=True))
        for before, after in itertools.pairwise(line):
            assert parents[before.revision][0] == after.revision
        last = parents[line[-1].revision]
        assert not last or last[0] not in parents


def test_trees_and_parts_of_them(served: Random) -> None:
    for revision in served.random.sample(list(served.history.parents), 12):
        whole = served.tree(revision)
        with served.local.lock_read():
            tree = served.local.revision_tree(revision)
            entries = [(path.encode(), entry) for path, entry in tree.iter_entries_by_dir()]
        files = {entry.file_id + b"\0" + entry.revision: path for path, entry in entries if entry.kind == "file"}
        assert {key for kind, key in whole if kind == TEXT} == files.keys()
        assert {key for kind, key in whole if kind in (REVISION, INVENTORY)} == {revision}
        path = served.random.choice(entries)[0]
        part = served.tree(revision, paths=[path, b"absent/path"])
        inside = {key for key, at in files.items() if at == path or not path or at.startswith(path + b"/")}
        assert {key for kind, key in part if kind == TEXT} == inside
        assert {place for place in part if place[0] == CHK} <= whole.keys()


def test_versions(served: Random) -> None:
    for head in served.heads:
        with served.local.lock_read():
            tree = served.local.revision_tree(head)
            files = [(path, entry) for path, entry in tree.iter_entries_by_dir() if entry.kind == "file"]
            path, entry = served.random.choice(files)
            graph = served.local.texts.get_known_graph_ancestry([(entry.file_id, entry.revision)])
            expected = {b"\0".join(key) for key in graph.topo_sort()}
        part = served.tree(head, paths=[path.encode()], versions=True)
        texts = {key for kind, key in part if kind == TEXT}
        assert texts == expected
        bringers = {key.partition(b"\0")[2] for key in texts}
        assert {key for kind, key in part if kind == REVISION} == {head, *bringers} & served.history.parents.keys()


def test_what_differs(served: Random) -> None:
    """What `changed` leaves out is the same in both trees."""
    for _ in range(10):
        one, other = served.random.sample(list(served.history.parents), 2)
        trees = TreesField([one, other], changed=True)
        came = {key for kind, key in served.records(served.parts(served.plan([], trees=trees))) if kind == TEXT}
        texts = [{key for kind, key in served.tree(each) if kind == TEXT} for each in (one, other)]
        assert texts[0] ^ texts[1] <= came <= texts[0] | texts[1]


def test_what_the_reader_has(served: Random) -> None:
    """Of a tree comes what the trees that are had have not; with those it is whole."""
    for _ in range(10):
        one, other, third = served.random.sample(list(served.history.parents), 3)
        for had in ((other,), (other, third)):
            trees = TreesField([one], had=[*had])
            came = served.records(served.parts(served.plan([], trees=trees)))
            here = {place for each in had for place in served.tree(each)}
            assert served.tree(one).keys() <= came.keys() | here
            assert {kind for kind, _ in came.keys() & here} <= {REVISION, SIGNATURE, INVENTORY}
