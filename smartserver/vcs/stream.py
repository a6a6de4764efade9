"""Reads streams in the format of git fast-import with the library `fastimport`, for systems other than git.

`StreamParser` adds what the library lacks: `encoding` and `gpgsig` lines, notes, quoted paths with bytes that are not
ASCII or with spaces, dates of RFC 2822, tags without a tagger, a last line without a newline, and the number of the
line in each error.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import IO, Any, Final, NamedTuple, Protocol

from fastimport import commands, errors
from fastimport.parser import Authorship, ImportParser

from smartserver.records.limits import MAX_RECORD
from smartserver.vcs.base import BadStream

FEATURES: Final = frozenset(
    [
        b"cat-blob", b"commit-properties", b"date-format", b"done", b"empty-directories", b"force", b"get-mark", b"ls",
        b"multiple-authors", b"notes", b"relative-marks", b"no-relative-marks",
    ]
)  # fmt: skip
"""The features that a stream may announce. A stream that needs an unknown feature is refused."""

HEADS: Final = b"refs/heads/"
TAGS: Final = b"refs/tags/"
NOTES: Final = b"refs/notes/"
"""The prefixes of a stream's refs."""

FILE, PROGRAM, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000

_RAW_DATE: Final = re.compile(rb"-?[0-9]{1,18} [-+][0-9]{4}")
_QUOTED: Final = rb'"((?:[^"\\]|\\.)*)"'
_PATH: Final = re.compile(_QUOTED)
_PAIR: Final = re.compile(rb"(?:%b|([^ \"][^ ]*)) (?:%b|([^\"].*))" % (_QUOTED, _QUOTED), re.DOTALL)
_FORBIDDEN: Final = re.compile(rb"[\x00-\x20~^:?*\[\\\x7f]|\.\.|@\{|(?<=/)\.|//|[./]$|\.lock(?=/|$)")
"""Matches what git forbids in the name of a ref (git-check-ref-format(1))."""
_ESCAPE: Final = re.compile(rb'\\([0-7]{3}|[abfnrtv\\"])')
_ESCAPES: Final = dict(zip(b'abfnrtv\\"', b'\a\b\f\n\r\t\v\\"', strict=True))


class _Lines:
    """The file from which a stream is read. A newline is added to a last line without one."""

    def __init__(self, file: IO[bytes], moved: Callable[[int], object]) -> None:
        self._file = file
        self._moved = moved
        self._size = 0

    def read(self, count: int) -> bytes:
        return self._passed(self._file.read(count))

    def readline(self) -> bytes:
        line = self._passed(self._file.readline())
        return line + b"\n" if line and line[-1] != 10 else line

    def _passed(self, data: bytes) -> bytes:
        self._size += len(data)
        self._moved(self._size)
        return data


