"""What a selector of `bzr 2a` asks of a repository: which revisions, trees and texts are sent, and in which order.

First come the revisions, then the trees, and with each tree the earlier texts of its files.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from smartserver.errors import MissingRevision, NoSuchPart
from smartserver.records.content import ReadPlan, ReadScope, RepositoryView, damage_of
from smartserver.records.model import Key, Piece, RevisionId
from smartserver.vcs.bzr import parts
from smartserver.vcs.bzr.kinds import REVISION, SIGNATURE, TAGS, TEXT
from smartserver.vcs.bzr.left_hand import LeftHand, number_in
from smartserver.vcs.bzr.selector import (
    Called,
    History,
    ReadAnswer,
    RevisionsField,
    Tag,
    TreesField,
    decode_selector,
    encode,
)

TREE = "its tree"


def read(stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
    """The answer to a selector; see `records.system.System.read`."""
    asked = decode_selector(selector)
    names = Names(stored, question)
    if isinstance(asked, History):
        newest = names.called(asked.newest)
        return ReadPlan(encode(ReadAnswer([newest])), heads=[newest])
    chosen, trees = asked.chosen, asked.trees
    if asked.inside is not None and question.inner:
        chosen, trees = asked.inside
    if trees is None:
        chosen, trees = chosen or RevisionsField(), TreesField()
    of = [names.named(each) for each in trees.revisions]
    for revision in of:
        ordinal_of(stored, revision)
    numbers = [] if chosen is None or not chosen.numbers else names.numbers_of_tags()
    ordinals = () if chosen is None else _chosen(stored, question, names, chosen, numbers)
    if trees.inner:
        trees = msgspec.structs.replace(trees, paths=[*(trees.paths or ()), question.inner])
    sent = ChosenParts(stored, ordinals, chosen or RevisionsField(), trees, of)
    is_any = ordinals or of or trees.had or trees.files
    return ReadPlan(encode(ReadAnswer(of, numbers)) if of or numbers else b"", pieces=sent.pieces() if is_any else None)


def _chosen(
    stored: RepositoryView, question: ReadScope, names: Names, chosen: RevisionsField, numbers: Sequence[int]
) -> tuple[int, ...]:
    """The chosen revisions, newest first."""
    heads = question.wants if chosen.newest is None else [names.called(chosen.newest, chosen.numbers)]
    if chosen.numbers and ((chosen.bare and all(numbers)) or heads == [b""]):
        return ()
    haves = list(question.haves)
    if chosen.oldest is not None and (before := names.line(names.named(chosen.oldest)).at(1)) is not None:
        haves.append(stored.revision(before))
    wanted = [ordinal_of(stored, head) for head in heads]
    had = [ordinal for ordinal in map(stored.ordinal, haves) if ordinal is not None]
    found: Iterable[int]
    if chosen.left_hand and wanted:
        reached = set(had)
        found = itertools.takewhile(lambda ordinal: ordinal not in reached, names.line(heads[0]))
    else:
        cut = [ordinal for ordinal in map(stored.ordinal, question.absent) if ordinal is not None]
        found = reversed(stored.reached(wanted, had, cut))
    return tuple(itertools.islice(found, chosen.limit or None))


def ordinal_of(stored: RepositoryView, revision: RevisionId) -> int:
    """The ordinal of a revision.

    Raises:
        MissingRevision: it is not stored.
    """
    found = stored.ordinal(revision)
    if found is None:
        raise MissingRevision(revision)
    return found


class Names:
    """What revisions are called: numbers are places in the left-hand history of the first want."""

    def __init__(self, stored: RepositoryView, question: ReadScope) -> None:
        self._stored = stored
        self._wants = question.wants
        self._of_ref = question.ref + b"\0"
        self._lines: dict[RevisionId, LeftHand] = {}

    def line(self, revision: RevisionId) -> LeftHand:
        """The left-hand history of a revision."""
        found = self._lines.get(revision)
        if found is None:
            found = self._lines[revision] = LeftHand(self._stored, ordinal_of(self._stored, revision))
        return found

    def called(self, name: Called, absent: bool = False) -> RevisionId:
        """The id of a revision; `absent`: empty where there is no such tag.

        Raises:
            NoSuchPart: there is no such number or tag.
        """
        if not isinstance(name, Tag):
            return self.named(name)
        tagged = self._stored.map(TAGS).get(self._of_ref + name.name) if self._of_ref != b"\0" else None
        if tagged is None and not absent:
            raise NoSuchPart(f"no tag named {name.name.decode(errors='backslashreplace')!r}")
        return tagged or b""

    def named(self, name: RevisionId | int) -> RevisionId:
        """The id of a revision.

        Raises:
            NoSuchPart: there is no such number.
        """
        if not isinstance(name, int):
            return name
        if self._wants and name:
            steps = self._last - name if name > 0 else -name - 1
            found = self.line(self._wants[0]).at(steps) if steps >= 0 else None
            if found is not None:
                return self._stored.revision(found)
        raise NoSuchPart(f"there is no revision {name} in the left-hand history")

    def numbers_of_tags(self) -> list[int]:
        """The numbers of what the tags of the first ref name, in the order of their names."""
        if self._of_ref == b"\0":
            return []
        tags = self._stored.map(TAGS)
        self._stored.charge(len(tags))
        revisions = [tags[name] for name in sorted(name for name in tags if name.startswith(self._of_ref))]
        if not self._wants:
            return [0] * len(revisions)
        left = {ordinal for each in revisions if (ordinal := self._stored.ordinal(each)) is not None}
        steps: dict[RevisionId, int] = {}
        for at, ordinal in enumerate(self.line(self._wants[0]) if left else ()):
            if ordinal in left:
                left.remove(ordinal)
                steps[self._stored.revision(ordinal)] = at
            if not left:
                break
        return [max(0, self._last - steps.get(revision, self._last)) for revision in revisions]

    @functools.cached_property
    def _last(self) -> int:
        """The want's: what the attributes of a ref say of it, where it is a tip; else counted."""
        tip = self._wants[0]
        for value in self._stored.refs().values():
            self._stored.charge(len(value))
            for each in value:
                if each.id == tip and (number := number_in(each.attributes)):
                    return number
        return self.line(tip).length()


