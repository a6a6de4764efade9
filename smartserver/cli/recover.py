"""`smartserver recover`: repair a repository's log, and list and restore the changes that it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from smartserver.cli.asking import confirm
from smartserver.cli.errors import CommandError
from smartserver.cli.place import count, is_url, repository_in, store_behind
from smartserver.client.plain import plain
from smartserver.store import recovery
from smartserver.store.lost import Findings, LostChange, find
from smartserver.store.record import Change
from smartserver.store.state import MAP, REFS, decode_value

DOUBT = "  (may not have been acknowledged)"


@click.command()
@click.argument("path")
@click.argument("changes", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="Restore changes too that may not have been acknowledged.")
@click.option("--list", "only_list", is_flag=True, help="Only list what there is.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(
    flags: frozenset[str], path: str, changes: tuple[str, ...], every: bool, only_list: bool, yes: bool
) -> None:
    """Repair the log of the repository at PATH, and restore changes that are on disk but not in the log. PATH is a
    folder, or the URL of a store (sftp://, s3://, vfs://).

    A log needs repair if a record is damaged or missing, or if two copies of a repository were merged. It continues
    from the newest state that can be read. Records and checkpoints that do not fit that state are moved to the folder
    lost/ of the repository: delete them there when they are not needed any more.

    Each change is listed with its ID, time, user and content. The changes named by ID are restored. Without ID, all
    changes that are in records are restored; with --all, also changes that are only in a pack, which may not have been
    acknowledged to the client. A branch that was changed since is never overwritten: its lost value is kept as
    refs/recovered/ID/..., with a message.

    The repository gets a new incarnation, so that each client asks for everything once.

    \b
    smartserver recover --list /srv/code/project
    smartserver recover /srv/code/project
    smartserver recover --all --yes /srv/code/project
    smartserver recover /srv/code/project 3f2a9c01 77d0c5e2
    """
    if only_list and (changes or every or yes):
        raise click.UsageError("--list restores nothing: leave out --all, --yes and IDs")
    if changes and every:
        raise click.UsageError("--all restores every change: leave it out, or the IDs")
    if is_url(path):
        path = store_behind(path)
    with repository_in(path, flags) as repository:
        findings = find(repository.folder, path)
        if changes:
            _named(findings, changes)
        if not findings:
            click.echo(f"{path}: there is nothing to recover: the log is complete")
            return
        usual = findings.made
        _list(findings, usual)
        if only_list:
            return
        here = [change for change in findings.changes if not change.elsewhere]
        chosen = _named(findings, changes) if changes else here if every else usual
        if not (chosen or findings.needs_repair):
            raise CommandError("nothing was restored: give the ID of a change, or --all")
        if not yes:
            confirm(f"{_repair(findings)}estore {count(len(chosen), 'change')}?", "--yes")
        failed = 0

        def report(what: str, why: str) -> None:
            nonlocal failed
            failed += 1
            click.echo(plain(f"{what} was not restored: {why}"), err=True)

        def conflict(what: str, why: str) -> None:
            click.echo(plain(f"{what}: {why}"), err=True)

        done = recovery.restore(repository, findings, chosen, report, conflict)
    click.echo(f"{count(done, 'change')} restored, {len(findings.changes) - done} left")
    if failed:
        raise CommandError("not every change could be restored; the others were not touched")


def _repair(findings: Findings) -> str:
    return f"Continue from change {findings.state.version:,}, and r" if findings.needs_repair else "R"


def _list(findings: Findings, usual: list[LostChange]) -> None:
    for damage in findings.damages:
        click.echo(plain(damage))
    for pack in findings.gone:
        click.echo(f"the pack {pack.name.hex()} is gone")
    for change in findings.changes:
        entry = change.entry
        when = f"{datetime.fromtimestamp(change.time // 1000, UTC):%Y-%m-%d %H:%M:%S}"
        doubt = "" if change in usual else "  (of another repository here)" if change.elsewhere else DOUBT
        click.echo(plain(f"{change.id}  {when}  {entry.user or '-'}  {_what(entry.changes)}{doubt}"))


def _what(changes: Sequence[Change]) -> str:
    said = []
    for change in changes:
        name = change.key.decode(errors="replace").replace("\0", " ")
        if change.table == REFS:
            tips = (
                " ".join(tip.id.hex()[:8] for tip in decode_value(change.new)) if change.new is not None else "deleted"
            )
            said.append(f"{name} -> {tips}")
        elif change.new is None or not change.table.startswith(MAP):
            said.append(f"{name}")
        else:
            said.append(f"{change.table.removeprefix(MAP)} {name}")
    shown = ", ".join(said[:4])
    return f"{shown} and {len(said) - 4} more" if len(said) > 4 else shown or "content alone"


def _named(findings: Findings, names: tuple[str, ...]) -> list[LostChange]:
    chosen = []
    for name in names:
        found = [each for each in findings.changes if each.entry.request.hex().startswith(name.lower())]
        if len(found) != 1:
            matched = f"{len(found)} changes: give more of it" if found else "no change"
            raise CommandError(f"the ID {name!r} matches {matched}")
        chosen += found
    return [change for change in findings.changes if change in chosen]
