"""Makes git objects of a folder without git: its blobs and trees, a commit of them, and the plan of a push.

The folder is read twice: once for the ids of all its objects, and again for the texts of those that are sent. So only
one text at a time is in memory, while it is compressed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import BinaryIO, Final, NamedTuple, Self

from smartserver.errors import LimitExceeded
from smartserver.records import limits
from smartserver.records.delta import compress
from smartserver.records.keys import KeyTable
from smartserver.records.model import BaseTag, Entry, GraphNode, Key, Parent, RevisionId
from smartserver.records.segment import encode_segment
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.format import BLOB, COMMIT, FORMATS, TREE
from smartserver.vcs.git.pack import hash_of
from smartserver.vcs.git.system import GIT, git_key

OF_SYSTEMS: Final = (".git", ".hg", ".bzr")
"""Names at the top of a folder that belong to version-control systems."""

_DOTGIT: Final = b".git"

_MODES: Final = {False: b"100644", True: b"100755"}
_BLOCK: Final = 1 << 20
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class BadFolder(VcsError):
    """A folder cannot become a commit; the message gives the reason on one line."""


class File(NamedTuple):
    """A file or link of a folder."""

    path: bytes
    key: Key
    size: int


class _OpenFolder:
    """A folder that is being read: the content still to read, and the entries of its tree so far."""

    def __init__(self, path: bytes, content: Iterable[os.DirEntry[bytes]]) -> None:
        self.path = path
        self.content = iter(content)
        self.rows: list[tuple[bytes, bytes, Key]] = []
        """For each entry, its sort key, its mode and name in encoded form, and its object."""


class FolderTree:
    """The ids of all files and trees in a folder. Empty folders are left out, as in git."""

    def __init__(self, folder: str, vcs: str, seen: Callable[[int, int], object] = lambda size, files: None) -> None:
        """Read `folder`. `vcs`: `git sha1` or `git sha256`. `seen` is called with the number of bytes and of files read
        so far."""
        self.vcs = vcs
        self._check = GIT[vcs].kinds[0].check
        self._hash = hash_of(FORMATS[vcs.partition(" ")[2]].id_bytes)
        self._place = os.fsencode(folder)
        self._seen = seen
        self._size = 0
        self.files: list[File] = []
        self.trees: dict[Key, bytes] = {}
        self.keys = KeyTable()
        self.root = self._read()

    def text(self, file: File) -> bytes:
        """Return the text of the blob of a file or link.

        Raises:
            BadFolder: the file has changed since its id was computed.
        """
        place = self._at(file.path)
        text = os.readlink(place) if os.path.islink(place) else _content(place, file.size)
        if git_key(self._check, BLOB, text) != file.key:
            raise _changed(place)
        return text

    def _read(self) -> Key:
        levels = [_OpenFolder(b"", self._list(b""))]
        while True:
            folder = levels[-1]
            entry = next(folder.content, None)
            if entry is None:
                levels.pop()
                key = self._add_tree(folder)
                if not levels:
                    return key
                if folder.rows:
                    name = folder.path.rpartition(b"/")[2]
                    levels[-1].rows.append((name + b"/", b"40000 " + name, key))
                continue
            path = folder.path + b"/" + entry.name if folder.path else entry.name
            if entry.name.lower() == _DOTGIT:
                raise BadFolder(f"{_named(entry.path)}: git keeps nothing of this name but at the top; move it away")
            if entry.is_dir(follow_symlinks=False):
                levels.append(_OpenFolder(path, self._list(path)))
            else:
                mode, key, size = self._blob(entry)
                self.files.append(File(path, key, size))
                self.keys.number(key)
                folder.rows.append((entry.name, mode + b" " + entry.name, key))
                self._seen(self._size, len(self.files))

    def _list(self, path: bytes) -> list[os.DirEntry[bytes]]:
        with os.scandir(self._at(path)) as found:
            left_out = () if path else tuple(map(os.fsencode, OF_SYSTEMS))
            return sorted((entry for entry in found if entry.name not in left_out), key=lambda entry: entry.name)

    def _add_tree(self, folder: _OpenFolder) -> Key:
        text = b"".join([written + b"\0" + key for _, written, key in sorted(folder.rows)])
        key = git_key(self._check, TREE, text)
        if folder.rows or not folder.path:
            self.trees[key] = text
            self.keys.number(key)
        return key

    def _blob(self, entry: os.DirEntry[bytes]) -> tuple[bytes, Key, int]:
        """Return the mode, key and size of a file or link."""
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(entry.path)
            return b"120000", git_key(self._check, BLOB, target), len(target)
        if not stat.S_ISREG(found.st_mode):
            raise BadFolder(f"{_named(entry.path)} is neither a file nor a link nor a folder")
        if found.st_size > limits.MAX_RECORD:
            raise BadFolder(
                f"{_named(entry.path)} has {found.st_size} bytes, expected no more than {limits.MAX_RECORD} in a file"
            )
        return _MODES[bool(found.st_mode & 0o100)], *self._hash_file(entry.path)

    def _hash_file(self, place: bytes) -> tuple[Key, int]:
        with _open(place) as file:
            size = os.fstat(file.fileno()).st_size
            digest = self._hash(b"blob %d\0" % size)
            read = 0
            while block := file.read(_BLOCK):
                digest.update(block)
                read += len(block)
        if read != size:
            raise _changed(place)
        self._size += size
        return digest.digest(), size

    def _at(self, path: bytes) -> bytes:
        return os.path.join(self._place, path) if path else self._place


class FolderCommit:
    """A commit of a folder's content. It is both the source of a push and its plan."""

    def __init__(self, tree: FolderTree, parents: Sequence[RevisionId], text: bytes, held: KeyTable) -> None:
        """`text`: the text of the commit. `held`: the keys of files and trees that the server has."""
        self._tree = tree
        self._parents = tuple(map(Parent, parents))
        self._text = text
        self._kinds = GIT[tree.vcs].kinds
        self.id: RevisionId = git_key(self._kinds[0].check, COMMIT, text)
        self.trees = {key: text for key, text in tree.trees.items() if key not in held}
        """The folder's trees that are sent."""
        self.files = {file.key: file for file in tree.files if file.key not in held}
        """The files of the folder that are sent: one file for each different text."""

    def plan(self, tips: object, haves: Iterable[RevisionId]) -> Self:
        """Return this object as the plan. `haves` are ignored, because the commit is new."""
        del tips, haves
        return self

    @property
    def graph(self) -> Sequence[GraphNode]:
        """The graph of the push, which has only this commit."""
        return [GraphNode(self.id, self._parents)]

    def without_bases(self, keys: Collection[Key]) -> Self:
        """Return this plan, which has no bases."""
        del keys
        return self

    def segments(self) -> Iterator[bytes]:
        """Yield the only segment. It is in memory twice while its parts are joined."""
        entries: list[Entry] = []
        frames: list[bytes] = []
        size = 0
        for key, meta, text in self._objects():
            encoding, frame = compress(text)
            size += len(frame)
            if size > limits.MAX_TAKEN:
                raise BadFolder(
                    f"the new files have more than {limits.MAX_TAKEN} bytes (compressed), which is the most in one "
                    "commit: import a part of them first"
                )
            frames.append(frame)
            entries.append(Entry(0, encoding, key, meta, BaseTag.NONE, b"", len(text), len(frame), b""))
        try:
            yield encode_segment(self.id, self._parents, entries, frames, self._kinds)
        except LimitExceeded as error:
            raise BadFolder(f"it cannot be one commit: {error}") from error

    def _objects(self) -> Iterator[tuple[Key, bytes, bytes]]:
        yield self.id, COMMIT, self._text
        for key, text in self.trees.items():
            yield key, TREE, text
        for key, file in self.files.items():
            yield key, BLOB, self._tree.text(file)


def commit_text(tree: Key, parents: Iterable[RevisionId], author: bytes, committer: bytes, message: bytes) -> bytes:
    """Return the text of a commit. `author` and `committer` include their dates."""
    lines = [b"tree " + tree.hex().encode(), *[b"parent " + parent.hex().encode() for parent in parents]]
    lines += [b"author " + author, b"committer " + committer, b"", message.rstrip() + b"\n"]
    return b"\n".join(lines)


def _open(place: bytes) -> BinaryIO:
    return open(place, "rb", opener=lambda name, flags: os.open(name, flags | _OPEN))


def _content(place: bytes, size: int) -> bytes:
    """Return the content of a file, which must have this size."""
    with _open(place) as file:
        if os.fstat(file.fileno()).st_size != size:
            raise _changed(place)
        return file.read(size)  # No more, if it grows now.


def _changed(place: bytes) -> BadFolder:
    return BadFolder(f"{_named(place)} was changed while it was read; try again")


def _named(place: bytes) -> str:
    return os.fsdecode(place)