class StreamParser(ImportParser):
    """Yields the commands of a stream (`fastimport.commands`)."""

    def __init__(self, source: IO[bytes], moved: Callable[[int], object] = lambda size: None) -> None:
        """`moved` is called with the number of bytes read so far."""
        super().__init__(_Lines(source, moved))  # type: ignore[arg-type]
        self.notes = 0
        """The number of notes that were left out."""
        self._encoding = b""

    def commands(self) -> Iterator[Any]:
        """Yield the commands of the stream, in order. Raises BadStream if it cannot be read."""
        is_empty = True
        try:
            for command in self.iter_commands():
                is_empty = False
                yield command
        except errors.ParsingError as error:
            raise BadStream(_plain(str(error).replace(": ", " of the stream: ", 1))) from error
        except (ValueError, IndexError, OverflowError) as error:
            raise BadStream.at(self.lineno, _plain(str(error))) from error
        if is_empty:
            raise BadStream("the stream is empty")

    def iter_commands(self) -> Iterator[Any]:
        """Yield the commands except `feature` and `option`, each with a `lineno`. Raises the library's own errors, and
        ValueError."""
        while True:
            try:
                command: Any
                for command in super().iter_commands():
                    if isinstance(command, commands.FeatureCommand):
                        name = command.feature_name
                        if name not in FEATURES:
                            raise ValueError(f"the feature {name.decode('utf-8', 'replace')} is not known")
                        continue
                    mark = getattr(command, "mark", None)
                    if mark is not None and not mark.isdigit():
                        raise ValueError(f"the mark {mark.decode('utf-8', 'replace')!r} is not a number")
                    if not hasattr(command, "lineno"):  # As `reset` and `tag`: the line on which they end.
                        command.lineno = self.lineno
                    yield command
                return
            except errors.InvalidCommand as error:
                words: Any = error.cmd
                if not words.startswith(b"option "):
                    raise ValueError(f"the command {words[:100].decode('utf-8', 'replace')!r} is not known") from None

    def iter_file_commands(self) -> Iterator[Any]:
        """Yield the changes of files in a commit, without notes."""
        while True:
            yield from super().iter_file_commands()
            line = self.next_line()
            if line is None:
                return
            if not line.startswith(b"N "):
                self.push_line(line)
                return
            self.notes += 1
            if line.startswith(b"N inline "):
                self._get_data(b"N")

    def read_bytes(self, count: int) -> bytes:
        """Read a text of `count` bytes; more than `MAX_RECORD` is a ValueError."""
        if not 0 <= count <= MAX_RECORD:
            raise ValueError(f"{count} bytes of one text, at most {MAX_RECORD} are taken")
        return super().read_bytes(count)

    def read_until(self, terminator: bytes) -> bytes:
        """Read and return the lines before the line `terminator`, which is read, too."""
        lines: list[bytes] = []
        while (line := self.input.readline()) != terminator + b"\n":
            self.lineno += 1
            if not line:
                self.abort(errors.MissingTerminator, terminator.decode("utf-8", "replace"))
            lines.append(line)
        self.lineno += 1
        return b"".join(lines)

    def _parse_commit(self, ref: bytes) -> Any:
        self._encoding = b""
        command = super()._parse_commit(ref)
        if self._encoding:
            command.message = self._in_utf8(command.message)
            for role in ("author", "committer"):
                who = getattr(command, role)
                if who is not None:
                    setattr(command, role, who._replace(name=self._in_utf8(who.name), email=self._in_utf8(who.email)))
        return command

    def _in_utf8(self, text: bytes) -> bytes:
        try:
            return text.decode(codecs.lookup(self._encoding.decode("ascii")).name).encode()
        except (LookupError, UnicodeError):
            return text

    def _get_user_info(self, cmd: bytes, section: bytes, required: bool = True, accept_just_who: bool = False) -> Any:
        # git writes tags without a tagger.
        return super()._get_user_info(cmd, section, required and section != b"tagger", accept_just_who)

    def _get_data(self, required_for: bytes, section: bytes = b"data") -> bytes:
        while section == b"message" and (line := self.next_line()) is not None:
            if line.startswith(b"encoding "):
                self._encoding = line.removeprefix(b"encoding ")
            elif line.startswith(b"gpgsig "):
                super()._get_data(b"gpgsig")
            else:
                self.push_line(line)
                break
        return super()._get_data(required_for, section)

    def _who_when(self, s: bytes, cmd: bytes, section: bytes, accept_just_who: bool = False) -> Any:
        who, bracket, date = s.rpartition(b"> ")
        if not bracket or date == b"now" or _RAW_DATE.fullmatch(date):
            self.date_parser = None  # The library then looks at the form of each date, and prints no message.
            return super()._who_when(s, cmd, section, accept_just_who)
        name, _, email = who.partition(b"<")
        when = parsedate_to_datetime(date.decode("ascii"))
        offset = when.utcoffset()
        return Authorship(name.rstrip(), email, when.timestamp(), int(offset.total_seconds()) if offset else 0)

    def _path(self, s: bytes) -> bytes:
        if not s.startswith(b'"'):
            return s
        found = _PATH.fullmatch(s)
        if found is None:
            self.abort(errors.BadFormat, "?", "path", s.decode("utf-8", "replace"))
            raise AssertionError
        return _unquoted(found[1])

    def _path_pair(self, s: bytes) -> list[bytes]:
        found = _PAIR.fullmatch(s)
        if found is None:
            self.abort(errors.BadFormat, "?", "paths", s.decode("utf-8", "replace"))
            raise AssertionError
        return [
            plain if quoted is None else _unquoted(quoted)
            for quoted, plain in ((found[1], found[2]), (found[3], found[4]))
        ]

    def warning(self, msg: str) -> None:
        """Ignore a warning, which the library would print."""


