"""Pushes and pulls through the client's library, where git is not what is tried, of histories in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from builders import GIT, KINDS, SETTINGS, History

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, RefUpdate, UpdateOutcome
from smartserver.records.model import GraphNode, Key, RevisionId
from smartserver.records.segment import SegmentStream

NEW = NewRepository(GIT, KINDS, dict(SETTINGS))


class Planned:
    """Revisions of a history, parents first."""

    def __init__(self, history: History, revisions: Sequence[bytes], halfway: Callable[[], None]) -> None:
        self._history = history
        self._revisions = revisions
        self._halfway = halfway

    @property
    def graph(self) -> Sequence[GraphNode]:
        return [self._history.announced(revision) for revision in self._revisions]

    def segments(self) -> Iterator[bytes]:
        for number, revision in enumerate(self._revisions):
            if number == len(self._revisions) // 2:
                self._halfway()
            yield self._history.segment(revision)

    def without_bases(self, keys: Collection[Key]) -> Planned:
        raise AssertionError(f"all bases are among what is sent or held: {keys!r}")


class Source:
    """A history in memory; `halfway` is called when half of a push has been handed over."""

    def __init__(self, history: History, halfway: Callable[[], None] = lambda: None) -> None:
        self._history = history
        self._halfway = halfway

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Planned:
        held = self._history.ancestors(haves)
        wanted = self._history.ancestors(tips) - held
        return Planned(self._history, [each for each in self._history.parents if each in wanted], self._halfway)


@contextmanager
def connected(port: int, path: str = "p", folder: str | None = None) -> Iterator[RemoteRepository]:
    """A repository of a server on this machine, over a connection of its own."""
    with Client(lambda: TcpMedium("127.0.0.1", port)) as client:
        yield RemoteRepository(client, path, Knowledge(folder, f"hpss://127.0.0.1:{port}/{path}"))


def push(remote: RemoteRepository, source: Source, ref: bytes, tip: bytes) -> UpdateOutcome:
    """Move one ref forward."""
    (done,) = remote.push(PushRequest([RefUpdate(ref, tip)], source, NEW)).refs
    return done


def count_segments(body: Iterable[bytes]) -> int:
    """Read a body to its end: how many whole segments it has."""
    stream = SegmentStream(graph_first=False)
    count = 0
    for chunk in body:
        stream.feed(chunk)
        count += sum(1 for _ in stream.segments())
    stream.finish()
    return count
