"""What a fetch pulls, put into the repository: the pull comes first, for git names its wants once it has the refs."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Container, Iterator, Sequence

from smartserver.client.body import OnSent
from smartserver.client.exchange import PullAnswer
from smartserver.client.repository import RemoteRepository
from smartserver.errors import MissingRevision, WrongVcs, place
from smartserver.plugins.git.terminal import CannotGoOn, Terminal
from smartserver.plugins.git.wants import Wants
from smartserver.plugins.git.words import ADVICE
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.model import Kind
from smartserver.records.segment import SegmentStream
from smartserver.records.varint import Malformed
from smartserver.spans import Part, span
from smartserver.vcs.git.repository import GitRepository
from smartserver.verbs.repository_pull import MAX_HAVES


class Fetch:
    """The pull of one command, and the packs it has become."""

    def __init__(self, path: str, repository: RemoteRepository, terminal: Terminal) -> None:
        """`path`: the repository's, in messages."""
        self._path = path
        self._repository = repository
        self._terminal = terminal
        self._pulled: PullAnswer | None = None
        self.keeps: list[str] = []
        """Files that keep new packs from being collected, removed at the end. A pack whose file stays is never
        repacked."""

    def close(self) -> None:
        """Let go of the new packs: refs name them now, or never will."""
        for keep in self.keeps:
            with contextlib.suppress(OSError):
                os.unlink(keep)

    def pull(self, local: GitRepository, wanted: Wants, *, refetch: bool = False) -> None:
        """Learn the refs and pull what git will want; its objects stay in the unread stream until `insert`.

        `refetch`: pull all of it, as into an empty repository.
        """
        knowledge = self._repository.knowledge
        with span(Part.LOCAL, "find what is here"):
            haves = [] if refetch else local.complete_haves(knowledge.tips(), MAX_HAVES)
        self._pulled = self._repository.pull(haves, wanted.refs, wanted.ids, wanted.follow)

    def bring(self, local: GitRepository, ids: Collection[bytes], *, as_pack: bool = False) -> None:
        """Put what was pulled into the repository, with `as_pack` as a pack however small it is; what of `ids` was not
        foreseen takes another pull.

        Raises:
            CannotGoOn: what came cannot be read, or the remote no longer has what it listed.
            WrongVcs: the remote's object format is another.
        """
        inserted = self._insert(local, as_pack)
        with span(Part.LOCAL, "find what is here"):
            missing = _absent(local, [key for key in ids if key not in inserted])
        if not missing:
            return
        try:
            self.pull(local, Wants((), tuple(missing)))
        except MissingRevision as wrong:
            # Only a server put back to an earlier state can be at the version remembered with other refs.
            self._repository.knowledge.forget()
            raise CannotGoOn(
                f"{wrong}; what was remembered of {place(self._path)} is forgotten now: try again"
            ) from None
        self._insert(local, as_pack)

    def _insert(self, local: GitRepository, as_pack: bool) -> Container[bytes]:
        """Put what was pulled into the repository: the keys of its objects."""
        pulled, self._pulled = self._pulled, None
        if pulled is None or not pulled.result.segments:
            return ()
        vcs = self._repository.knowledge.vcs
        if vcs != local.vcs:
            raise WrongVcs(self._path, vcs, local.vcs)
        segments = segments_of(pulled, local.kinds, functools.partial(self._terminal.moved, "Receiving objects"))
        try:
            with span(Part.LOCAL, "store"):
                from smartserver.vcs.git.insert import Inserter

                inserter = Inserter(local, self.keeps, say=self._terminal.say, as_pack=as_pack)
                inserter.insert(segments)
        except Malformed as wrong:
            why = f"what the server sent of {place(self._path)} cannot be read: {wrong}"
            raise CannotGoOn(f"{why} {ADVICE}") from wrong
        return inserter.inserted


def segments_of(pulled: PullAnswer, kinds: Sequence[Kind], moved: OnSent) -> Iterator[bytes]:
    """The whole segments of a body as they come. `moved` is called with the bytes and segments so far, and the segments
    in all.

    Raises:
        Malformed: they cannot be read.
        CannotGoOn: there are not as many as were announced.
    """
    stream = SegmentStream(graph_first=False, limit=MAX_TAKEN)
    count = size = 0
    for chunk in pulled.body:
        stream.feed(chunk)
        size += len(chunk)
        for segment in stream.segments():
            yield segment
            count += 1
        if count < pulled.result.segments:
            moved(size, count, pulled.result.segments)
    stream.finish()
    if count != pulled.result.segments:
        raise CannotGoOn(f"the server sent {count} revisions, having announced {pulled.result.segments}")
    moved(size, count, count)


def _absent(local: GitRepository, ids: Collection[bytes]) -> list[bytes]:
    """Those of `ids` that are not here."""
    here = {key for key, _ in local.existing([key.hex().encode() for key in ids])}
    return sorted(set(ids) - here)