class Refs:
    """Tracks the refs of a stream, and finds the commits that it names. A commit is given by its id on the server."""

    def __init__(self, there: Mapping[bytes, bytes], marks: dict[bytes, bytes]) -> None:
        """`there`: the refs of the server. `marks`: the marks of earlier streams, to which the marks of this stream are
        added."""
        self.there = there
        self.marks = marks
        self.moved: dict[bytes, bytes] = {}
        """The refs that the stream set and did not delete, with their commits."""
        self.gone: set[bytes] = set()
        """The refs that the stream deleted and did not set again."""
        self._begun: dict[bytes, bytes | None] = {}

    def parent(self, ref: bytes) -> bytes | None:
        """Return the ref's last commit in this stream: as in git, it is the parent of the next commit without `from`.
        None if the next commit has no parent."""
        return self._begun.get(ref)

    def set(self, ref: bytes, commit: bytes) -> None:
        """Set a ref to a commit."""
        self._begun[ref] = self.moved[ref] = commit
        self.gone.discard(ref)

    def reset(self, ref: bytes) -> None:
        """Let the next commit of a ref have no parent unless it has a `from`. The ref is not deleted."""
        self._begun[ref] = None

    def delete(self, ref: bytes) -> None:
        """Delete a ref."""
        self._begun[ref] = None
        self.moved.pop(ref, None)
        self.gone.add(ref)

    def find(self, name: bytes) -> bytes:
        """Return the commit that a stream names by a mark or a ref.

        Raises:
            LookupError: the mark or ref is unknown.
        """
        if name.startswith(b":"):
            found = self.marks.get(name[1:])
        else:
            ref = name.removesuffix(b"^0")
            stored = None if ref in self.gone else self.there.get(ref)
            found = self._begun.get(ref) or self.moved.get(ref) or stored
        if found is None:
            raise LookupError(f"no commit {name.decode('utf-8', 'replace')}")
        return found

    def changed(self) -> dict[bytes, bytes]:
        """Return the refs to move on the server, with their commits."""
        return {ref: commit for ref, commit in self.moved.items() if self.there.get(ref) != commit}


class FileVersion(NamedTuple):
    """A version of a file. `text` returns its content."""

    text: Callable[[], bytes]
    mode: int
    source: bytes | None
    """The path in the parent that the file was copied from, or None."""


Files = dict[bytes, FileVersion | None]
"""The new and changed files of a commit. None means that the commit removes the file."""


class FilesBefore(Protocol):
    """The files of the first parent of a commit."""

    def has(self, path: bytes) -> bool:
        """Tell whether a file exists at `path`."""

    def has_folder(self, path: bytes) -> bool:
        """Tell whether a folder exists at `path`."""

    def paths(self, folder: bytes) -> Iterable[bytes]:
        """Return all files below a folder; the empty path names the top folder."""

    def file(self, path: bytes) -> FileVersion:
        """Return the file at `path`, which must exist."""


