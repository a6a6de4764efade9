"""Inserts the objects of a pull into a git repository: few small ones loose, others as a pack with its index.

Every record is decoded and hashed before any of them becomes visible. An interrupted or refused pull leaves the
repository as it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from smartserver.records.model import Key
from smartserver.vcs.base import InsertReport, Progress
from smartserver.vcs.collector import rare_collections
from smartserver.vcs.git.build import PackBuilder, unnamed_file
from smartserver.vcs.git.objects import MissingObject, ObjectReader, end
from smartserver.vcs.git.pack import BaseNotHere
from smartserver.vcs.git.repository import GitRepository, failure
from smartserver.vcs.signals import held

DEFAULT_UNPACK_LIMIT = 100
"""Git's own default limit: fewer objects than this become loose objects."""

LARGE_PULL = 16 << 20
"""A pull of at least this many bytes becomes a pack even with few objects, unless the user set a limit. For loose
objects, git would inflate and deflate each one again, whole in memory."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk."""

CACHE = 64 << 20
"""The most bytes of texts that are cached as possible bases. With half as many, a clone decodes a tenth more texts;
with twice as many, 3 % fewer."""

LEVEL = 1
"""The level of zlib. Level 6 takes a tenth more CPU in total, and makes a clone 4 % smaller."""

_LEVEL = "fetch.fsck."
"""The prefix of the settings with the severities of faults."""

_SKIP_LIST = "skiplist"
"""The only name after the prefix whose value is a path."""

_UNKNOWN = re.compile(rb"fatal: Unhandled message id: (.*)\n")
"""Git's message about an unknown id of a fault. Git never translates it."""


class Inserter:
    """Inserts pulled segments into `repository`.

    A `.keep` file stops git from collecting a new pack before refs name its objects. Its path is added to `keeps`. The
    caller removes the file, also after an interrupt.
    """

    def __init__(
        self,
        repository: GitRepository,
        keeps: list[str],
        *,
        say: Callable[[str], object] = lambda line: None,
        as_pack: bool = False,
        promised: bytes | None = None,
        shallow_file: str = "",
    ) -> None:
        """`say`: called with each line of git's warnings about the objects. `as_pack`: make a pack of few objects, too.
        `promised`: the content of the pack's `.promisor` file, if the objects may refer to missing ones.
        `shallow_file`: the file of shallow commits for git's check of the objects, if it is not the repository's."""
        self._repository = repository
        self._keeps = keeps
        self._say = say
        self._as_pack = as_pack or promised is not None
        self._promised = promised
        self._shallow_file = shallow_file
        self.inserted: Container[Key] = ()
        """The keys of the objects that the last `insert` inserted."""

    def insert(self, segments: Iterable[bytes], progress: Progress | None = None) -> InsertReport:
        """Insert whole segments, parents first. Objects of the repository may be delta bases."""
        folder = os.path.join(self._repository.object_dir, "pack")
        os.makedirs(folder, exist_ok=True)
        with contextlib.ExitStack() as until:
            spool, entries = unnamed_file(folder), unnamed_file(folder)
            until.callback(os.close, spool)
            until.callback(os.close, entries)
            objects = until.enter_context(contextlib.closing(ObjectReader(self._repository.start)))
            until.enter_context(rare_collections())
            try:
                return self._insert(segments, (spool, entries), objects, folder, progress or (lambda done, total: None))
            except OSError as error:
                if error.errno in FULL and error.filename is None:
                    error.filename = folder  # Written through a descriptor, of a file that may have no name.
                raise

    def _insert(
        self, segments: Iterable[bytes], files: tuple[int, int], objects: ObjectReader, folder: str, progress: Progress
    ) -> InsertReport:
        def outside(key: Key) -> bytes:
            try:
                return objects.read(key).text
            except MissingObject as missing:
                raise BaseNotHere(key) from missing

        builder = PackBuilder(self._repository.id_length, files[0], files[1], outside, cache=CACHE, level=LEVEL)
        revisions = size = 0
        try:
            for block in segments:
                builder.add(block)
                revisions += 1
                size += len(block)
                progress(builder.objects, 0)
            builder.settle()
            count = builder.objects
            if count:
                self._store(builder, folder, size)
        finally:
            builder.abandon()
        self.inserted = builder
        if count:
            progress(count, count)
        return InsertReport(count, revisions)

    def _store(self, builder: PackBuilder, folder: str, size: int) -> None:
        repository = self._repository
        default = DEFAULT_UNPACK_LIMIT if size < LARGE_PULL else 1
        limit = repository.number("fetch.unpacklimit", "transfer.unpacklimit", default=default)
        check = _Check(repository, self._say, self._shallow_file, promised=self._promised is not None)
        if self._as_pack or builder.objects >= limit:
            _install(repository, builder, folder, check, self._keeps, promised=self._promised)
            return
        pack = unnamed_file(folder)
        try:
            builder.finish(pack)
            os.lseek(pack, 0, os.SEEK_SET)
            _unpack(repository, pack, check)
        finally:
            os.close(pack)


