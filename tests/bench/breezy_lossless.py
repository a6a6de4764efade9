"""Parts of a Bazaar history on their way to a server of ours and back to one of Breezy's, and what differs then.

It is what `bench lossless` tries; of what came back nothing is taken for granted.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import breezy
import breezy.bzr
from breezy.controldir import ControlDir
from breezy.errors import BzrError
from builders import ancestors

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import Medium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, RefUpdate
from smartserver.plugins.breezy.history import History
from smartserver.plugins.breezy.place import KINDS
from smartserver.plugins.breezy.sending import Lacking
from smartserver.records.model import RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.compat import NULL, StoreKey, StrictTestament3, format_2a
from smartserver.vcs.bzr.insert import insert
from smartserver.vcs.bzr.repository import STORES, BrzRepository
from smartserver.verbs.repository_pull import MAX_HAVES

VCS = BrzRepository.vcs

REVISIONS, RECORDS, TESTAMENTS, REQUESTS = (
    "revisions", "records compared, text and parents", "testaments compared", "pushes and pulls",
)  # fmt: skip

CHOSEN = 20
"""Revisions of a part whose testaments are compared, beside its heads: each reads a whole tree."""

WRONG = (BzrError, VcsError)
"""What may be raised by what is not as it should be."""

Digest = tuple[tuple[StoreKey, ...] | None, bytes]
"""The parents of a record as its store has them, and the sha1 of its text."""


def open_original(path: Path) -> Any:
    """The repository of Breezy's at a path, or of the branch there."""
    if breezy.get_global_state() is None:
        breezy.initialize(setup_ui=False)
    source = ControlDir.open(str(path)).find_repository()
    BrzRepository(source).check_format()
    return source


class Original:
    def __init__(self, repository: Any) -> None:
        self.repository = repository
        graph = BrzRepository(repository).parents(repository.all_revision_ids())
        order = repository.get_known_graph_ancestry(list(graph)).topo_sort() if graph else []
        self.order: list[RevisionId] = [revision for revision in order if revision in graph]
        """Parents first; without ghosts."""
        self.parents: Mapping[RevisionId, tuple[RevisionId, ...]] = graph
        self.records = digests(repository)

    def ancestors(self, heads: Iterable[RevisionId]) -> list[RevisionId]:
        """`heads` and all below them that is here, parents first."""
        found = ancestors(heads, self.parents)
        return [revision for revision in self.order if revision in found]

    def heads(self, part: Sequence[RevisionId]) -> list[RevisionId]:
        """Those that no other descends from."""
        inner = {parent for revision in part for parent in self.parents[revision]}
        return [revision for revision in part if revision not in inner]


class Part:
    """One part, on its way there and back."""

    def __init__(self, original: Original, connect: Callable[[], Medium], name: str, folder: Path) -> None:
        """`name`: of its repository on the server; `folder`: where it comes back to."""
        self.tally = Counter[str](dict.fromkeys((REVISIONS, RECORDS, TESTAMENTS, REQUESTS), 0))
        """What was done and compared."""
        self._original = original
        self._client = Client(connect, agent="bench")
        self._remote = RemoteRepository(self._client, name, Knowledge(None, name))
        folder.mkdir()
        made = format_2a().initialize(str(folder))
        self._target = made.create_repository(shared=True)

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    def push(self, grown: Sequence[Sequence[RevisionId]]) -> None:
        """Push it as it grows, each head to a ref of its own."""
        source = Lacking(BrzRepository(self._original.repository))
        for part in grown:
            updates = [RefUpdate(b"head-" + tip, tip, attributes=b"1") for tip in self._original.heads(part)]
            for done in self._remote.push(PushRequest(updates, source, NewRepository(VCS, KINDS), bulk=True)).refs:
                if done.error is not None:
                    raise done.error
            self.tally[REQUESTS] += 1

    def pull(self, grown: Sequence[Sequence[RevisionId]]) -> None:
        """Pull it into Breezy's repository as it grows."""
        mine = BrzRepository(self._target)
        for part in grown:
            heads = self._original.heads(part)
            haves = mine.complete_haves((), MAX_HAVES)
            pulled = self._remote.pull(haves, [], heads, absent=mine.absent(haves), bulk=True)
            history = History(pulled.body, pulled.result.segments, KINDS)
            history.receive()
            insert(mine, history.segments(history.parents))
            self.tally[REQUESTS] += 1

    def differences(self, part: Sequence[RevisionId], chance: random.Random) -> Iterable[str]:
        """In what the target is not that part of the original; nothing where it is."""
        original, target = self._original, self._target
        found = digests(target)
        here = set(part)
        expected = {each for each in original.records if each[0] != "chk_bytes" and each[1][-1] in here}
        # Pages have no revision: the check of the repository finds those that are lacking. A text of a ghost comes with
        # whatever revision has it.
        got = {each for each in found if each[0] != "chk_bytes" and each[1][-1] in original.parents}
        for word, those in (("lacks", expected - got), ("has too", got - expected)):
            if those:
                store, key = min(those)
                yield f"it {word} {len(those)} records, among them {key} of {store}"
        wrong = [each for each, digest in found.items() if original.records.get(each) != digest]
        if wrong:
            yield f"{len(wrong)} records differ, among them {wrong[0]}"
        chosen = {*original.heads(part), *chance.sample(list(part), min(len(part), CHOSEN))}
        with target.lock_read():
            for revision in sorted(chosen & here):
                texts = [
                    StrictTestament3.from_revision(each, revision).as_text() for each in (target, original.repository)
                ]
                if texts[0] != texts[1]:
                    yield f"the testament of {revision!r} differs"
            roots = [_roots(each, sorted(chosen & here)) for each in (target, original.repository)]
        if roots[0] != roots[1]:
            yield "the roots of trees differ"
        yield from self._checked(here)
        self.tally.update({REVISIONS: len(part), RECORDS: len(found), TESTAMENTS: len(chosen)})

    def _checked(self, here: set[RevisionId]) -> Iterable[str]:
        result = self._target.check(None, check_repo=True)
        ghosts = {parent for revision in here for parent in self._original.parents[revision] if parent != NULL} - here
        if set(result.ghosts) != ghosts:
            yield f"check: expected {len(ghosts)} ghosts, found {len(result.ghosts)}"
        for what in ("unreferenced_versions", "inconsistent_parents", "revs_with_bad_parents_in_index"):
            if each := getattr(result, what):
                yield f"check: {what}: {len(each)}"
        if result.missing_revision_cnt:
            yield f"check: {result.missing_revision_cnt} revisions are missing"


def digests(repository: Any) -> dict[tuple[str, StoreKey], Digest]:
    """What there is of each record in all five stores."""
    found: dict[tuple[str, StoreKey], Digest] = {}
    with repository.lock_read():
        for name in STORES.values():
            store = getattr(repository, name)
            for each in store.get_record_stream(store.keys(), "unordered", True):
                digest = hashlib.sha1(each.get_bytes_as("fulltext")).digest()
                found[name, each.key] = (each.parents, digest)
    return found


def _roots(repository: Any, revisions: Sequence[RevisionId]) -> list[tuple[StoreKey, StoreKey]]:
    """The root pages of both maps of trees."""
    found = []
    for tree in repository.revision_trees(revisions):
        maps = tree.root_inventory
        found.append((maps.id_to_entry.key(), maps.parent_id_basename_to_file_id.key()))
    return found
