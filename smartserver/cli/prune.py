"""`smartserver prune`: list the revisions that no ref reaches, and remove them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from smartserver.cli.asking import confirm
from smartserver.cli.errors import CommandError
from smartserver.cli.log import date_of
from smartserver.cli.openers import openers
from smartserver.cli.place import count, is_store_url, is_url, local_place, repository_in, store_behind
from smartserver.client.plain import plain
from smartserver.errors import shown
from smartserver.records.browse import LogEntry
from smartserver.records.content import ReadScope
from smartserver.records.model import RevisionId
from smartserver.records.system import system_of
from smartserver.store.allowance import Allowance
from smartserver.store.content import SnapshotView
from smartserver.store.format import LOST, PACKS
from smartserver.store.prune import Unreached, prune, unreached
from smartserver.store.snapshot import Snapshot
from smartserver.store.upkeep import is_superseded, packs_in
from smartserver.trace.text import size
from transports.errors import CodedError
from transports.steps import ListDirectory

if TYPE_CHECKING:
    from smartserver.store.repository import PackRepository

SHOWN = 20
"""The most revisions to list."""

ELSEWHERE = """\
It cannot be removed from clones and mirrors of the repository, from copies of it that were pushed elsewhere, from
backups and dumps, and from what a server keeps for itself: copies of packs of a bucket (--cache-dir; each is deleted
there when it is not used), the cache for stock git (built again at its next request), and texts in memcached (restart
it). Any owner of a clone can push it again.\
"""


@click.command(short_help="List what no ref of a repository reaches, and remove it.")
@click.argument("path")
@click.option("--list", "only_list", is_flag=True, help="Only list what there is.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--now", is_flag=True, help="Delete the old files too, while no server has the repository open.")
@click.pass_obj
def command(flags: frozenset[str], path: str, only_list: bool, yes: bool, now: bool) -> None:
    """List the revisions of the repository at PATH that no branch and no tag reaches, and remove them with all content
    that only they have. PATH is a folder, or the URL of a store (sftp://, s3://, vfs://).

    Use this to remove a secret that was pushed by mistake: first push the branch without it, by force, and delete the
    tags that reach it. Servers may keep running. From then on no client can read the secret, not even by its id. The
    packs are written again without it, and a server deletes the old ones a day later.

    With --now all old files, and all files in the folder incoming/, are deleted at once. Stop the servers before that.
    The command does nothing if a process of this machine, as far as /proc shows, has a file of the repository open. It
    cannot see other machines that serve the same folder.

    The repository gets a new incarnation, so that each client asks for everything once.

    \b
    smartserver prune --list /srv/code/project
    smartserver prune /srv/code/project
    smartserver prune --yes --now /srv/code/project
    """
    if only_list and (yes or now):
        raise click.UsageError("--list removes nothing: leave out --yes and --now")
    path = local_place(path)
    if is_url(path):
        path = store_behind(path)
    if now and is_store_url(path):
        raise CommandError(
            f"--now cannot check which processes use {path}, which is not a local folder: leave out --now"
        )
    with repository_in(path, flags) as repository:
        if now:
            _check_unused(path)
        snapshot = repository.snapshot()
        found = unreached(snapshot)
        _list(snapshot, found)
        _list_kept(repository)
        if found.ordinals:
            click.echo(ELSEWHERE)
        if only_list or not (found.ordinals or now):
            return
        if not yes:
            what = f"Remove {count(len(found.ordinals), 'revision')}" if found.ordinals else "Delete all old files"
            confirm(f"{what}?", "--yes")
        removed = prune(repository, _progress if sys.stderr.isatty() else lambda done, total: None)
        deleted = 0
        if now:  # For packs of killed processes: the first call drops them, and the second one deletes them.
            deleted = repository.collect_garbage_files(0) + repository.collect_garbage_files(0)
        repository.snapshot()
        repository.summarise()
    said = [f"{count(removed, 'revision')} removed"] if removed else []
    said += [f"{count(deleted, 'old file')} deleted"] if now else ["a server deletes the old packs a day from now"]
    click.echo(", ".join(said))


def _progress(done: int, total: int) -> None:
    click.echo(f"\rprune: {100 * done // max(total, 1)} %", err=True, nl=done >= total)


def _check_unused(path: str) -> None:
    found = openers(path)
    if found is None:
        click.echo("cannot check which processes have the repository open: there is no /proc", err=True)
    elif found:
        listed = ", ".join(f"{plain(name)} ({number})" for number, name in sorted(found.items()))
        raise CommandError(f"{path} is open in {listed}: stop the servers, or leave out --now")


def _list(snapshot: Snapshot, found: Unreached) -> None:
    if not found.ordinals:
        click.echo("branches and tags reach every revision")
        return
    heads = len(found.heads)
    revisions = count(len(found.ordinals), "revision")
    click.echo(f"{revisions} that no branch and no tag reaches, {size(found.bytes)}; the newest are")
    for line in _lines(snapshot, found.heads[-SHOWN:]):
        click.echo(plain(f"  {line}"))
    if heads > SHOWN:
        click.echo(f"  and {heads - SHOWN:,} more that others do not descend from")


def _lines(snapshot: Snapshot, heads: Sequence[RevisionId]) -> Iterator[str]:
    view = SnapshotView(snapshot.state.refs, snapshot.state.map, snapshot, Allowance(limited=False))
    contents = system_of(snapshot.state.vcs).contents(view, ReadScope())
    for revision in reversed(heads):
        try:
            header = contents.header(revision)
        except (CodedError, ValueError):
            header = None
        if header is None:
            yield shown(revision)
            continue
        entry = LogEntry(header.id, header.author, header.seconds, header.zone)
        yield f"{header.id}  {date_of(entry)}  {header.author}  {header.message.partition(chr(10))[0]}"


def _list_kept(repository: PackRepository) -> None:
    """List the files that this command leaves, because they may be the last copy of a change."""
    names, lost = ListDirectory(PACKS), ListDirectory(LOST)
    repository.folder.perform([names, lost])
    state = repository.snapshot().state
    named = {pack.name for pack in state.packs} | set(state.dropped)
    for pack in packs_in(repository.folder, names.result or (), named):
        if not is_superseded(repository.folder, pack, state):
            what = "no change in the log uses it; `smartserver recover --list` shows what it is"
            click.echo(f"{PACKS}/{pack.name.hex()}.pack stays: {what}")
    if lost.result:
        click.echo(f"{LOST}/ stays: {count(len(lost.result), 'record')} without any file's text; delete it there")