class _Check:
    """Runs git's check of fetched objects, as the user configured it (`fetch.fsckObjects`, `fetch.fsck.<id>`)."""

    def __init__(
        self, repository: GitRepository, say: Callable[[str], object], shallow_file: str, *, promised: bool
    ) -> None:
        self._repository = repository
        self._say = say
        self._options = ["--shallow-file", shallow_file] if shallow_file else []
        self._strict = "--fsck-objects" if promised else "--strict"
        """The option that makes git check the objects. `--strict` also checks that the objects to which they refer
        exist."""
        self.is_wanted = repository.flag("fetch.fsckobjects", "transfer.fsckobjects")
        self._levels = {
            name.removeprefix(_LEVEL): values[-1].decode("utf-8", "surrogateescape")
            for name, values in repository.settings().items()
            if name.startswith(_LEVEL)
        }
        if _SKIP_LIST in self._levels:
            self._levels[_SKIP_LIST] = repository.path(_LEVEL + _SKIP_LIST)

    def run(
        self,
        pack: int,
        command: str,
        *arguments: str,
        settings: Iterable[str] = (),
        environment: Mapping[str, str] = {},
    ) -> None:
        """Run a git command on a pack, with git's check of its objects if the user wants one.

        `git fetch` ignores an unknown id in `fetch.fsck.<id>`. This command fails on an unknown id before it reads any
        object, and is then run again without that id.
        """
        options = [*self._options, *[word for setting in settings for word in ("-c", setting)]]
        while True:
            levels = ",".join([f"{name}={value}" for name, value in self._levels.items()])
            strict = [self._strict + (f"={levels}" if levels else "")] if self.is_wanted else []
            status, said = self._run(pack, [*options, command, *strict, *arguments], environment)
            if not status:
                break
            unknown = _UNKNOWN.match(said)
            if unknown is None or self._levels.pop(unknown[1].decode("utf-8", "surrogateescape"), None) is None:
                raise failure(command, status, said)
            self._say(f"warning: Skipping unknown msg id '{unknown[1].decode('utf-8', 'replace')}'")
        for line in said.decode("utf-8", "replace").splitlines():
            self._say(line)

    def _run(self, pack: int, words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
        process = subprocess.Popen(
            ["git", "--git-dir", self._repository.git_dir, *words],
            stdin=pack,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**self._repository.environment, **environment},
        )
        try:
            _, said = process.communicate()
        except BaseException:
            end(process)  # `index-pack` removes its own temporary files then.
            raise
        return process.returncode, said


