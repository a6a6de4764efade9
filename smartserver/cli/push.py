"""`smartserver push`: copy an hpss repository into another. The sending side decides which revisions are sent."""

from __future__ import annotations

import contextlib

import click

from smartserver.cli.errors import CommandError
from smartserver.cli.place import between_servers, is_url, repository_in


@click.command(short_help="Copy a repository to another place; only what is missing there is sent.")
@click.argument("places", nargs=-1, required=True, metavar="[SOURCE] TARGET")
@click.option("--ref", "refs", multiple=True, metavar="NAME", help="This branch or tag alone; may be repeated.")
@click.option("--force", is_flag=True, help="Move refs, and replace entries of maps, that are another there.")
@click.pass_obj
def command(flags: frozenset[str], places: tuple[str, ...], refs: tuple[str, ...], force: bool) -> None:
    """Send to TARGET all that the repository in SOURCE (by default the current folder) has and TARGET lacks: its refs,
    or the named ones, with their revisions, tags and maps. A missing TARGET is created, and so are the folders above
    it: on a server all of them, elsewhere all but the outermost, so that a mistyped path is noticed.

    Both are repositories of smartserver. SOURCE is a folder or the URL of a store (sftp://, s3://, vfs://). TARGET is
    one of those or the URL of a server (hpss://), which takes one round trip, or two for a Mercurial repository.

    \b
    smartserver push ~/repositories/project hpss://example.org/project
    smartserver push ~/repositories/project sftp://me@example.org/srv/code/project
    smartserver push ~/repositories/project vfs://localhost/project
    smartserver push /backup/project
    smartserver push --ref main sftp://me@example.org/srv/code/project /backup/project
    """
    if len(places) > 2:
        raise click.UsageError(f"expected SOURCE and TARGET, got {len(places)} places")
    source, target = places if len(places) == 2 else (".", places[0])
    if is_url(source):
        if is_url(target):
            raise CommandError(between_servers(source, target))
        command = f"smartserver pull {source} {target}"
        raise CommandError(f"{source} is on a server, which `push` cannot copy from: run `{command}` instead")
    # Imported late: the store and both ends of a connection take 100 ms, which a mistyped option should not.
    from smartserver.cli.copying import (
        StoreSource,
        act_as_owner_at,
        between,
        of_snapshot,
        on_terminal,
        report,
        repository_at,
    )
    from smartserver.client.copy import copy, resumed
    from smartserver.client.updates import NewRepository
    from smartserver.errors import IncompleteRepository, NoSuchRepository
    from smartserver.records.system import system_of

    if not is_url(target):  # Before the source is opened, since the owner of the target counts.
        act_as_owner_at(target)
    with repository_in(source, flags) as repository:
        stored = StoreSource(repository)
        state, whole = stored.snapshot.state, of_snapshot(stored.snapshot)
    with between(source, target):
        copied = whole.only(refs, stored.beyond)
        with repository_at(target, flags) as remote:
            # There is no cached knowledge of a folder, and asking it is fast.
            if not is_url(target) or system_of(state.vcs).settings_matter:
                with contextlib.suppress(NoSuchRepository, IncompleteRepository):
                    remote.learn_refs()
            remote.sent = on_terminal("push")
            new = NewRepository(state.vcs, state.kinds, dict(state.settings))
            try:
                done = copy(copied, stored, new, remote, force=force)
            except IncompleteRepository:
                done = copy(copied, stored, resumed(remote, new), remote, force=force)
    report(*done)
