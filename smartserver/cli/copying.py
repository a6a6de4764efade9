"""The common part of `push` and `pull`: copy an hpss repository into another, with its refs, tags and maps. Only the
content that the target lacks is sent.

Source and target are a folder, a remote store or a repository on a server. The target is always accessed through a
server; this process serves a target that is not on one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import (
    above,
    act_as_owner,
    check_meant,
    cluster_of,
    count,
    is_store_url,
    is_url,
    local_place,
    open_store,
)
from smartserver.cli.progress import ProgressLine
from smartserver.cli.session import AGENT, repository_on_server, tracing_for
from smartserver.cli.user import user
from smartserver.client.body import SourceFailed, of_source
from smartserver.client.call import Caller, Client
from smartserver.client.copy import CannotCopy, CopySource
from smartserver.client.knowledge import Knowledge
from smartserver.client.repository import RemoteRepository
from smartserver.client.store_url import VFS
from smartserver.client.updates import Outcome, PushOutcome
from smartserver.errors import IncompleteRepository, NotDone, shown
from smartserver.records.model import GraphNode, Key, RevisionId
from smartserver.server import jail
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from smartserver.store.model import PullPlan
from smartserver.store.preview_folder import is_preview
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import Transaction
from smartserver.verbs.map_update import MapKind, Verdict

HOME = "~"
"""The name that, at the beginning of the path of an sftp:// URL, means the home of the account."""

AT_ONCE = 1 << 20
"""Bytes of segments to read at a time."""


@contextmanager
def repository_at(place: str, flags: Set[str], *, writes: bool = True) -> Iterator[RemoteRepository]:
    """Open the repository at a place, which need not exist yet, through a server. `writes`: true if it may be changed,
    so that root must become the owner of its folder.

    Raises:
        BadFlag: as `client_for`.
    """
    if is_url(place):
        with repository_on_server(place, flags) as repository:
            yield repository
        return
    check_meant(place)
    if writes:
        act_as_owner_at(place)
    served, name = _parts(place)
    site = Site(open_store(served, flags, obeys_preview=True), name=served, tidies=False)

    def connected() -> SameProcess:
        return SameProcess(site, invoking_user(user()))

    with (
        tracing_for(flags, behind=above(served)) as tracing,
        Client(connected, tracing.observers, Caller(AGENT, above(served), traceparent=tracing.traceparent)) as client,
    ):
        yield RemoteRepository(client, name, Knowledge(None, place))


def act_as_owner_at(place: str) -> None:
    """If root runs this process, change to the owner of a place's folder, or of the folder in which that will be
    created."""
    if not is_store_url(place):
        served, name = _parts(place)
        folders = [each for each in (os.path.join(served, name), served) if os.path.isdir(each)]
        if folders:
            act_as_owner(folders[0])


def _parts(place: str) -> tuple[str, str]:
    """Split a place into the folder to serve and the path of the repository in it. Missing folders in that path are
    created, as in a push of git. The served folder must exist, so that a mistyped path is noticed.

    On this machine, the innermost existing folder above the place is served. In a URL it is the outermost folder (of a
    vfs:// server, the folder that it serves), or the whole store of a bucket whose logs are in a database. Names that a
    server would not serve belong to the served folder.
    """
    place = local_place(place)
    if not is_store_url(place):
        if is_preview(place, os.environ):
            return place, ""
        parts = os.path.abspath(place).strip("/").split("/")
        there = next((at for at in range(len(parts) - 1, 1, -1) if os.path.isdir(f"/{'/'.join(parts[:at])}")), 1)
        at = _begins(parts, there)
        return f"/{'/'.join(parts[:at])}", "/".join(parts[at:])
    try:
        url = urlsplit(place)
    except ValueError:
        return place, ""  # `open_store` raises the error.
    quoted = url.path.strip("/").split("/")
    parts = [unquote(each, errors="surrogateescape") for each in quoted]
    least = int(url.scheme != VFS and (len(parts) > 1 or parts == [HOME]))
    if url.scheme == "s3" and (cluster := cluster_of(place)) is not None:
        least = len(parts) - len(cluster[1].split("/")) if cluster[1] else len(parts)
    at = _begins(parts, least)
    if at == len(parts):
        return place, ""
    return url._replace(path=f"/{'/'.join(quoted[:at])}").geturl(), "/".join(parts[at:])


def _begins(parts: Sequence[str], least: int) -> int:
    """Return the lowest index, at least `least`, from which on a server would accept all names."""
    odd = (at for at in range(len(parts), least, -1) if "/" in parts[at - 1] or not jail.is_name(parts[at - 1]))
    return next(odd, least)


# -- the source of a push


def of_snapshot(snapshot: Snapshot) -> CopySource:
    """Return the content of a repository in a store, for a copy."""
    state = snapshot.state
    maps = {
        name: (MapKind(state.map_kind(name) or MapKind.OPAQUE), dict(entries.items()))
        for name, entries in state.maps.items()
    }
    return CopySource(state.vcs, dict(state.settings), dict(state.refs().items()), maps)


