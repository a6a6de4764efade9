"""What `push` and `pull` share: a repository of ours copied into another, with its refs, tags and maps; what is there
already is not sent.

Either is a folder, a store behind a link or a repository on a server. The one that is written to is always asked as a
server is: what is not on one is served by this process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import above, check_meant, count, is_store_url, is_url, near, open_store
from smartserver.cli.session import AGENT, client_for, observers_for
from smartserver.cli.user import user
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge, cache_folder
from smartserver.client.repository import Pulled, RemoteRepository
from smartserver.client.request import BodySource, Refusal
from smartserver.client.store_url import VFS
from smartserver.client.updates import Outcome, Pushed, RefUpdate, brought, call_of, map_updated, updated
from smartserver.errors import CorruptRecord, MissingReference, NoSuchRepository, NotDone, WrongParents, shown
from smartserver.records.model import Announced, Key, RefValue, RevisionId
from smartserver.records.system import system_of
from smartserver.server import jail
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from smartserver.store.model import PullPlan
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import RepositoryTransaction
from smartserver.verbs.declare import AnyVerb, Arguments, Result
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest, Verdict, map_update
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.rules import Rule
from smartserver.wire.limits import MAX_HAVES
from smartserver.wire.messages import RequestFlag
from transports.errors import CodedError

HEADS, TAGS = b"refs/heads/", b"refs/tags/"
"""What git's refs begin with."""

HOME = "~"
"""First in the path of an sftp:// URL it is the home of the account."""

AT_ONCE = 1 << 20
"""Bytes of segments read at a time."""

QUIET = 1.0
"""Seconds in which nothing is said of how far it is."""

OFTEN = 0.2
"""Seconds between two looks at how far it is."""

Maps = Mapping[str, tuple[MapKind, Mapping[bytes, bytes]]]
"""By name: what its values are, and its entries as they are kept."""