class ChosenParts:
    """What is sent of chosen revisions and of trees."""

    def __init__(
        self,
        stored: RepositoryView,
        ordinals: Sequence[int],
        chosen: RevisionsField,
        trees: TreesField,
        of: Sequence[RevisionId],
    ) -> None:
        """`of`: the revisions of `trees`."""
        self._stored = stored
        self._ordinals = ordinals
        self._chosen = chosen
        self._trees = trees
        self._of = tuple(of)
        self._walked: set[Key] = set()

    def pieces(self) -> Iterator[Piece]:
        """In the order in which they are sent.

        Raises:
            CorruptRecord: a tree cannot be read.
        """
        stored, trees = self._stored, self._trees
        yield from self._revisions()
        pairs = self._pairs()
        changed = self._changed(pairs) if trees.changed else None
        named = () if trees.changed and len(self._of) > 1 and len(set(self._of)) == 1 else self._of
        wanted = dict.fromkeys([*named, *itertools.chain.from_iterable(pairs if named or trees.each else ())])
        also = self._named(wanted) if len(wanted) > 1 and self._trees.paths else set()
        had = parts.HadTrees(stored.record, stored.charge)
        for revision in dict.fromkeys(trees.had):
            ordinal = stored.ordinal(revision)
            if ordinal is not None:
                with damage_of(revision, TREE):
                    # What says which tree it is, and nothing of that.
                    yield ordinal, [*_described(revision), *parts.tree(stored.record, revision, (), set())]
                    had.add(revision)
        for revision in wanted:
            with damage_of(revision, TREE):
                pages, texts = had.shared(revision)
            self._walked |= pages
            yield from self._tree(revision, changed, also, texts)
        for key in trees.files:
            brought = stored.ordinal(parts.bringer(key))
            if brought is not None:
                yield brought, [(TEXT, key), *_described(stored.revision(brought))]

    def _revisions(self) -> Iterator[Piece]:
        chosen, last = self._chosen, len(self._ordinals) - self._chosen.ends
        for at, ordinal in enumerate(self._ordinals):
            is_end = at < chosen.ends or at >= last
            speaks = is_end or not chosen.bare or (chosen.merges and len(self._stored.parents(ordinal)) > 1)
            yield ordinal, _described(self._stored.revision(ordinal)) if speaks else ()

    def _pairs(self) -> list[tuple[RevisionId, ...]]:
        """The revisions whose trees are compared: a chosen one and its first parent, where that is here; neighbours."""
        stored = self._stored
        pairs: list[tuple[RevisionId, ...]] = [self._of] if len(self._of) == 1 else list(itertools.pairwise(self._of))
        for ordinal in self._ordinals if self._trees.each else ():
            before = stored.first_parent(ordinal)
            near = [ordinal] if before is None else [ordinal, before]
            pairs.append(tuple(map(stored.revision, near)))
        return pairs

    def _named(self, revisions: Iterable[RevisionId]) -> set[bytes]:
        """What lies at the paths in any of some trees: it may have been moved between them."""
        paths = [path for path in self._trees.paths or () if path]
        found: set[bytes] = set()
        for revision in revisions:
            with damage_of(revision, TREE):
                found |= parts.named(self._stored.record, revision, paths, self._stored.charge)
        return found

    def _changed(self, pairs: Iterable[tuple[RevisionId, ...]]) -> set[Key]:
        """The texts that one tree of a pair has and the other has not."""
        found: set[Key] = set()
        for pair in pairs:
            with damage_of(pair[0], TREE):
                found |= parts.changed(self._stored.record, pair[0], pair[1] if len(pair) > 1 else None)
        return found

    def _tree(
        self,
        revision: RevisionId,
        changed: Collection[Key] | None,
        also: Collection[bytes],
        had: Collection[Key],
    ) -> Iterator[Piece]:
        """`changed`: the texts to be sent; None: all but those in `had`. `also`: what has a place of its own here."""
        stored, trees, read = self._stored, self._trees, self._stored.record
        texts: list[Key] = []
        bringers: dict[int, None] = {}

        def places() -> Iterator[tuple[int, Key]]:
            yield from _described(revision)
            brought_by: set[RevisionId] | None = set() if trees.bringers else None
            with damage_of(revision, TREE):
                paths, walked, charge = trees.paths, self._walked, stored.charge
                for kind, key in parts.tree(read, revision, paths, walked, also, brought_by, charge):
                    if kind == TEXT:
                        if key in had or (changed is not None and key not in changed):
                            continue
                        texts.append(key)
                        if not trees.texts or trees.versions:
                            continue
                        if trees.changed and (brought := stored.ordinal(parts.bringer(key))) is not None:
                            bringers[brought] = None
                    yield kind, key
            here = [each for name in brought_by or () if (each := stored.ordinal(name)) is not None]
            bringers.update(dict.fromkeys(sorted(here)))
            for text in texts if trees.versions else ():
                for bringer, key in parts.versions(read, text):
                    found = stored.ordinal(bringer)
                    if found is not None:  # A ghost has a text, and says nothing of itself.
                        bringers[found] = None
                    yield TEXT, key

        # Texts side by side, and revisions after them: what is alike compresses better the nearer it is.
        yield ordinal_of(stored, revision), places()
        for found in bringers:
            yield found, _described(stored.revision(found))


def _described(revision: RevisionId) -> list[tuple[int, Key]]:
    """What a revision says of itself."""
    return [(REVISION, revision), (SIGNATURE, revision)]
