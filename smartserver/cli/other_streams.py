"""`smartserver fast-export` and `fast-import` of repositories of Mercurial and Breezy: their own libraries make the
changesets or read them, in a copy of the repository here."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import count, is_store_url, is_url
from smartserver.cli.progress import CountLine
from smartserver.client.plain import plain
from smartserver.client.replace import new_file
from smartserver.client.store_url import PREFIX
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.system import BZR
from smartserver.vcs.hg.system import HG
from smartserver.vcs.stream import StreamParser

if TYPE_CHECKING:
    from smartserver.cli.git_streams import StreamRun

MODULES: Final = {HG: "smartserver.plugins.mercurial.streams", BZR: "smartserver.plugins.breezy.streams"}
"""What reads and writes streams, by system."""
EXTRAS: Final = {HG: "hg", BZR: "brz"}
"""What brings the library of each."""

_MARK: Final = re.compile(rb":([0-9]+) ([^\n]+)\n")

Marks = dict[bytes, bytes]


def fast_export(run: StreamRun, vcs: str, refs: Sequence[str]) -> None:
    """Write a stream of a repository of Mercurial or Breezy to standard output.

    Raises:
        CommandError: it cannot be read.
    """
    if refs:
        raise CommandError(f"{run.place} is a repository of {vcs}: all of it is exported, name no REF")
    marks = _read_marks(run.import_marks)
    with _copy(run, vcs, may_create=False) as (module, local):
        line = CountLine("fast-export", sys.stderr.isatty(), done="written")
        module.export_stream(local, sys.stdout.buffer, marks, lambda number: line(0, number))
        line.end()
    sys.stdout.buffer.flush()
    _write_marks(run.export_marks, marks)


def fast_import(run: StreamRun, stream: str, vcs: str, *, force: bool) -> None:
    """Read a stream from a file (`-`: from standard input) into a repository of Mercurial or Breezy, which is made if
    it is missing.

    Raises:
        CommandError: nothing was changed.
    """
    marks = _read_marks(run.import_marks)
    with _copy(run, vcs, may_create=True) as (module, local):
        line = CountLine("fast-import", sys.stderr.isatty())
        with contextlib.nullcontext(sys.stdin.buffer) if stream == "-" else open(stream, "rb") as source:
            parser = StreamParser(source, line)
            reader = module.StreamImport(local, marks)
            changed = reader.run(parser.commands, force=force)
        line.end()
        for number, what in ((reader.submodules, "submodule"), (parser.notes + reader.notes, "note")):
            if number:
                _say(f"{count(number, what)} left out: {vcs} has none")
        _write_marks(run.export_marks, marks)
        for name in changed or ():
            click.echo(name)
        if not changed:
            click.echo("nothing new")


@contextmanager
def _copy(run: StreamRun, vcs: str, *, may_create: bool) -> Iterator[tuple[Any, Any]]:
    """The module of a system, and a copy of the repository."""
    try:
        module = import_module(MODULES[vcs])
    except ModuleNotFoundError as wrong:
        extra = EXTRAS[vcs]
        raise CommandError(f"{wrong.name} is missing: pip install 'smartserver[{extra}]'") from None
    with _one_line(run.place), contextlib.ExitStack() as until:
        if run.keep:
            folder = os.path.abspath(run.keep)
            os.makedirs(folder, exist_ok=True)
        else:
            folder = os.path.join(until.enter_context(tempfile.TemporaryDirectory(prefix="smartserver-")), "copy")
        yield module, until.enter_context(module.local_copy(folder, _url(run.place), run.flags, may_create=may_create))


@contextmanager
def _one_line(place: str) -> Iterator[None]:
    with one_line(place):
        try:
            yield
        except VcsError as wrong:
            raise CommandError(str(wrong)) from wrong


def _url(place: str) -> str:
    """The URL by which the tools of a system reach a place."""
    if is_url(place):
        return place
    if is_store_url(place):
        return PREFIX + place
    raise CommandError(
        f"{place}: a repository of Mercurial or Breezy is reached by a URL: `smartserver serve` serves it"
    )


def _read_marks(path: str | None) -> Marks:
    if path is None:
        return {}
    with open(path, "rb") as file:
        found = {}
        for number, line in enumerate(file, 1):
            mark = _MARK.fullmatch(line)
            if mark is None:
                raise CommandError(f"{path}, line {number}: expected `:MARK ID`, as --export-marks writes it")
            found[mark[1]] = mark[2]
    return found


def _write_marks(path: str | None, marks: Marks) -> None:
    if path is not None:
        with new_file(path) as file:
            for mark, name in sorted(marks.items(), key=lambda item: int(item[0])):
                file.write(b":%b %b\n" % (mark, name))


def _say(line: str) -> None:
    click.echo(f"smartserver: {plain(line)}", err=True)