class Shown:
    """How far it is, said on a terminal once it takes a while."""

    def __init__(self, what: str, terminal: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._terminal = terminal
        self._clock = clock
        self._next = clock() + QUIET
        self._said = False

    def __call__(self, size: int, done: int, total: int) -> None:
        """So many bytes are moved, and so much of so much is done."""
        ends = done >= total
        if self._said if ends else self._terminal and self._clock() >= self._next:
            self._next, self._said = self._clock() + OFTEN, not ends
            share = f"{100 * done // max(total, 1)} %, {size / 1e6:.1f} MB"
            click.echo(f"\r{self._what}: {share}", err=True, nl=ends)


@contextmanager
def repository_at(place: str, flags: Set[str]) -> Iterator[RemoteRepository]:
    """The repository at a place, or where one may be made, as a server would show it.

    Raises:
        CommandError: it is no place, or hardly the one that is meant.
        BadFlag: as `client_for`.
    """
    if is_url(place):
        with client_for(place, flags) as (client, location):
            yield RemoteRepository(client, location.path, Knowledge(cache_folder(os.environ), location.key))
        return
    check_meant(place)
    served, name = _parts(place)
    site = Site(open_store(served, flags), name=served, tidies=False)

    def connected() -> SameProcess:
        return SameProcess(site, invoking_user(user()))

    with (
        observers_for(flags, behind=above(served)) as observers,
        Client(connected, observers, agent=AGENT, above=above(served)) as client,
    ):
        yield RemoteRepository(client, name, Knowledge(None, place))


def _parts(place: str) -> tuple[str, str]:
    """The folder that is served, and the path there: so that folders that are missing on the way are made, as where git
    pushes; but not the outermost, by which a mistyped path is noticed. Of a server that is the folder it serves. On
    this machine the innermost that is there is served. So is whatever has a part that no server would serve under that
    name.
    """
    place = near(place)
    if not is_store_url(place):
        parts = os.path.abspath(place).strip("/").split("/")
        there = next((at for at in range(len(parts) - 1, 1, -1) if os.path.isdir(f"/{'/'.join(parts[:at])}")), 1)
        at = _begins(parts, there)
        return f"/{'/'.join(parts[:at])}", "/".join(parts[at:])
    try:
        url = urlsplit(place)
    except ValueError:
        return place, ""  # `open_store` says why it is none.
    quoted = url.path.strip("/").split("/")
    parts = [unquote(each, errors="surrogateescape") for each in quoted]
    at = _begins(parts, int(url.scheme != VFS and (len(parts) > 1 or parts == [HOME])))
    if at == len(parts):
        return place, ""
    return url._replace(path=f"/{'/'.join(quoted[:at])}").geturl(), "/".join(parts[at:])


def _begins(parts: Sequence[str], least: int) -> int:
    """Where the names at the end begin that a server would serve; `least`: not before."""
    odd = (at for at in range(len(parts), least, -1) if "/" in parts[at - 1] or not jail.is_name(parts[at - 1]))
    return next(odd, least)


# -- what is copied


@dataclass(frozen=True)
class Copied:
    """What a repository has that another is to have."""

    vcs: str
    settings: Mapping[str, bytes]
    refs: Mapping[bytes, RefValue]
    maps: Maps

    def only(self, names: Sequence[str]) -> Copied:
        """The refs of these names and what belongs to them; all where no name is given.

        Raises:
            CommandError: there is none of that name.
        """
        if not names:
            return self
        refs = {ref: self.refs[ref] for name in names for ref in [self._named(name)]}
        belongs = tuple(ref + b"\0" for ref in refs)
        maps = {
            name: (kind, {key: value for key, value in entries.items() if key.startswith(belongs)})
            for name, (kind, entries) in self.maps.items()
        }
        return Copied(self.vcs, self.settings, refs, maps)

    def _named(self, name: str) -> bytes:
        raw = name.encode("utf-8", "surrogateescape")
        for ref in (raw, HEADS + raw, TAGS + raw):
            if ref in self.refs:
                return ref
        some = ", ".join(shown(ref) for ref in list(self.refs)[:8]) + (", ..." if len(self.refs) > 8 else "")
        raise CommandError(f"there is no ref {name!r}; there is {some or 'none'}")

    def ref_updates(self, *, force: bool) -> list[RefUpdate]:
        """How the other side's refs are to move.

        Raises:
            CommandError: a ref has several tips.
        """
        for name, value in self.refs.items():
            if len(value) != 1:
                why = "as a branch of Mercurial may, and this release sets refs to one: copy others by --ref NAME"
                raise CommandError(f"the ref {shown(name)} has {len(value)} tips, {why}")
        return [
            RefUpdate(
                name,
                tip.id,
                Rule.FORCE if force else Rule.NEW if name.startswith(TAGS) else Rule.FF,
                attributes=tip.attributes,
            )
            for name, (tip,) in sorted(self.refs.items())
        ]

    def differing(self, there: Knowledge) -> int:
        """How many entries of its maps are known to be another there."""
        known = {name: there.map(name) for name in self.maps}
        return sum(
            known[name].get(key, value) != value
            for name, (_, entries) in self.maps.items()
            for key, value in entries.items()
        )

    def map_updates(self, there: Knowledge, *, force: bool) -> list[MapUpdateRequest]:
        """How its maps are to change. What it is known to have is left out, unless it is to be so whatever is there."""
        updates: list[MapUpdateRequest] = []
        how = How.SET if force else How.ADD
        for name, (kind, entries) in sorted(self.maps.items()):
            known = there.map(name)
            by_ref: dict[bytes | None, list[EntryChange]] = {}
            for whole, value in entries.items():
                if force or known.get(whole) != value:
                    of, belongs, key = whole.partition(b"\0")
                    change = EntryChange(key if belongs else whole, value, how)
                    by_ref.setdefault(of if belongs else None, []).append(change)
            for ref, changes in by_ref.items():
                parts = [changes[at : at + MAX_IDS] for at in range(0, len(changes), MAX_IDS)]
                updates += [MapUpdateRequest(name, kind, part, ref) for part in parts]
        return updates


def of_snapshot(snapshot: Snapshot) -> Copied:
    """What a repository in a store has."""
    view = snapshot.view
    maps = {
        name: (MapKind(view.map_kind(name) or MapKind.OPAQUE), dict(entries.items()))
        for name, entries in view.maps.items()
    }
    return Copied(view.root.vcs, dict(view.root.settings), dict(view.refs().items()), maps)


def of_remote(known: Knowledge) -> Copied:
    """What a server has said that a repository has; of tags it is known that they are ids."""
    maps = {name: (MapKind.IDS if name == "tags" else MapKind.OPAQUE, known.map(name)) for name in known.maps()}
    return Copied(known.vcs, known.settings, known.refs(), maps)


# -- a repository in a store, as a push reads it


class Stored:
    """A `PushSource`: whatever lies there is sent as it lies. What goes wrong with it is a `CommandError` that names
    the place, so that it is not taken for an error of the other side."""

    def __init__(self, repository: PackRepository, place: str) -> None:
        self.snapshot = repository.snapshot()
        self._transaction = RepositoryTransaction(repository.path, self.snapshot)
        self._place = place

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> StoredPlan:
        """What lies there of `tips` and not of `haves`."""
        with one_line(self._place):
            plan = self._transaction.plan_pull(list(tips), list(haves))
            return StoredPlan(self.snapshot, plan, self._place)


class StoredPlan:
    """The revisions of a push."""

    def __init__(self, snapshot: Snapshot, plan: PullPlan, place: str) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._place = place
        ordinals = [ordinal for start, stop in plan.ranges for ordinal in range(start, stop)]
        self.graph: Sequence[Announced] = [
            Announced(snapshot.revision(ordinal), snapshot.parents(ordinal)) for ordinal in ordinals
        ]

    def segments(self) -> Iterator[bytes]:
        """Each as it lies, many of them read at a time."""
        for start, stop in self._plan.ranges:
            while start < stop:
                sizes = [self._snapshot.size(((start, start + 1),))]
                while start + len(sizes) < stop and sum(sizes) < AT_ONCE:
                    sizes.append(self._snapshot.size(((start + len(sizes), start + len(sizes) + 1),)))
                with one_line(self._place):
                    reader = self._snapshot.read_ranges(((start, start + len(sizes)),))
                    whole = memoryview(reader.read(reader.left))
                for size in sizes:
                    yield bytes(whole[:size])
                    whole = whole[size:]
                start += len(sizes)

    def without_bases(self, keys: Collection[Key]) -> StoredPlan:
        """There is no such plan: what lies in a repository rests on what its ancestors brought.

        Raises:
            CommandError: always.
        """
        raise CommandError(f"the other side lacks {shown(min(keys))} though it has what brought it: verify it")


# -- what became of it


@contextmanager
def sent_from(place: str) -> Iterator[None]:
    """Have what the written side says is wrong with the records that came name the place they came from: nothing of
    its own is damaged.

    Raises:
        CommandError: a record is not what its key says.
    """
    try:
        yield
    except (CorruptRecord, WrongParents, MissingReference) as wrong:
        raise CommandError(f"{place}: {wrong}") from wrong


def report(pushed: Pushed, kept: int) -> None:
    """Say what was done; `kept`: entries of maps that differ and were not to be replaced.

    Raises:
        CommandError: something was refused.
    """
    refused = [
        *[(each.update.ref, each.error) for each in pushed.refs],
        *[(each.update.map.encode(), each.error) for each in pushed.maps],
    ]
    wrong = [f"{shown(name)}: {error}" for name, error in refused if not isinstance(error, NotDone | None)]
    changed = [each for each in pushed.refs if each.outcome is Outcome.DONE]
    entries = [entry for update in pushed.maps for entry in update.entries]
    done = sum(entry.verdict is Verdict.DONE for entry in entries)
    if changed or done or pushed.revisions or pushed.created:
        also = f", {_entries(done)}" if done else ""
        made = " (a new repository)" if pushed.created else ""
        click.echo(f"{count(pushed.revisions, 'revision')}, {count(len(changed), 'ref')}{also}{made}")
    elif not wrong:
        click.echo("nothing new")
    for each in changed:
        click.echo(f"    {shown(each.update.ref)}")
    if kept:
        left = "differs and was left as it is (--force replaces it)"
        if kept > 1:
            left = "differ and were left as they are (--force replaces them)"
        click.echo(f"{_entries(kept)} {left}", err=True)
    if wrong:
        raise CommandError("; ".join(wrong))


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'} of maps"


def on_terminal(what: str) -> Shown:
    """How far it is, on standard error."""
    return Shown(what, sys.stderr.isatty())


# -- a pull


@dataclass(frozen=True)
class Side:
    """One of the two repositories, and what the user calls it."""

    place: str
    repository: RemoteRepository


def bring(source: Side, target: Side, names: Sequence[str], *, force: bool) -> None:
    """Ask one repository for what the other lacks, put it there, and say what became of it.

    Raises:
        CommandError: there is no such ref, or something was refused, or one side failed: the message names it.
    """
    there, here = source.repository, target.repository
    made = False
    with one_line(target.place):
        try:
            here.learn_refs()
        except NoSuchRepository:
            made = True
    wanted = [form + name.encode("utf-8", "surrogateescape") for name in names for form in (b"", HEADS, TAGS)]
    with one_line(source.place):
        pulled = there.pull(here.knowledge.tips()[:MAX_HAVES], wanted or None)
    copied = of_remote(there.knowledge).only(names)
    if not made and here.knowledge.vcs != copied.vcs:
        both = f"{source.place} is a repository of {copied.vcs}, {target.place} one of {here.knowledge.vcs}"
        raise CommandError(f"{both}: only one of the same kind can be copied into it")
    calls: list[tuple[AnyVerb, Arguments]] = []
    if made:
        with one_line(source.place):
            kinds = [KindField(kind.name, kind.check, kind.base) for kind in system_of(copied.vcs).kinds]
        calls.append((repository_create, CreateRequest(copied.vcs, kinds, dict(copied.settings))))
    body: BodySource | None = None
    flags = RequestFlag.NONE
    if pulled.result.segments:
        calls.append((repository_insert_pack, InsertPackRequest()))
        flags = RequestFlag.BODY
        body = Passed(source.place, pulled, on_terminal("pull"))
    refs = copied.ref_updates(force=force)
    maps = copied.map_updates(here.knowledge, force=force)
    before = len(calls)
    calls += [call_of(update) for update in refs]
    calls += [(map_update, update) for update in maps]
    if not calls:
        report(Pushed([], []), 0)
        return
    results: Sequence[Result | CodedError]
    with one_line(target.place), sent_from(source.place):
        try:
            results = here.exchange(here.outgoing(calls, flags, body)).results
        except Refusal as refusal:
            if len(refusal.outcomes) != len(calls):
                raise refusal.error from None
            results = [error or NotDone() for error in refusal.outcomes]
    of_refs, of_maps = results[before : before + len(refs)], results[before + len(refs) :]
    pushed = Pushed(
        [updated(*each) for each in zip(refs, of_refs, strict=True)],
        [map_updated(*each) for each in zip(maps, of_maps, strict=True)],
        *brought(results),
    )
    report(pushed, copied.differing(here.knowledge))


class Passed:
    """A body that comes, as one that goes: a `BodySource`. What goes wrong with where it comes from is a
    `CommandError`: whoever sends it on would take another for the end of his own connection, and try again."""

    def __init__(self, place: str, pulled: Pulled, progress: Shown) -> None:
        self._place = place
        self._pulled = pulled
        self._progress = progress
        self._begun = False

    def __call__(self) -> Iterator[tuple[bytes, int]]:
        """The pieces of it.

        Raises:
            CommandError: where it comes from failed, or it was passed on before.
        """
        if self._begun:
            raise CommandError(f"{self._place}: what it sent cannot be passed on twice; try again")
        self._begun = True
        done, held = 0, b""
        with one_line(self._place):
            for chunk in self._pulled.body:
                if held:
                    yield held, 0
                held = chunk
                done += len(chunk)
                self._progress(done, done, self._pulled.result.size)
        yield held, self._pulled.result.segments
