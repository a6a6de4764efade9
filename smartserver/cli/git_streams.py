"""`smartserver fast-export` and `fast-import` of git repositories: copy the repository into a local bare one, in which
git writes or reads the stream. `fast-import` then pushes the changes of the stream."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import NamedTuple

import click

from smartserver.cli.copying import on_terminal, report, repository_at
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import count
from smartserver.cli.progress import CountLine
from smartserver.client.body import OnSent
from smartserver.client.copy import HEADS, TAGS, CannotCopy, CopySource, of_remote
from smartserver.client.plain import plain
from smartserver.client.push import PushRequest
from smartserver.client.replace import check_folder, new_file, sync_file
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, RefUpdate
from smartserver.errors import NoSuchRepository, shown
from smartserver.plugins.git.fetch import Arrival, segments_of
from smartserver.plugins.git.push import LocalSource, new_head, peeled
from smartserver.plugins.git.terminal import CannotGoOn
from smartserver.records.model import RevisionId
from smartserver.records.varint import Malformed
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.bare import check_kept, open_bare, set_refs
from smartserver.vcs.git.insert import Inserter
from smartserver.vcs.git.names import HEAD
from smartserver.vcs.git.repository import GitRepository
from smartserver.vcs.git.streams import export_stream, find_omissions, import_stream
from smartserver.vcs.git.system import GIT
from smartserver.verbs.repository_pull import MAX_HAVES
from smartserver.verbs.rules import Rule


class NotGit(Exception):
    """The repository belongs to another version-control system, `vcs`."""

    def __init__(self, vcs: str) -> None:
        super().__init__(vcs)
        self.vcs = vcs


class StreamRun(NamedTuple):
    """The arguments that `fast-export` and `fast-import` share."""

    place: str
    flags: Set[str]
    import_marks: str | None
    export_marks: str | None
    keep: str | None

    def check(self) -> None:
        """Check the files of marks before anything is received.

        Raises:
            CommandError: the file to read is missing.
            FileNotFoundError: the folder of the file to write is missing.
        """
        if self.import_marks and not os.path.isfile(self.import_marks):
            raise CommandError(f"{self.import_marks} does not exist: an earlier run with --export-marks writes it")
        if self.export_marks:
            check_folder(self.export_marks)


def known_system(place: str, flags: Set[str]) -> str:
    """Return the system of the repository at a place from the cached knowledge; git if it is unknown."""
    with one_line(place), repository_at(place, flags, writes=False) as remote:
        return remote.knowledge.vcs or next(iter(GIT))


def fast_export(run: StreamRun, refs: Sequence[str], options: Sequence[str]) -> None:
    """Write a stream of a repository to standard output. `refs`: the refs to export, or empty for all. `options`: the
    options of git fast-export.

    Raises:
        NotGit: the repository belongs to another system.
    """
    options = [*options, *_mark_options(run.import_marks, run.export_marks)]
    with _errors(run.place), _workplace(run.keep) as folder:
        with repository_at(run.place, run.flags) as remote:
            local, copied = bring(run.place, remote, folder, refs, on_terminal("fast-export"))
        with local:
            omissions = find_omissions(local)
            if omissions.has_nested_tags:
                options.append("--mark-tags")
            names = [os.fsdecode(name) for name in copied.refs] if refs else ()
            export_stream(local, names, options, sys.stdout.buffer, _say)
        for number, what, why in (
            (omissions.commits, "commit", "with a signature, another header, or an author that no stream has"),
            (omissions.trees, "tree", "with a mode, an order, a name or an empty folder that no stream has"),
            (
                omissions.tags,
                "tag",
                "of something else than a commit, or with a name, header or tagger that no stream has",
            ),
        ):
            if number:
                which = f"{count(number, what)} of the whole history"
                lost = "the stream cannot hold this, so a repository made from it has other ids for such objects"
                _say(f"{which} {why}: {lost}")


def fast_import(run: StreamRun, stream: str, vcs: str, *, force: bool) -> None:
    """Read a stream from a file (`-`: from standard input), and push its changes. `vcs`: the system of a repository
    that is created.

    Raises:
        NotGit: the repository belongs to another system. Nothing was read from the stream.
    """
    with contextlib.ExitStack() as until:
        until.enter_context(_errors(run.place))
        folder = until.enter_context(_workplace(run.keep))
        marks = os.path.join(until.enter_context(tempfile.TemporaryDirectory(prefix="smartserver-")), "marks")
        remote = until.enter_context(repository_at(run.place, run.flags))
        try:
            local, copied = bring(run.place, remote, folder, (), on_terminal("fast-import"))
            before = {name: value[0].id for name, value in copied.refs.items()}
        except NoSuchRepository:
            remote.knowledge.forget()
            local, before = open_bare(folder, vcs, os.environ), {}
            set_refs(local, {}, HEADS + b"main")
        until.enter_context(local)
        options = [*_mark_options(run.import_marks, marks), *(["--force"] if force else [])]
        _read(local, stream, options)
        if run.export_marks:
            # Only the rename is left for after the push: a full disk must not lose the marks of pushed commits.
            written = until.enter_context(new_file(run.export_marks))
            with open(marks, "rb") as source:
                shutil.copyfileobj(source, written)
            sync_file(written)
        _push(remote, local, before, force=force)


def _mark_options(import_marks: str | None, export_marks: str | None) -> list[str]:
    """Return git's options for marks, with absolute paths, because git runs in another folder."""
    options = [f"--import-marks={os.path.abspath(import_marks)}"] if import_marks else []
    return [*options, f"--export-marks={os.path.abspath(export_marks)}"] if export_marks else options