def _unpack(repository: GitRepository, pack: int, check: _Check) -> None:
    """Unpack a pack into loose objects. They are first written to a separate folder, as git does in a push, because an
    interrupted `unpack-objects` leaves half an object behind."""
    objects = os.path.abspath(repository.object_dir)
    place = os.path.join(objects, f"tmp_objdir-hpss-{os.getpid()}-{os.urandom(6).hex()}")
    others = repository.environment.get("GIT_ALTERNATE_OBJECT_DIRECTORIES")
    environment = {
        "GIT_OBJECT_DIRECTORY": place,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(filter(None, (_quoted(objects), others))),
    }
    try:
        os.mkdir(place)
        check.run(pack, "unpack-objects", "-q", environment=environment)
        for name in os.listdir(place):
            new, target = os.path.join(place, name), os.path.join(objects, name)
            try:
                os.rename(new, target)
            except OSError:  # The target folder exists: move file by file.
                for file in os.listdir(new):
                    os.rename(os.path.join(new, file), os.path.join(target, file))
        _clear(place)
    except BaseException:  # This also covers an interrupt of `_clear` above, which `finally` would not.
        _clear(place)
        raise


def _clear(place: str) -> None:
    """Remove a folder, best effort."""
    for folder, _, files in os.walk(place, topdown=False):
        with contextlib.suppress(OSError):
            _remove(os.path.join(folder, file) for file in files)
            os.rmdir(folder)


def _quoted(path: str) -> str:
    """Quote a path for a list that git splits at colons."""
    if ":" not in path and not path.startswith('"'):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _permissions(repository: GitRepository) -> int:
    """Return the mode of a new pack, as `core.sharedRepository` (git-config(1)) and the umask require."""
    mask = os.umask(0)
    os.umask(mask)
    mode = 0o444 & ~mask
    shared = (repository.config("core.sharedrepository") or b"").lower()
    if shared in (b"group", b"true", b"1"):
        return mode | 0o440
    if shared in (b"all", b"world", b"everybody", b"2"):
        return mode | 0o444
    with contextlib.suppress(ValueError):
        own = int(shared, 8)
        if own & 0o600 == 0o600:  # Git takes such a number for a mode, which replaces the umask.
            return own & 0o444
    return mode


def _install(
    repository: GitRepository,
    builder: PackBuilder,
    folder: str,
    check: _Check,
    keeps: list[str],
    *,
    promised: bytes | None,
) -> None:
    """Write a pack and its index under temporary names, create a `.keep` file unless it exists, and rename the pack,
    then the index. `promised`: the content of a `.promisor` file to create, or None.

    If a check is requested, git writes the index and checks the objects.
    """
    mode = _permissions(repository)
    temporary = os.path.join(folder, f"tmp_pack_{os.getpid()}_{os.urandom(6).hex()}")
    leftovers = [temporary, temporary + ".idx"]
    try:
        with open(temporary, "xb", 0) as pack:
            index, pack_hash = builder.finish(pack.fileno())
            os.fchmod(pack.fileno(), mode)
            os.fsync(pack.fileno())
        if check.is_wanted:
            # Git makes a reverse index only for a name that ends in .pack, under which git would find the pack too
            # early.
            alone = ("pack.writeReverseIndex=false",)
            check.run(subprocess.DEVNULL, "index-pack", "-o", temporary + ".idx", temporary, settings=alone)
        with open(temporary + ".idx", "rb" if check.is_wanted else "xb") as file:
            if not check.is_wanted:
                file.write(index)
                file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        name = os.path.join(folder, f"pack-{pack_hash.hex()}")
        keep = name + ".keep"
        with held():
            with contextlib.suppress(FileExistsError), open(keep, "x", encoding="ascii") as file_:
                leftovers.append(keep)
                file_.write(f"fetched by process {os.getpid()}\n")
            if promised is not None:
                with open(name + ".promisor", "wb") as promisor:
                    promisor.write(promised)
            if not os.path.exists(name + ".idx"):
                # Git finds packs by their index, so it comes last. A pack of this name, a hash of all its bytes, is the
                # same.
                os.rename(temporary, name + ".pack")
                try:
                    os.rename(temporary + ".idx", name + ".idx")
                except OSError:
                    if not os.path.exists(name + ".idx"):  # Else another process installed the same pack.
                        leftovers.append(name + ".pack")
                    raise
            if keep in leftovers:
                leftovers.remove(keep)
                keeps.append(keep)
            _remove(leftovers)
        _sync_folder(folder)
    except BaseException:
        _remove(leftovers)
        raise


def _remove(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
