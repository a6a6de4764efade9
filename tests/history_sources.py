"""A history in memory, as the source of a push."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from builders import GIT, KINDS, SETTINGS, History

from smartserver.client.updates import NewRepository
from smartserver.records.bases import Candidate, NewRecord, SegmentWriter
from smartserver.records.model import GraphNode, Key, Parent, RevisionId

NEW = NewRepository(GIT, KINDS, dict(SETTINGS))


@dataclass
class HistorySource:
    """A history as the source of a push."""

    history: History
    planned: list[int] = field(default_factory=list)
    """The number of revisions in each plan."""
    bases: dict[bytes, Key] = field(default_factory=dict)
    """By path: the delta base of its record in a plan that may use it, even an unfit one. Other records have none."""
    halfway: Callable[[], None] = lambda: None
    """Called after half of the segments of a push."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> HistoryPlan:
        had = self.history.ancestors(haves)
        wanted = self.history.ancestors(tips) - had
        plan = HistoryPlan(self.history, [each for each in self.history.parents if each in wanted], self.bases)
        plan.halfway = self.halfway
        self.planned.append(len(plan.revisions))
        return plan


@dataclass
class HistoryPlan:
    """Revisions of a history, parents first."""

    history: History
    revisions: list[RevisionId]
    bases: Mapping[bytes, Key] = field(default_factory=dict)
    without: frozenset[Key] = frozenset()
    halfway: Callable[[], None] = lambda: None

    @property
    def graph(self) -> Sequence[GraphNode]:
        return [self.history.announced(each) for each in self.revisions]

    def segments(self) -> Iterator[bytes]:
        usable = {path: key for path, key in self.bases.items() if key not in self.without}
        for number, each in enumerate(self.revisions):
            if number == len(self.revisions) // 2:
                self.halfway()
            if self.bases or self.without:
                yield segment_on(self.history, each, usable)
            else:
                yield self.history.segment(each)

    def without_bases(self, keys: Collection[Key]) -> HistoryPlan:
        return HistoryPlan(self.history, self.revisions, self.bases, self.without | frozenset(keys))


def segment_on(history: History, revision: RevisionId, bases: Mapping[bytes, Key]) -> bytes:
    """Return a revision's segment in which only records of the paths in `bases` have a base, the one named there."""
    writer = SegmentWriter(KINDS, bulk=False, texts=lambda _kind, key: history.objects[key].text)
    items = []
    for key, path in history.introduced[revision]:
        record = history.objects[key]
        candidates = [Candidate(bases[path])] if path in bases else []
        items.append(NewRecord(0, key, record.meta, record.text, candidates, path))
    return writer.segment(revision, [Parent(each) for each in history.parents[revision]], items)
