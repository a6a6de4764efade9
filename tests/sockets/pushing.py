"""Pushes and pulls through the client's library, where git is not what is tried, of histories in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from history_sources import NEW, HistorySource

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import RefUpdate, UpdateOutcome
from smartserver.records.segment import SegmentStream


@contextmanager
def connected(port: int, path: str = "p", folder: str | None = None) -> Iterator[RemoteRepository]:
    """A repository of a server on this machine, over a connection of its own."""
    with Client(lambda: TcpMedium("127.0.0.1", port)) as client:
        yield RemoteRepository(client, path, Knowledge(folder, f"hpss://127.0.0.1:{port}/{path}"))


def push(remote: RemoteRepository, source: HistorySource, ref: bytes, tip: bytes) -> UpdateOutcome:
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
