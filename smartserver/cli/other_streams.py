"""`smartserver fast-export` and `fast-import` of repositories of Mercurial and Breezy. Their own libraries read or make
the changesets, in a local copy of the repository."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import count, is_store_url, is_url
from smartserver.cli.progress import CountLine
from smartserver.client.plain import plain
from smartserver.client.replace import new_file, sync_file
from smartserver.client.store_url import PREFIX
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.system import BZR
from smartserver.vcs.git.bare import has_content
from smartserver.vcs.hg.system import HG
from smartserver.vcs.stream import StreamParser

if TYPE_CHECKING:
    from smartserver.cli.git_streams import StreamRun

MODULES: Final = {HG: "smartserver.plugins.mercurial.streams", BZR: "smartserver.plugins.breezy.streams"}
"""System -> the module that reads and writes its streams."""
EXTRAS: Final = {HG: "hg", BZR: "brz"}
"""System -> the extra of pip that installs its library."""

KEPT: Final = "smartserver.kept"
"""The file that marks a folder of --keep."""

_MARK: Final = re.compile(rb":([0-9]+) ([^\n]+)\n")

Marks = dict[bytes, bytes]


def fast_export(run: StreamRun, vcs: str, refs: Sequence[str]) -> None:
    """Write a stream of a repository of Mercurial or Breezy to standard output."""
    if refs:
        raise CommandError(f"{run.place} is a repository of {vcs}, which can only be exported whole: leave out the REF")
    marks = _read_marks(run.import_marks)
    with _copy(run, vcs, may_create=False) as (module, local):
        line = CountLine("fast-export", sys.stderr.isatty(), done="written")
        module.export_stream(local, sys.stdout.buffer, marks, lambda number: line(0, number))
        line.end()
        sys.stdout.buffer.flush()
    if run.export_marks:
        with new_file(run.export_marks) as file:
            _write_marks(file, marks)


def fast_import(run: StreamRun, stream: str, vcs: str, *, force: bool, may_create: bool) -> None:
    """Import a stream of `git fast-import` into a repository of Mercurial or Breezy.

    `stream`: the file to read; `-` is standard input. `vcs`: the system of a new repository. `force`: move branches and
    tags even if they would lose commits. `may_create`: create a missing repository.

    Raises:
        VcsError: a line of the stream is not valid, or a branch or tag would lose commits without `force`.
    """
    marks = _read_marks(run.import_marks)
    with contextlib.ExitStack() as until:
        module, local = until.enter_context(_copy(run, vcs, may_create=may_create))
        line = CountLine("fast-import", sys.stderr.isatty())
        reader = module.StreamImport(local, marks, force=force)
        with contextlib.nullcontext(sys.stdin.buffer) if stream == "-" else open(stream, "rb") as source:
            parser = StreamParser(source, line)
            reader.read(parser.commands)
        line.end()
        notes = parser.notes + reader.notes
        for number, what, why in (
            (reader.submodules, "submodule", f"{vcs} has none"),
            (notes, "note", f"{vcs} has none"),
            (reader.tags, "tag", "no branch of the stream has the revision"),
        ):
            if number:
                _say(f"{count(number, what)} left out: {why}")
        if run.export_marks:
            # Only the rename is left for after the push: a full disk must not lose the marks of pushed commits.
            written = until.enter_context(new_file(run.export_marks))
            _write_marks(written, marks)
            sync_file(written)
        changed = reader.push()
    for name in changed or ["nothing new"]:
        click.echo(plain(name))


@contextmanager
def _copy(run: StreamRun, vcs: str, *, may_create: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the module of a system and a local copy of the repository."""
    if vcs not in MODULES:
        raise CommandError(f"{run.place} is a repository of {vcs}, which this release does not support")
    try:
        module = import_module(MODULES[vcs])
    except ModuleNotFoundError as error:
        extra = EXTRAS[vcs]
        raise CommandError(f"{error.name} is missing: pip install 'smartserver[{extra}]'") from None
    with _one_line(run.place), contextlib.ExitStack() as until:
        if run.keep:
            folder = _kept(os.path.abspath(run.keep))
        else:
            folder = until.enter_context(tempfile.TemporaryDirectory(prefix="smartserver-"))
        place = os.path.join(folder, "copy")
        yield module, until.enter_context(module.local_copy(place, _url(run.place), run.flags, may_create=may_create))


def _kept(folder: str) -> str:
    """Return the folder of --keep, which must have the mark. A missing or empty folder is created and marked.

    Raises:
        VcsError: the folder has other files, or belongs to another user.
    """
    mark = os.path.join(folder, KEPT)
    if has_content(folder, os.environ):
        if not os.path.isfile(mark):
            raise VcsError(f"{folder} was not created by --keep: name a folder that does not exist yet")
    else:
        os.makedirs(folder, exist_ok=True)
        with open(mark, "x", encoding="ascii"):
            pass
    return folder


@contextmanager
def _one_line(place: str) -> Iterator[None]:
    with one_line(place):
        try:
            yield
        except VcsError as error:
            raise CommandError(str(error)) from error


def _url(place: str) -> str:
    """Return the URL of a place for the tools of its system."""
    if is_url(place):
        return place
    if is_store_url(place):
        return PREFIX + place
    raise CommandError(
        f"{place}: a repository of Mercurial or Breezy needs a URL here: serve it with `smartserver serve`"
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


def _write_marks(file: BinaryIO, marks: Marks) -> None:
    for mark, name in sorted(marks.items(), key=lambda item: int(item[0])):
        file.write(b":%b %b\n" % (mark, name))


def _say(line: str) -> None:
    click.echo(f"smartserver: {plain(line)}", err=True)