def _read(local: GitRepository, stream: str, options: Sequence[str]) -> None:
    with contextlib.nullcontext(sys.stdin.buffer) if stream == "-" else open(stream, "rb") as source:
        line = CountLine("fast-import", sys.stderr.isatty())
        import_stream(local, source, options, line)
        line.end()


def _push(remote: RemoteRepository, local: GitRepository, before: Mapping[bytes, RevisionId], *, force: bool) -> None:
    after = local.refs()
    gone = [name for name in before if name not in after]
    if gone and not force:
        raise CommandError(f"{shown(gone[0])} would be deleted; --force deletes it")
    changed = {name: tip for name, tip in after.items() if before.get(name) != tip}
    updates = [_update(local, name, tip, before.get(name) if force else None) for name, tip in changed.items()]
    updates += [RefUpdate(name, None, expected=before[name]) for name in gone]
    new = NewRepository(local.vcs, local.kinds, {HEAD: new_head(local, updates)})
    remote.sent = on_terminal("fast-import")
    request = PushRequest(updates, LocalSource(local), new if updates else None, atomic=True)
    report(remote.push(request), 0)


def _update(local: GitRepository, name: bytes, tip: RevisionId, replaced: RevisionId | None) -> RefUpdate:
    """Return the update of a ref to `tip`. `replaced`: the old tip, whose commits the update may lose (--force)."""
    rule = Rule.NEW if name.startswith(TAGS) else Rule.FF
    attributes = peeled(local, local.objects.read(tip))
    return RefUpdate(name, tip, Rule.LEASE if replaced else rule, expected=replaced, attributes=attributes)


def bring(
    place: str, remote: RemoteRepository, folder: str, names: Sequence[str], moved: OnSent
) -> tuple[GitRepository, CopySource]:
    """Copy a repository, or the history of the refs `names`, into a bare git repository in a folder. Return the bare
    repository and the copied content. `moved` is called with the progress.

    Raises:
        NotGit: the repository belongs to another system.
        CannotCopy: a ref is missing.
        CodedError, MediumError, ProtocolError, NotOurProtocol: as `RemoteRepository.pull`.
        VcsError: the repository cannot be copied.
    """
    known = remote.knowledge
    haves: list[RevisionId] = []
    if known.vcs in GIT and check_kept(folder, os.environ):
        with open_bare(folder, known.vcs, os.environ) as kept:
            haves = kept.complete_haves(known.tips(), MAX_HAVES)
    raw = [os.fsencode(name) for name in names]
    wanted = [form + name for name in raw for form in (b"", HEADS, TAGS)] or None
    pulled = remote.pull(haves, wanted)
    if known.vcs not in GIT:
        raise NotGit(known.vcs)
    copied = of_remote(known).only(names, lambda tips, others: ())  # For git, only the refs are needed.
    keeps: list[str] = []
    with contextlib.ExitStack() as until:
        local = until.enter_context(open_bare(folder, known.vcs, os.environ))
        try:
            Inserter(local, keeps, as_pack=True).insert(
                segments_of(Arrival(pulled.body, pulled.result.segments), local.kinds, moved)
            )
            tips = {name: value[0].id for name, value in copied.refs.items()}
            set_refs(local, tips, known.settings.get(HEAD, HEADS + b"main"))
        except Malformed as error:
            raise CommandError(f"{place}: the server's answer is damaged: {error}") from None
        finally:
            for keep in keeps:
                os.unlink(keep)
        until.pop_all()
    return local, copied


@contextmanager
def _errors(place: str) -> Iterator[None]:
    """Turn errors into a `CommandError`, whose message is one line."""
    with one_line(place):
        try:
            yield
        except (VcsError, CannotCopy, CannotGoOn) as error:
            raise CommandError(str(error)) from error


@contextmanager
def _workplace(keep: str | None) -> Iterator[str]:
    """Yield a folder for a bare repository: `keep`, or a temporary folder that is deleted at the end."""
    if keep:
        folder = os.path.abspath(keep)
        check_kept(folder, os.environ)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="smartserver-") as folder:
        yield os.path.join(folder, "bare.git")


def _say(line: str) -> None:
    click.echo(f"smartserver: {plain(line)}", err=True)