class StoreSource:
    """A `PushSource` of a repository in a store. Its segments are sent in their stored form."""

    def __init__(self, repository: PackRepository) -> None:
        """Read the newest state.

        Raises:
            IncompleteRepository: an earlier copy into the repository is not complete.
        """
        self.snapshot = repository.snapshot()
        if self.snapshot.state.is_incomplete:
            raise IncompleteRepository(repository.path)
        self._transaction = Transaction(repository.path, self.snapshot)
        self.size = self.snapshot.extent[1]
        """The bytes of all packs."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> StorePlan:
        """Return the plan for the revisions that `tips` reach and `haves` do not."""
        with of_source():
            stored = [tip for tip in tips if self.snapshot.ordinal(tip) is not None]  # A tag may name a missing one.
            plan = self._transaction.plan_pull(stored, list(haves))
            return StorePlan(self.snapshot, plan)

    def beyond(self, tips: Sequence[RevisionId], others: Sequence[RevisionId]) -> Iterator[GraphNode]:
        """Yield the revisions that `tips` reach and `others` do not reach."""
        snapshot = self.snapshot
        wants, haves = ([at for at in map(snapshot.ordinal, ids) if at is not None] for ids in (tips, others))
        with of_source():
            for ordinal in snapshot.graph.missing(wants, haves):
                yield GraphNode(snapshot.revision(ordinal), snapshot.parents(ordinal))


class StorePlan:
    """The plan of a push from a repository in a store: the revisions to send."""

    def __init__(self, snapshot: Snapshot, plan: PullPlan) -> None:
        self._snapshot = snapshot
        self._plan = plan
        ordinals = [ordinal for start, stop in plan.ranges for ordinal in range(start, stop)]
        self.graph: Sequence[GraphNode] = [
            GraphNode(snapshot.revision(ordinal), snapshot.parents(ordinal)) for ordinal in ordinals
        ]
        self.sizes = [snapshot.size(((ordinal, ordinal + 1),)) for ordinal in ordinals]
        """The bytes of each segment."""

    def segments(self) -> Iterator[bytes]:
        """Yield each segment in its stored form. Many segments are read at a time."""
        left = iter(self.sizes)
        for start, stop in self._plan.ranges:
            while start < stop:
                sizes = [next(left)]
                while start + len(sizes) < stop and sum(sizes) < AT_ONCE:
                    sizes.append(next(left))
                with of_source():
                    reader = self._snapshot.read_ranges(((start, start + len(sizes)),))
                    whole = memoryview(reader.read(reader.left))
                for size in sizes:
                    yield bytes(whole[:size])
                    whole = whole[size:]
                start += len(sizes)

    def without_bases(self, keys: Collection[Key]) -> StorePlan:
        """Refuse. A target needs such a plan only if it lacks a record of a revision that it has, because the bases of
        stored records are records of ancestors.

        Raises:
            CannotCopy: always.
        """
        raise CannotCopy(
            f"the target is damaged: it lacks {shown(min(keys))} of a revision that it has: see `smartserver verify`"
        )


# -- the outcome


@contextmanager
def between(source: str, target: str) -> Iterator[None]:
    """Turn an error of a copy into a `CommandError` that names the side where it happened."""
    with one_line(target):
        try:
            yield
        except CannotCopy as error:
            raise CommandError(str(error)) from error
        except SourceFailed as failed:
            with one_line(source):
                raise failed.why from failed


def report(pushed: PushOutcome, kept: int) -> None:
    """Print the outcome of a copy. `kept`: the number of map entries that differ and were not replaced.

    Raises:
        CommandError: a ref or a map was refused.
    """
    refused = [
        *[(each.update.ref, each.error) for each in pushed.refs],
        *[(each.update.map.encode(), each.error) for each in pushed.maps],
    ]
    wrong = [f"{shown(name)}: {error}" for name, error in refused if not isinstance(error, NotDone | None)]
    changed = [ref for ref in pushed.refs if ref.outcome is Outcome.DONE]
    entries = [entry for update in pushed.maps for entry in update.entries]
    done = sum(entry.verdict is Verdict.DONE for entry in entries)
    if changed or done or pushed.revisions or pushed.created:
        also = f", {_entries(done)}" if done else ""
        made = " (a new repository)" if pushed.created else ""
        click.echo(f"{count(pushed.revisions, 'revision')}, {count(len(changed), 'ref')}{also}{made}")
    elif not wrong:
        click.echo("nothing new")
    for each in changed:
        click.echo(f"    {shown(each.update.ref)}{'' if each.update.tip else ' (deleted)'}")
    if kept:
        left = "differs and was left as it is (--force replaces it)"
        if kept > 1:
            left = "differ and were left as they are (--force replaces them)"
        click.echo(f"{_entries(kept)} {left}", err=True)
    if wrong:
        raise CommandError("; ".join(wrong))


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'} of maps"


def on_terminal(what: str) -> ProgressLine:
    """Return a progress line for standard error, which is shown only on a terminal."""
    return ProgressLine(what, sys.stderr.isatty())
