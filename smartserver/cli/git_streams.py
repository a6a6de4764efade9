"""What `fast-export` and `fast-import` do: a git repository is copied into a bare one here, where git writes or reads
the stream."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import IO

import click

from smartserver.cli.copying import on_terminal, report, repository_at
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import count
from smartserver.cli.progress import CountLine
from smartserver.client.body import OnSent
from smartserver.client.copy import HEADS, TAGS, CannotCopy, CopySource, of_remote
from smartserver.client.plain import plain
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, RefUpdate
from smartserver.errors import NoSuchRepository
from smartserver.plugins.git.fetch import segments_of
from smartserver.plugins.git.push import LocalSource, new_head, peeled
from smartserver.plugins.git.terminal import CannotGoOn
from smartserver.records.model import RevisionId
from smartserver.records.varint import Malformed
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.bare import open_bare, set_refs
from smartserver.vcs.git.insert import Inserter
from smartserver.vcs.git.names import HEAD
from smartserver.vcs.git.repository import GitRepository
from smartserver.vcs.git.streams import export_stream, find_omissions, import_stream
from smartserver.vcs.git.system import GIT
from smartserver.verbs.repository_pull import MAX_HAVES
from smartserver.verbs.rules import Rule


class Export:
    """One run of `fast-export`."""

    def __init__(
        self,
        place: str,
        refs: Sequence[str],
        options: Sequence[str],
        import_marks: str | None,
        export_marks: str | None,
        keep: str | None,
        flags: Set[str],
    ) -> None:
        self._place = place
        self._refs = refs
        self._options = list(options)
        if import_marks:
            self._options.append(f"--import-marks={_existing(import_marks)}")
        if export_marks:
            self._options.append(f"--export-marks={os.path.abspath(export_marks)}")
        self._keep = keep
        self._flags = flags

    def run(self) -> None:
        """Write the stream.

        Raises:
            CommandError: it cannot be had.
        """
        with _errors(self._place), _workplace(self._keep) as folder:
            with repository_at(self._place, self._flags) as remote:
                local, copied = bring(self._place, remote, folder, self._refs, on_terminal("fast-export"))
            with local:
                omissions = find_omissions(local)
                options = [*self._options, *(("--mark-tags",) if omissions.has_nested_tags else ())]
                refs = [os.fsdecode(name) for name in copied.refs] if self._refs else ()
                export_stream(local, refs, options, sys.stdout.buffer, _say)
            for number, what, why in (
                (omissions.commits, "commit", "with a signature, or another header that no stream has"),
                (
                    omissions.tags,
                    "tag",
                    "of something else than a commit, or with another name than its ref",
                ),
            ):
                if number:
                    _say(f"{count(number, what)} {why}: read from the stream, the id is another")


class Import:
    """One run of `fast-import`."""

    def __init__(
        self,
        place: str,
        stream: str,
        import_marks: str | None,
        export_marks: str | None,
        object_format: str,
        keep: str | None,
        flags: Set[str],
        *,
        force: bool,
    ) -> None:
        self._place = place
        self._stream = stream
        self._import_marks = import_marks and _existing(import_marks)
        self._export_marks = export_marks and os.path.abspath(export_marks)
        self._new_vcs = f"git {object_format}"
        self._keep = keep
        self._flags = flags
        self._force = force

    def run(self) -> None:
        """Read the stream, and push what it said.

        Raises:
            CommandError: nothing was changed.
        """
        with (
            _errors(self._place),
            _workplace(self._keep) as folder,
            tempfile.TemporaryDirectory(prefix="smartserver-") as marks,
            repository_at(self._place, self._flags) as remote,
        ):
            try:
                local, copied = bring(self._place, remote, folder, (), on_terminal("fast-import"))
                before = {name: value[0].id for name, value in copied.refs.items()}
            except NoSuchRepository:
                remote.knowledge.forget()
                local, before = open_bare(folder, self._new_vcs, os.environ), {}
                set_refs(local, {}, HEADS + b"main")
            with local:
                new_marks = os.path.join(marks, "marks")
                self._read(local, new_marks)
                self._push(remote, local, before)
                if self._export_marks:
                    _replace(new_marks, self._export_marks)

    def _read(self, local: GitRepository, new_marks: str) -> None:
        options = [f"--export-marks={new_marks}"]
        if self._import_marks:
            options.append(f"--import-marks={self._import_marks}")
        if self._force:
            options.append("--force")
        source: IO[bytes]
        with contextlib.ExitStack() as until:
            if self._stream == "-":
                source = sys.stdin.buffer
            else:
                source = until.enter_context(open(self._stream, "rb"))
            line = CountLine("fast-import", sys.stderr.isatty())
            import_stream(local, source, options, line)
            line.end()

    def _push(self, remote: RemoteRepository, local: GitRepository, before: Mapping[bytes, RevisionId]) -> None:
        after = local.refs()
        updates = [self._update(local, name, tip, before) for name, tip in after.items() if before.get(name) != tip]
        updates += [RefUpdate(name, None, expected=tip) for name, tip in before.items() if name not in after]
        new = NewRepository(local.vcs, local.kinds, {HEAD: new_head(local, updates)})
        remote.sent = on_terminal("fast-import")
        request = PushRequest(updates, LocalSource(local), new if updates else None, atomic=True)
        report(remote.push(request), 0)

    def _update(
        self, local: GitRepository, name: bytes, tip: RevisionId, before: Mapping[bytes, RevisionId]
    ) -> RefUpdate:
        rule = Rule.NEW if name.startswith(TAGS) else Rule.FF
        expected = None
        if self._force and name in before:
            rule, expected = Rule.LEASE, before[name]
        return RefUpdate(name, tip, rule, expected=expected, attributes=peeled(local, local.objects.read(tip)))


def bring(
    place: str, remote: RemoteRepository, folder: str, names: Sequence[str], moved: OnSent
) -> tuple[GitRepository, CopySource]:
    """Copy a repository, or what these refs reach, into a bare one in a folder: that, and what was copied.

    Raises:
        CommandError: it is not git's, or what came is damaged.
        CannotCopy: there is no such ref.
        CodedError, MediumError, ProtocolError, NotOurProtocol: as `RemoteRepository.pull`.
        VcsError: it cannot be copied.
    """
    known = remote.knowledge
    haves: list[RevisionId] = []
    if known.vcs in GIT and os.path.exists(os.path.join(folder, "HEAD")):
        with open_bare(folder, known.vcs, os.environ) as kept:
            haves = kept.complete_haves(known.tips(), MAX_HAVES)
    raw = [os.fsencode(name) for name in names]
    wanted = [form + name for name in raw for form in (b"", HEADS, TAGS)] or None
    pulled = remote.pull(haves, wanted)
    if known.vcs not in GIT:
        raise CommandError(f"{place} is a repository of {known.vcs}: git's streams are of git alone")
    copied = of_remote(known).only(names)
    local = open_bare(folder, known.vcs, os.environ)
    keeps: list[str] = []
    try:
        Inserter(local, keeps, as_pack=True).insert(segments_of(pulled, local.kinds, moved))
        tips = {name: value[0].id for name, value in copied.refs.items()}
        set_refs(local, tips, known.settings.get(HEAD, HEADS + b"main"))
    except Malformed as wrong:
        local.close()
        raise CommandError(f"{place}: the answer is damaged: {wrong}") from None
    except BaseException:
        local.close()
        raise
    finally:
        for keep in keeps:
            os.unlink(keep)
    return local, copied


@contextmanager
def _errors(place: str) -> Iterator[None]:
    """Turn what goes wrong into one line."""
    with one_line(place):
        try:
            yield
        except (VcsError, CannotCopy, CannotGoOn) as wrong:
            raise CommandError(str(wrong)) from wrong


@contextmanager
def _workplace(keep: str | None) -> Iterator[str]:
    """A folder for a bare repository, which is gone afterwards unless it was named."""
    if keep:
        yield os.path.abspath(keep)
        return
    with tempfile.TemporaryDirectory(prefix="smartserver-") as folder:
        yield os.path.join(folder, "bare.git")


def _existing(path: str) -> str:
    if not os.path.isfile(path):
        raise CommandError(f"{path} is not there: an earlier run writes it with --export-marks")
    return os.path.abspath(path)


def _replace(source: str, target: str) -> None:
    """Have a file of another file system at once where there may be one."""
    temporary = f"{target}.{os.getpid()}"
    shutil.copyfile(source, temporary)
    os.replace(temporary, target)


def _say(line: str) -> None:
    click.echo(f"smartserver: {plain(line)}", err=True)
