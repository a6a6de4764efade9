"""`Content`: what was read of a branch that is less than whole revisions, and how more of it is asked for.

Breezy is given it by `stores`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from breezy.revision import NULL_REVISION

from smartserver.client.content import Part
from smartserver.client.repository import RemoteRepository
from smartserver.errors import MissingRevision, NoSuchPart, shown
from smartserver.plugins.breezy.checkouts import pages_of
from smartserver.plugins.breezy.given import TIP
from smartserver.plugins.breezy.selection import Selection
from smartserver.records.model import HERE, Key, Record, RevisionId
from smartserver.vcs.base import WrongContent
from smartserver.vcs.bzr.compat import StoreKey
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TAGS, TEXT
from smartserver.vcs.bzr.left_hand import number_in
from smartserver.vcs.bzr.meta import text_meta
from smartserver.vcs.bzr.revision import read_inventory, read_revision
from smartserver.vcs.bzr.selector import Named, Parts, RevisionsField, Tag, TreesField, decode_answer, encode
from smartserver.vcs.bzr.tree import BzrTree
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.repository_stats import StatsResult

PATIENCE = 2
"""Requests for records that the first request did not name; the next one asks for the whole history."""

FEW = 2
"""Times that revisions are asked for by name: `-r date:` looks at one after the other."""

MANY = 256
"""Revisions asked for at once of which nobody says the names."""


class Content:
    """The records and parents that came so far."""

    def __init__(self, remote: RemoteRepository, wanted: Selection) -> None:
        self.records: dict[tuple[int, Key], Record] = {}
        self.parents: dict[RevisionId, tuple[RevisionId, ...]] = {}
        self.numbers: dict[RevisionId, int] = {}
        """The numbers of revisions in the line of the tip's first parents, as far as they are known."""
        self.stats: StatsResult | None = None
        """What the repository consists of, where the command wants that."""
        self.made: set[RevisionId] = set()
        """Revisions that were made here and may not be there yet."""
        self.wanted = wanted
        self.remote = remote
        self.gone: RevisionId | None = None
        """What the tree of a checkout rests on, where the server has it no more."""
        self._asked = 0
        self._left = PATIENCE
        self._below: set[RevisionId] = set()
        self._beside: list[RevisionId] = []
        """What the tree of a lightweight checkout rests on, where the branch does not reach it."""
        self._has_graph = False
        self._chosen: set[RevisionId] = set()
        """The revisions that came for themselves, and not with a tree."""
        self.complete: set[bytes] = set()
        """The ids of files of which all texts came: one that is not here is a ghost's."""
        self._absent: set[RevisionId] = set()
        """Ghosts, as an answer has shown."""
        self._rebuilt: dict[RevisionId, bool] = {}
        """The revisions whose pages a checkout was asked for, and whether it had them."""

    def begin(self) -> None:
        """Ask what the command wants. Where there is no such revision, only what there is: Breezy says the rest.

        Raises:
            CodedError, MediumError, ProtocolError, NotOurProtocol: it could not be read.
        """
        wanted = self.wanted
        if (wanted.chosen is None and wanted.trees is None) or (wanted.stats and self._is_shared()):
            self._look()
            return
        try:
            self._ask(wanted.chosen, wanted.trees, wanted.inside)
            had = () if wanted.trees is None else wanted.trees.had[:1]
            self.gone = next(filter(self.is_absent, had), None)
        except (MissingRevision, NoSuchPart) as wrong:
            rests_on = (*wanted.ids, wanted.chosen.oldest if wanted.chosen is not None else None)
            if isinstance(wrong, MissingRevision) and wrong.revision in rests_on:
                self.gone = wrong.revision
            self.wanted = dataclasses.replace(wanted, ids=())
            if isinstance(wrong, NoSuchPart):
                self._ask_graph()  # Which Breezy is going to look into for it.
                return
            self._look()

    def _look(self) -> None:
        self.stats = self.remote.learn_refs(stats=self.wanted.stats)

    def _is_shared(self) -> bool:
        """Whether a repository without a branch at its own path was seen there last."""
        known = self.remote.knowledge
        return known.named == HERE and known.ref(HERE) is None

    def _ask(
        self,
        chosen: RevisionsField | None,
        trees: TreesField | None,
        inside: Selection | None = None,
        haves: Sequence[RevisionId] = (),
    ) -> None:
        """Read these; `inside`: what is read instead where the path leads into the branch, and wanted then."""
        selector = Parts(chosen, trees, None if inside is None else (inside.chosen, inside.trees))
        stats = self.stats is None and self.wanted.stats
        ids = [*self.wanted.ids, *self._beside]
        try:
            content = self.remote.read(encode(selector), ids=ids, haves=haves, stats=stats)
        except MissingRevision as wrong:
            self._absent.add(wrong.revision)  # Nobody need ask for it again.
            raise
        self.stats = content.stats or self.stats
        if inside is not None and self.remote.knowledge.inner:
            self.wanted, chosen, trees = inside, inside.chosen, inside.trees
        first = self._take(content.parts, trees, chosen)
        said = decode_answer(content.result.said)
        named: dict[RevisionId, Named] = {}
        if trees is not None:
            self._absent.update(trees.had)
            named.update(zip(said.ids, trees.revisions, strict=False))
        self._absent -= self.parents.keys()
        if said.numbers:
            tags = sorted(self.remote.knowledge.map(TAGS, self._name()).items())
            self.numbers.update({tag: number for (_, tag), number in zip(tags, said.numbers, strict=False) if number})
        if chosen is not None:
            is_part = chosen.limit or chosen.left_hand or chosen.newest is not None or chosen.oldest is not None
            self._has_graph |= not is_part and (first is not None or not chosen.numbers)
            if chosen is self.wanted.chosen and self.wanted.ends:
                self._end_at(chosen)
            newest = TIP if chosen.newest is None else chosen.newest
            if first in self._chosen and not ids and not isinstance(newest, Tag):
                named[first] = newest  # With others, what comes first may be one of those.
        self._number(named)

    def _take(
        self, parts: Iterable[Part], trees: TreesField | None, chosen: RevisionsField | None
    ) -> RevisionId | None:
        """Take in what came; the first revision of it."""
        first: RevisionId | None = None
        for part in parts:
            first = first or part.revision
            is_tree = part.revision in self.parents or any(record.kind == INVENTORY for record in part.records)
            if chosen is self.wanted.chosen is not None and not is_tree:
                self._chosen.add(part.revision)  # The chosen revisions come before the trees.
            parents = tuple([parent.id for parent in part.parents])
            if self.parents.setdefault(part.revision, parents) != parents:
                raise WrongContent(part.revision, "the graph names other parents than it did before")
            for record in part.records:
                _check(record, part.revision, parents)
                # An inventory without its pages is none.
                if record.kind != INVENTORY or trees is None or trees.paths != []:
                    self.records[record.kind, record.key] = record
                if record.kind == TEXT and trees is not None and trees.versions:
                    self.complete.add(record.key.partition(b"\0")[0])
        return first

    def _end_at(self, chosen: RevisionsField) -> None:
        """Take what is below the oldest that was chosen for as good as absent: nothing is asked of that."""
        if chosen.bare and chosen.oldest not in self.parents:
            return
        self._below = {each for parents in self.parents.values() for each in parents} - self.parents.keys()
        if chosen.oldest in self.wanted.ids:
            return  # What each side has alone was asked for.
        is_number_below = chosen.oldest == self.tip()[0] and isinstance(chosen.newest, int)
        if isinstance(chosen.oldest, bytes) and chosen.oldest not in self._chosen and not is_number_below:
            # The newest does not reach it, and the branch may have been overwritten: where they part is below. Or the
            # newest is below it: its number is counted from the tip's.
            self._below, self._beside = set(), [chosen.oldest]

    def _number(self, named: Mapping[RevisionId, Named]) -> None:
        """Number the line of first parents from the tip, and from what was asked for by number."""
        tip, revno = self.tip()
        if tip is None:
            return
        known = {revision: name for revision, name in named.items() if isinstance(name, int)}
        for revision, name in {**known, tip: revno}.items():
            number = name if name > 0 else revno + name + 1
            at: RevisionId | None = revision
            while at is not None and number > 0:
                self.numbers[at] = number
                number -= 1
                before = self.parents.get(at)
                at = before[0] if before else None

    def tip(self) -> tuple[RevisionId | None, int]:
        """The tip and its number."""
        value = self.remote.knowledge.ref(self._name())
        if not value:
            return None, 0
        return value[0].id, number_in(value[0].attributes)

    def _name(self) -> bytes:
        knowledge = self.remote.knowledge
        return knowledge.branch or knowledge.named or HERE

    # -- what is asked for later

    def parents_of(self, revisions: Iterable[RevisionId]) -> dict[RevisionId, tuple[RevisionId, ...]]:
        """The parents of those of `revisions` that are there."""
        wanted = list(revisions)
        unknown = {each for each in wanted if each not in self.parents and each != NULL_REVISION}
        if not self._has_graph and not unknown <= self._below:
            self._ask_graph()
        return {each: self.parents[each] for each in wanted if each in self.parents}

    def everything(self) -> Collection[RevisionId]:
        """The tip and all it descends from."""
        if not self._has_graph:
            self._ask_graph()
        return self.parents

    def _ask_graph(self) -> None:
        tip = self.tip()[0]
        haves = [tip] if self._has_graph and tip is not None else []
        try:
            self._ask(RevisionsField(bare=True), None, haves=haves)
        except MissingRevision:
            if not self._beside:
                raise
            self._beside = []  # The repository was made anew.
            self._ask_graph()

    def look_beside(self, revision: RevisionId) -> None:
        """Read the graph below a revision, too, which the branch may not reach any more."""
        if revision not in self.parents:
            self._beside = [revision]
            self._ask_graph()

    def has_diverged(self, one: RevisionId, other: RevisionId) -> bool:
        """Whether neither of two revisions is an ancestor of the other, as far as that was asked for."""
        chosen = self.wanted.chosen
        if chosen is None or chosen.oldest != other or not {one, other} <= self._chosen:
            return False  # A revision that is not among the chosen ones is below them: its tree alone came.
        return not (self._reaches(one, other) or self._reaches(other, one))

    def _reaches(self, revision: RevisionId, ancestor: RevisionId) -> bool:
        """Whether one is below another, by what came."""
        left, seen = [revision], {revision}
        while left and ancestor not in seen:
            new = set(self.parents.get(left.pop(), ())) - seen
            seen |= new
            left += new
        return ancestor in seen

    def lets_ask(self) -> bool:
        """Whether what is missing is to be asked for by itself, once more."""
        self._left -= 1
        return self._left >= 0

    def fetch_trees(self, revisions: Collection[RevisionId]) -> None:
        """Read the trees of some revisions, as far as the command reads trees at all."""
        asked = self.wanted.later or self.wanted.trees or TreesField(texts=False)
        had = [each for each in asked.had if self._rebuilt.get(each, True)]
        files = [each for each in asked.files if (TEXT, each) not in self.records]
        for part in _parts(revisions):
            self._ask(None, msgspec.structs.replace(asked, revisions=part, each=False, had=had, files=files))

    def fetch_revisions(self, revisions: Collection[RevisionId]) -> None:
        """Read what some revisions say of themselves; who asks again and again gets the line of first parents."""
        self._asked += 1
        if self._asked == FEW or len(revisions) > MANY:
            self._ask(RevisionsField(left_hand=len(revisions) <= MANY), None)
            revisions = [each for each in revisions if (REVISION, each) not in self.records]
        for part in _parts(revisions):
            self._ask(None, TreesField(list(part), paths=[], texts=False))

    def fetch_texts(self, keys: Iterable[Key]) -> None:
        """Read texts, and the revisions that brought them."""
        for part in _parts(keys):
            self._ask(None, TreesField(files=part))

    def is_absent(self, revision: RevisionId) -> bool:
        """Whether the server has said that it has no such revision."""
        return revision in self._absent

    def rebuild(self) -> None:
        """Take pages from the checkouts that have them, where the server's inventories name just those."""
        for kind, revision in list(self.records):
            if kind == INVENTORY and revision not in self._rebuilt:
                inventory = read_inventory(self.records[kind, revision].text)
                pages = pages_of(revision)
                self._rebuilt[revision] = inventory.id_to_entry in pages and inventory.by_name in pages
                if self._rebuilt[revision]:
                    self.records.update({(CHK, key): Record(CHK, key, b"", text) for key, text in pages.items()})

    def fetch_pages(self) -> None:
        """Read the trees whose pages a checkout was thought to have."""
        for part in _parts(revision for kind, revision in self.records if kind == INVENTORY):
            self._ask(None, TreesField(list(part), texts=False))

    def add(self, kind: int, key: StoreKey, parents: Sequence[StoreKey], text: bytes) -> None:
        """Take in a record that is made here."""
        if kind in (REVISION, INVENTORY):
            self.parents[key[0]] = tuple([parent[0] for parent in parents])
            self.made.add(key[0])
        meta = text_meta(key[0], parents) if kind == TEXT else b""
        joined = b"\0".join(key)
        self.records[kind, joined] = Record(kind, joined, meta, text)

    @property
    def reads_versions(self) -> bool:
        """Whether the command reads all texts of a file."""
        return any(each.versions for each in (self.wanted.trees, self.wanted.later) if each is not None)

    @property
    def needs_history(self) -> bool:
        """Whether the command reads every tree there is: for a log of a folder they are all compared."""
        if self.wanted.history:
            return True
        trees = self.wanted.trees
        if trees is None or not trees.versions:
            return False
        path = trees.paths[0] if trees.paths else self.remote.knowledge.inner.encode()
        for kind, revision in self.records:
            if kind == INVENTORY:
                tree = BzrTree(read_inventory(self.records[kind, revision].text), self._page)
                try:
                    found = tree.find(path)
                except ValueError:
                    continue
                if found is not None:
                    return found.kind == "dir"
        return False

    def _page(self, key: Key) -> bytes:
        found = self.records.get((CHK, key))
        if found is None:
            raise ValueError(f"the page {key!r} is not here")
        return found.text


def _check(record: Record, revision: RevisionId, parents: tuple[RevisionId, ...]) -> None:
    """Check that a record is of the revision it came with, and names the parents that this came with."""
    if record.kind in (REVISION, SIGNATURE, INVENTORY) and record.key != revision:
        raise WrongContent(record.key, f"it came with the revision {shown(revision)}")
    if record.kind == REVISION:
        try:
            found = read_revision(record.text)
        except ValueError as wrong:
            raise WrongContent(revision, str(wrong)) from wrong
        if record.meta or (found.id, found.parents) != (revision, parents):
            raise WrongContent(revision, "its record names another revision, or other parents than the graph")


def _parts(named: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lists that one request takes, without what names nothing."""
    left = [each for each in named if each != NULL_REVISION]
    for at in range(0, len(left), MAX_IDS):
        yield left[at : at + MAX_IDS]