class FileChanges:
    """Collects the files of a commit from its changes. As in git, a path cannot be both a file and a folder."""

    def __init__(self, before: FilesBefore, control: bytes) -> None:
        """`control`: the same as in `path_problem`."""
        self._before = before
        self._control = control
        self._files: Files = {}
        self._folders: set[bytes] = set()
        """The folders into which files were put, even if these files were removed later."""

    def apply(self, change: Any, text_of: Callable[[Any], Callable[[], bytes]]) -> bool:
        """Apply a change. Return False if the change is ignored because it adds a submodule. `text_of`: returns a
        function that reads the text of a FileModifyCommand.

        Raises:
            ValueError: the change is impossible.
        """
        if isinstance(change, commands.FileModifyCommand):
            if change.mode == SUBMODULE:
                return False
            if change.mode not in (FILE, PROGRAM, LINK):
                raise ValueError(
                    f"{change.path.decode('utf-8', 'replace')}: mode {change.mode:o} is not a mode of a file"
                )
            self._put(change.path, FileVersion(text_of(change), change.mode, None))
        elif isinstance(change, commands.FileDeleteCommand):
            self._remove(change.path)
        elif isinstance(change, commands.FileDeleteAllCommand):
            self._remove(b"")
        elif isinstance(change, commands.FileRenameCommand):
            self._copy(change.old_path, change.new_path, moves=True)
        else:
            self._copy(change.src_path, change.dest_path, moves=False)
        return True

    def result(self) -> Files:
        """Return the changed files, without removals of files that did not exist."""
        return {path: file for path, file in self._files.items() if file is not None or self._before.has(path)}

    def _put(self, path: bytes, file: FileVersion) -> None:
        """Put a file at a path, in place of any file or folder there."""
        if problem := path_problem(path, self._control):
            raise ValueError(problem)
        was_file = self._before.has(path)  # A file was no folder and lies in no file, so neither is looked for.
        for file_path in self._below(path) if not was_file or path in self._folders else ():
            self._files[file_path] = None
        for end in (number for number, byte in enumerate(path) if byte == ord("/")):
            folder = path[:end]
            self._folders.add(folder)
            if self._files.get(folder) is not None or (not was_file and self._has(folder)):
                self._files[folder] = None
        self._files[path] = file

    def _remove(self, path: bytes) -> None:
        """Remove a file, or a folder and all files in it. If a folder replaces a file, git removes the file after it
        has put files into the folder; these files are kept."""
        if self._before.has(path) and self._files.get(path) is None:
            self._files[path] = None
            return
        for file_path in [path] if self._has(path) else self._below(path):
            self._files[file_path] = None

    def _copy(self, source: bytes, target: bytes, *, moves: bool) -> None:
        """Copy the files at a path to another path. With `moves`, remove the originals."""
        found = [source] if self._has(source) else self._below(source)
        if not found:
            raise ValueError(f"no file {source.decode('utf-8', 'replace')}")
        files = {
            file_path: self._files.get(file_path) or self._before.file(file_path)._replace(source=file_path)
            for file_path in found
        }
        if moves:
            self._files |= dict.fromkeys(files)
        for file_path, file in files.items():
            self._put(target + file_path[len(source) :], file)

    def _has(self, path: bytes) -> bool:
        return self._files[path] is not None if path in self._files else self._before.has(path)

    def _below(self, path: bytes) -> list[bytes]:
        """Return all files below a folder; none if the folder does not exist."""
        if path and path not in self._folders and not self._before.has_folder(path):
            return []
        start = path + b"/" if path else b""
        mine = (file_path for file_path in self._files if file_path.startswith(start))
        return [file_path for file_path in {*self._before.paths(path), *mine} if self._has(file_path)]


def path_problem(path: bytes, control: bytes) -> str:
    """Return the reason why a path is forbidden, or an empty string. `control`: the system's own folder (`.hg`)."""
    for part in path.split(b"/"):
        if part in (b"", b".", b"..") or part.lower() == control:
            return f"no file can be {path.decode('utf-8', 'replace')!r}"
    if any(byte in path for byte in b"\0\n\r"):
        return f"no file can be {path.decode('utf-8', 'replace')!r}"
    return ""


def claim(refs: dict[bytes, bytes], ref: bytes, commit: bytes, otherwise: bytes) -> None:
    """Add a ref to `refs` under a name that git allows. If git could not store that name beside the other refs, `-` and
    `otherwise` are appended."""
    wanted = _FORBIDDEN.sub(b"_", ref)
    is_taken = refs.get(wanted, commit) != commit or any(
        other.startswith(wanted + b"/") or wanted.startswith(other + b"/") for other in refs
    )
    refs[b"%b-%b" % (wanted, otherwise) if is_taken else wanted] = commit


def _unquoted(text: bytes) -> bytes:
    """Decode a path that is escaped as in C; an octal escape is a byte."""

    def byte(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        return bytes([int(escape, 8) & 255 if len(escape) == 3 else _ESCAPES[escape[0]]])

    return _ESCAPE.sub(byte, text)


def _plain(text: str) -> str:
    return " ".join(text.split())
