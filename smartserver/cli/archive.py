"""Open the repository in the files that `dump` wrote, in place. A file must follow the file that it continues."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from smartserver.cli import old_dump
from smartserver.cli.errors import CommandError, one_line
from smartserver.store.format import CHECKPOINTS, LOG
from smartserver.store.open_pack import pack_path
from smartserver.store.record import decode_record, record_path
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from transports.base import Transport
from transports.tar import DamagedArchive, TarTransport, is_archive

STANDARD = "-"
"""The file name that means standard input."""


@contextmanager
def archive_in(files: Sequence[str]) -> Iterator[PackRepository]:
    """Open the repository in dump files. Standard input is first written to a temporary file."""
    archives: dict[str, BinaryIO] = {}
    with ExitStack() as stack:
        for file in files:
            name = "standard input" if file == STANDARD else file
            archive = stack.enter_context(_opened(file))
            if old_dump.is_one(archive):
                earlier = _opened_together(archives).snapshot().state if archives else None
                archive = stack.enter_context(old_dump.converted(archive, name, earlier))
            elif not is_archive(archive):
                raise CommandError(f"{name} is not a dump of smartserver")
            archives[name] = archive
        with one_line(", ".join(archives)):
            yield _opened_together(archives)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file != STANDARD:
        with open(file, "rb") as archive:
            yield archive
    elif sys.stdin.isatty():
        raise CommandError("a dump cannot be read from a terminal: name a FILE, or use a pipe")
    else:
        with tempfile.TemporaryFile() as spooled:
            shutil.copyfileobj(sys.stdin.buffer, spooled)
            spooled.flush()
            yield spooled


def _opened_together(archives: dict[str, BinaryIO]) -> PackRepository:
    names = ", ".join(archives)
    try:
        folder: Transport = TarTransport(archives)
    except DamagedArchive as error:
        raise CommandError(str(error)) from None
    repository = PackRepository(folder)
    if not (folder.exists(record_path(1)) or folder.exists(CHECKPOINTS)):
        if not folder.exists(LOG):
            raise CommandError(f"{names} is not a dump of smartserver")
        raise CommandError(f"{names} {old_dump.CONTINUES}")
    with one_line(names):
        head = repository.look()
        if head.damage is not None:
            raise head.damage
        for entry in head.state.packs:
            if not folder.exists(pack_path(entry.name)):
                raise CommandError(
                    f"{names} lacks {pack_path(entry.name)}, which is in an earlier dump: give the earlier dumps, too"
                )
    return repository


def check(snapshot: Snapshot) -> None:
    """Read all packs, with their trailers, and the newest record, and compare the hashes.

    Raises:
        CorruptFile: a file is damaged.
    """
    path = record_path(snapshot.state.version)
    decode_record(snapshot.transport.get_published(path), path)
    for pack in snapshot.packs:
        for _ in pack.reader.chunks():
            pass
        pack.reader.replaces()
