"""Pulls the objects that git will probably want, and inserts them into the repository. The pull is sent before git
names its wants, because git names them only after it has the refs."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Container, Iterator, Sequence

import msgspec

from smartserver.client.body import OnSent
from smartserver.client.places import ADVICE
from smartserver.client.repository import RemoteRepository
from smartserver.errors import MissingRevision, Unsupported, WrongVcs, place
from smartserver.plugins.git.options import Options
from smartserver.plugins.git.terminal import CannotGoOn, Terminal
from smartserver.plugins.git.wants import Wants
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.model import Kind
from smartserver.records.segment import SegmentStream
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed
from smartserver.spans import Part, span
from smartserver.vcs.git.repository import GitRepository
from smartserver.vcs.git.selector import MAX_DEPTH, FetchSelector, decode_cut, encode
from smartserver.vcs.git.shallow import ShallowChange
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.repository_pull import MAX_HAVES, MAX_WANTS


class Arrival(msgspec.Struct, frozen=True):
    """The answer to a pull."""

    body: Iterator[bytes]
    segments: int | None
    """The number of segments; None if the server did not announce the number."""
    shallow: tuple[set[bytes], set[bytes]] | None = None
    """The shallow commits before and after the pull; None if they do not change."""


class Fetch:
    """The pull of one command, and the packs created from it."""

    def __init__(self, path: str, repository: RemoteRepository, terminal: Terminal, options: Options) -> None:
        """`path`: the path of the repository in messages."""
        self._path = path
        self._repository = repository
        self._terminal = terminal
        self._options = options
        self._pulled: Arrival | None = None
        self.sought = b""
        """The objects that git requested, one line each: an id and a name."""
        self.keeps: list[str] = []
        """The `.keep` files that this fetch created. Git never repacks a pack with such a file. The files are removed
        at the end."""

    def close(self) -> None:
        """Remove the `.keep` files. Git has written the refs that name the new packs by now, or never will."""
        for keep in self.keeps:
            with contextlib.suppress(OSError):
                os.unlink(keep)

    def pull(self, local: GitRepository, wanted: Wants) -> None:
        """Request the predicted wants and the refs. The objects stay in the unread stream until `bring`."""
        options = self._options
        with span(Part.LOCAL, "find what is here"):
            shallow = local.shallow()
            haves = (
                []
                if options.refetch or options.lazy
                else local.complete_haves(self._repository.knowledge.tips(), MAX_HAVES)
            )
        part = bool(options.filters or options.promised or local.is_partial)
        if part or (options.deepens and options.depth != MAX_DEPTH) or (shallow and not options.depth):
            self._pulled = self._pull_part(local, wanted, haves, shallow)
            return
        absent: list[bytes] = []
        if shallow:  # The whole history is wanted: commits below the cut are named as wanted and missing.
            with span(Part.LOCAL, "find what is here"):
                absent = parents_of(local, local.present(shallow))
            if len(absent) > MAX_IDS:  # A pull can name no more; the selector of a read takes more shallow commits.
                self._pulled = self._pull_part(local, wanted, haves, shallow)
                return
        try:
            pulled = self._repository.pull(haves, wanted.refs, (*wanted.ids, *absent), wanted.follow, absent)
        except MissingRevision:
            if not absent:
                raise
            # History was cut by another remote, at a commit that this one lacks: it stays cut there.
            self._pulled = self._pull_part(local, wanted, haves, shallow)
            return
        self._pulled = Arrival(pulled.body, pulled.result.segments, (shallow, set()) if shallow else None)

    def _pull_part(self, local: GitRepository, wanted: Wants, haves: Sequence[bytes], shallow: set[bytes]) -> Arrival:
        """Request a part of the commits, or of their objects."""
        options = self._options
        if options.deepens:  # Some shallow commits may never have come; history below them must not count as present.
            with span(Part.LOCAL, "find what is here"):
                here = local.present(shallow)
        else:
            here = shallow
        selector = FetchSelector(
            sorted(here),
            options.depth,
            options.relative,
            local.seconds(options.since) if options.since else None,
            list(options.excluded),
            options.filters,
            list(wanted.follow),
            not (local.is_partial or options.promised),
        )
        try:
            read = self._repository.read(encode(selector), wanted.refs, wanted.ids, haves)
        except Unsupported as error:
            vcs = self._repository.knowledge.vcs
            if vcs and not vcs.startswith("git "):
                raise WrongVcs(self._path, vcs, "git") from error
            raise
        try:
            # A clone gives the local repository this format only when it has the refs.
            cut = decode_cut(read.result.said, system_of(self._repository.knowledge.vcs).hash_bytes)
        except ValueError as error:
            raise self._unreadable(error) from error
        after = (shallow | set(cut.shallow)) - set(cut.unshallow)
        return Arrival(read.segments, None, (shallow, after) if after != shallow else None)

    def bring(self, local: GitRepository, ids: Collection[bytes], *, as_pack: bool = False) -> None:
        """Insert the pull into the repository, with `as_pack` as a pack however small it is. The objects of `ids` that
        were not predicted are fetched with further pulls.

        Raises:
            CannotGoOn: the answer cannot be read, or the remote no longer has what it listed.
            WrongVcs: the remote has another object format.
            ShallowFileError: the file of shallow commits cannot be written.
        """
        inserted = self._insert(local, as_pack)
        with span(Part.LOCAL, "find what is here"):
            left = dict.fromkeys(key for key in ids if key not in inserted)
            # Git asks for no object that a partial clone has.
            missing = list(left if self._options.lazy else left.keys() - local.present(left))
        for at in range(0, len(missing), MAX_WANTS):
            self._bring_missing(local, missing[at : at + MAX_WANTS], as_pack)

    def _bring_missing(self, local: GitRepository, missing: Sequence[bytes], as_pack: bool) -> None:
        options = self._options
        if options.relative:  # The first pull has deepened history from where it was cut before.
            options.depth, options.relative = 0, False
        try:
            self.pull(local, Wants((), tuple(missing)))
        except MissingRevision as error:
            # Only a server restored to an earlier state can have the remembered version with other refs.
            self._repository.knowledge.forget()
            raise CannotGoOn(f"{error}; the cached state of {place(self._path)} was discarded: try again") from None
        self._insert(local, as_pack)

    def _insert(self, local: GitRepository, as_pack: bool) -> Container[bytes]:
        """Insert the pull into the repository, and return the keys of its objects."""
        pulled, self._pulled = self._pulled, None
        if pulled is None or (pulled.segments == 0 and pulled.shallow is None):
            return ()
        vcs = self._repository.knowledge.vcs
        if vcs != local.vcs:
            raise WrongVcs(self._path, vcs, local.vcs)
        segments = segments_of(pulled, local.kinds, functools.partial(self._terminal.moved, "Receiving objects"))
        with contextlib.ExitStack() as until, span(Part.LOCAL, "store"):
            from smartserver.vcs.git.insert import Inserter

            change = None
            if pulled.shallow is not None:
                change = until.enter_context(ShallowChange(local.shallow_file, *pulled.shallow))
            inserter = Inserter(
                local,
                self.keeps,
                say=self._terminal.say,
                as_pack=as_pack,
                promised=self.sought if self._options.promised else None,
                shallow_file=change.lock if change is not None else "",
            )
            try:
                inserter.insert(segments)
            except Malformed as error:
                raise self._unreadable(error) from error
            if change is not None:
                change.commit()
        return inserter.inserted

    def _unreadable(self, error: Exception) -> CannotGoOn:
        return CannotGoOn(f"the server's data of {place(self._path)} cannot be read: {error} {ADVICE}")


def parents_of(local: GitRepository, commits: Collection[bytes]) -> list[bytes]:
    """Return the parents of commits, including those that the repository lacks."""
    found = dict.fromkeys(
        parent for commit in commits for parent in local.format.commit(commit, local.objects.read(commit).text)[1]
    )
    return list(found)


def segments_of(pulled: Arrival, kinds: Sequence[Kind], moved: OnSent) -> Iterator[bytes]:
    """Yield the whole segments of a body as they arrive. `moved` shows the progress, like `Terminal.moved`.

    Raises:
        Malformed: the body cannot be read.
        CannotGoOn: the number of segments differs from the announced number.
    """
    stream = SegmentStream(graph_first=False, limit=MAX_TAKEN)
    count = size = 0
    for chunk in pulled.body:
        stream.feed(chunk)
        size += len(chunk)
        for segment in stream.segments():
            yield segment
            count += 1
        if count != pulled.segments and (count or pulled.segments):
            moved(size, count, pulled.segments or 0)
    stream.finish()
    if pulled.segments is not None and count != pulled.segments:
        raise CannotGoOn(f"the server sent {count} revisions, having announced {pulled.segments}")
    moved(size, count, count) if pulled.segments is not None else moved(size, 0, 0)
