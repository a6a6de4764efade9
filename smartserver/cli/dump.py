"""`smartserver dump`: write a repository into one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import click

from smartserver.cli.errors import CommandError
from smartserver.cli.place import count, is_url, repository_in
from smartserver.trace.text import size as size_of

if TYPE_CHECKING:
    from smartserver.client.body import OnSent
    from smartserver.client.copy import CopyEndpoint
    from smartserver.store.snapshot import Snapshot

STANDARD = "-"
"""The file name that means standard output."""

Made = tuple[Iterator[bytes], int, int]
"""The bytes of an archive, and its numbers of revisions and refs."""


@click.command(short_help="Write a repository into one file.")
@click.argument("source", metavar="URL")
@click.argument("file", default=STANDARD)
@click.option("--since", multiple=True, metavar="DUMP", help="Leave out what this earlier dump has; may be repeated.")
@click.pass_obj
def command(flags: frozenset[str], source: str, file: str, since: tuple[str, ...]) -> None:
    """Write the repository at URL into FILE, a tar archive. Without FILE, or if FILE is `-`, it is written to standard
    output. `smartserver load` loads it into a repository, and `verify`, `stats` and `push` accept it in place of a
    folder.

    If the repository is in a folder or a store (sftp://, s3://, vfs://), the archive has its files unchanged, and
    `tar -xf` restores it. If it is on a server (hpss://), the archive has everything that a user with read access sees:
    all refs and the revisions that they reach, settings, tags and maps.

    FILE is replaced when the dump is complete; an interrupted dump leaves it as it was. Files and records are not
    checked as they are copied: run `smartserver verify FILE` before you replace an older backup.

    With --since the new dump has only the packs or revisions that the earlier dump DUMP lacks. If DUMP was made with
    --since, name those before it, too. All of them together are the repository.

    \b
    smartserver dump hpss://example.org/project monday.tar
    smartserver dump --since monday.tar hpss://example.org/project tuesday.tar
    smartserver dump --since monday.tar --since tuesday.tar hpss://example.org/project wednesday.tar
    smartserver dump ~/repositories/project | zstd > project.tar.zst
    smartserver dump hpss://example.org/project | smartserver load hpss://elsewhere.example.org/project
    """
    if file == STANDARD and sys.stdout.isatty():
        raise CommandError("a dump cannot be written to a terminal: name a FILE, or use a pipe")
    # Imported late, as in `push`.
    from smartserver.cli.archive import archive_in, check
    from smartserver.client.replace import check_folder, new_file

    if file != STANDARD:
        check_folder(file)
    with ExitStack() as stack:
        earlier = None
        if since:
            earlier = stack.enter_context(archive_in(since)).snapshot()
            check(earlier)
        made, revisions, refs = stack.enter_context((_told if is_url(source) else _copied)(source, flags, earlier))
        into: AbstractContextManager[BinaryIO] = nullcontext(sys.stdout.buffer)
        if file != STANDARD:
            into = new_file(file, durable=True)
        with into as written:
            size = sum(map(written.write, made))
            written.flush()
    if file != STANDARD:
        click.echo(f"{count(revisions, 'revision')}, {count(refs, 'ref')}, {size_of(size)}")


@contextmanager
def _copied(source: str, flags: frozenset[str], earlier: Snapshot | None) -> Iterator[Made]:
    """Yield an archive with the unchanged files of a repository in a folder or a store."""
    from smartserver.errors import IncompleteRepository, NoSuchRepository
    from smartserver.store.archive import backup

    with repository_in(source, flags, writes=False) as repository:
        look = repository.look()
        if look.live is None:
            raise NoSuchRepository(repository.path)
        if look.damage is not None:  # An older state is no backup.
            raise look.damage
        state = look.live
        if state.is_incomplete:
            raise IncompleteRepository(source)
        before = state if earlier is None else earlier.state
        if before.incarnation != state.incarnation or before.version > state.version:
            raise CommandError(
                f"the earlier dump does not fit {source}, whose history was changed since: make a full dump"
            )
        had = () if earlier is None else before.packs
        revisions = sum(entry.segments for entry in state.packs if entry not in had)
        folder = None if earlier is None else earlier.transport
        yield backup(repository.folder, state, folder), revisions, len(state.refs())


@contextmanager
def _told(source: str, flags: frozenset[str], earlier: Snapshot | None) -> Iterator[Made]:
    """Yield an archive with the content of a repository on a server."""
    import tempfile

    from smartserver.cli.copying import between, on_terminal, repository_at
    from smartserver.client.copy import CopyEndpoint

    with (
        repository_at(source, flags, writes=False) as remote,
        between(source, source),
        tempfile.TemporaryFile() as spooled,
    ):
        yield told_by(CopyEndpoint(source, remote), earlier, spooled, on_terminal("dump"))


def told_by(source: CopyEndpoint, earlier: Snapshot | None, spooled: BinaryIO, received: OnSent) -> Made:
    """Make a dump from a server's answers: one round trip, and one more for each page of the maps that a pull omits.

    `spooled`: a file for the revisions if there is an earlier dump. They are filtered there, because the server leaves
    out only the ancestors of the haves that fit into the request. `received`: called while revisions are received.

    Raises:
        CannotCopy: the earlier dump is of another version-control system.
        CodedError: the server refused.
        MediumError, RemoteProtocolError, NotOurProtocol: there was no answer.
    """
    from smartserver.client.copy import TAGS, CannotCopy, of_remote, untold_pages
    from smartserver.records.segment import SegmentStream, decode_revision
    from smartserver.records.system import system_of
    from smartserver.store.archive import ServerDump, dumped
    from smartserver.wire.limits import MAX_HAVES

    there = source.repository
    refs = {} if earlier is None else earlier.state.refs()
    # Branches come first, because most tags are ancestors of a branch.
    haves = [tip.id for name in sorted(refs, key=lambda name: name.startswith(TAGS)) for tip in refs[name]]
    pulled = there.pull(list(dict.fromkeys(haves))[:MAX_HAVES], bulk=True, tagged=True)
    known = of_remote(there.knowledge)
    if earlier is not None and earlier.state.vcs != known.vcs:
        raise CannotCopy(f"{source.place} is a repository of {known.vcs}, the earlier dump one of {earlier.state.vcs}")
    system = system_of(known.vcs)
    told = ServerDump(known.vcs, system.kinds, known.settings, known.refs, known.maps)
    pages = ((name, page) for name in system.untold for page in untold_pages(there, name))
    segments, size = pulled.result.segments, pulled.result.size
    body = _received(pulled.body, size, received)
    if earlier is None:
        return dumped(told, None, segments, size, body, pages), segments, len(known.refs)
    stream, segments = SegmentStream(graph_first=False), 0
    for chunk in body:
        stream.feed(chunk)
        for segment in stream.segments():
            if earlier.ordinal(decode_revision(segment, 0).revision) is None:
                segments += 1
                spooled.write(segment)
    size = spooled.tell()
    spooled.seek(0)
    again = iter(partial(spooled.read, 1 << 20), b"")
    return dumped(told, earlier.state, segments, size, again, pages), segments, len(known.refs)


def _received(body: Iterator[bytes], size: int, received: OnSent) -> Iterator[bytes]:
    from smartserver.records.varint import Malformed
    from smartserver.wire.errors import RemoteProtocolError

    done = 0
    try:
        for chunk in body:
            done += len(chunk)
            received(done, done, size)
            yield chunk
    except Malformed as error:
        raise RemoteProtocolError(str(error)) from error
    if done != size:
        raise RemoteProtocolError(f"expected {size} bytes of revisions, got {done}")
