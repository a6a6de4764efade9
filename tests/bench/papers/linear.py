"""One line of revisions for git and for Subversion: the first parents of a git branch, or a line that is made here."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from bench.git_histories import copy, file, head, import_stream
from bench.histories import lines_of
from bench.servers import Workspace, run
from smartserver.cli.errors import CommandError

CACHE: Final = ("-M", "1024")

PART: Final = 1000
"""Files that a revision of a wide tree adds."""

FOLDER: Final = 200
"""Files in a folder of a wide tree."""

LONG_FILES: Final = 100
"""Files that the revisions of a long history change in turn."""

CHANGED, LINE = 4, 40
"""Files that a later revision of a wide history changes, and the new bytes in each."""

_EXECUTABLE, _LINK, _SUBMODULE = b"100755", b"120000", b"160000"

Files = Mapping[str, bytes]


def straighten(source: Path | None, target: Path, environment: Mapping[str, str]) -> int:
    """Make a bare repository whose only branch has the trees of a branch's first parents, and return their number."""
    branch = copy(source, target, environment)
    line = "%T%n%an <%ae> %ad%n%cn <%ce> %cd%n%B%x00"
    words = ["git", "log", "--first-parent", "--reverse", "--date=raw", f"--format={line}", branch]
    stream = []
    found = run(words, target, environment).split("\0\n")[:-1]
    for number, revision in enumerate(found, 1):
        tree, author, committer, message = revision.split("\n", 3)
        said = message.encode()
        first = f"commit refs/heads/straight\nmark :{number}\nauthor {author}\ncommitter {committer}\n"
        begin = f"from :{number - 1}\n" if number > 1 else ""
        stream += [first.encode(), b"data %d\n%b\n" % (len(said), said), f"{begin}M 040000 {tree} \n".encode()]
    import_stream(target, environment, b"".join(stream))
    run(["git", "branch", "--force", "--move", "straight", "main"], target, environment)
    run(["git", "symbolic-ref", "HEAD", "refs/heads/main"], target, environment)
    others = run(["git", "for-each-ref", "--format=delete %(refname)"], target, environment)
    others = others.replace("delete refs/heads/main\n", "")
    subprocess.run(["git", "update-ref", "--stdin"], cwd=target, env=environment, input=others.encode(), check=True)
    run(["git", "repack", "-adq"], target, environment)
    return len(found)


def long_history(count: int) -> Iterator[Files]:
    """Yield the changes of so many revisions: one small file each."""
    return ({f"file{number % LONG_FILES:02}": b"as of %d\n" % number} for number in range(count))


def wide_tree(files: int, size: int) -> Iterator[Files]:
    """Yield the revisions that add, in parts, a tree of so many text files of so many bytes."""
    chance = random.Random(files)
    for first in range(0, files, PART):
        numbers = range(first, min(first + PART, files))
        yield {f"folder{number // FOLDER:05}/file{number:07}": lines_of(chance, size) for number in numbers}


def wide_history(files: int, revisions: int, size: int) -> Iterator[Files]:
    """Yield so many revisions of a wide tree. Those after the first parts change a line each in some files."""
    chance = random.Random(revisions)
    texts: dict[str, bytes] = {}
    for part in wide_tree(files, size):
        texts |= part
        yield part
    names = list(texts)
    for _ in range(revisions - -(-files // PART)):
        changed = chance.sample(names, min(CHANGED, files))
        for name in changed:
            at = chance.randrange(max(size - LINE, 1))
            texts[name] = texts[name][:at] + lines_of(chance, LINE) + texts[name][at + LINE :]
        yield {name: texts[name] for name in changed}


def write(target: Path, environment: Mapping[str, str], changes: Iterator[Files]) -> None:
    """Make a bare repository of revisions with these changes."""
    run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(target)], None, environment)
    process = subprocess.Popen(["git", "fast-import", "--quiet"], cwd=target, env=environment, stdin=subprocess.PIPE)
    assert process.stdin is not None
    with process.stdin as stream:
        for number, files in enumerate(changes):
            parts = [head("main", number, b"Revision %d\n" % number), *(file(*each) for each in files.items())]
            stream.write(b"".join(parts))
    if process.wait():
        raise CommandError(f"git fast-import: status {process.returncode}")


def to_ours(changes: Iterator[Files], target: Path, work: Workspace) -> Path:
    """Make a repository of ours with these changes, and return the git repository that it was imported from."""
    source, stream, environment = work.folder / "source.git", work.folder / "stream", work.environment("bench")
    write(source, environment, changes)
    run(["sh", "-c", 'git fast-export main >"$1"', "sh", str(stream)], source, environment)
    run(["smartserver", "fast-import", str(target), str(stream)], source, environment)
    stream.unlink()
    return source


def to_svn(source: Path, target: Path, environment: Mapping[str, str], release: str) -> None:
    """Make a Subversion repository whose revisions have, at the root, the trees of the revisions of `main`.

    `release`: the release of Subversion whose format the repository has.
    """
    run(["svnadmin", "create", "--compatible-version", release, str(target)], None, environment)
    load = ["svnadmin", "load", "--quiet", *CACHE, "--no-flush-to-disk", str(target)]
    export = ["git", "fast-export", "--no-data", "--reencode=yes", "--signed-tags=strip", "refs/heads/main"]
    texts = ["git", "cat-file", "--batch", "--buffer"]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(export, cwd=source, env=environment, stdout=pipe) as exporting,
        subprocess.Popen(texts[:-1], cwd=source, env=environment, stdin=pipe, stdout=pipe) as reading,
        subprocess.Popen(load, env=environment, stdin=pipe) as loading,
    ):
        streams = (exporting.stdout, reading.stdin, reading.stdout, loading.stdin)
        exported, asking, answers, dump = (stream for stream in streams if stream is not None)
        with asking, dump:
            dump.write(b"SVN-fs-dump-format-version: 2\n\n")
            dump.writelines(_Dump(exported, asking, answers).revisions())
    if exporting.returncode or loading.returncode:
        raise CommandError(f"svnadmin load: status {loading.returncode}; git fast-export: {exporting.returncode}")


class _Dump:
    """Turns a stream of `git fast-export --no-data` into the revisions of a Subversion dump."""

    def __init__(self, stream: IO[bytes], asking: IO[bytes], answers: IO[bytes]) -> None:
        self._stream = stream
        self._asking, self._answers = asking, answers
        self._files: dict[bytes, bytes] = {}
        """The mode of each file in the current revision."""
        self._inside: dict[bytes, int] = {}
        """The number of nodes in each folder."""

    def revisions(self) -> Iterator[bytes]:
        number = 0
        seconds = who = b""
        for line in self._stream:
            word, _, rest = line.rstrip(b"\n").partition(b" ")
            if word == b"committer":
                who, seconds = rest.rsplit(b" ", 2)[:2]
            elif word == b"data":
                message = self._stream.read(int(rest))
                number += 1
                yield self._revision(number, message, who.partition(b" <")[0], int(seconds))

    def _revision(self, number: int, message: bytes, author: bytes, seconds: int) -> bytes:
        date = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(seconds)).encode()
        message = message.decode("utf-8", "replace").replace("\r", "").encode()
        said = _properties({b"svn:log": message, b"svn:author": author, b"svn:date": date})
        head = b"Revision-number: %d\nProp-content-length: %d\nContent-length: %d\n\n%b\n" % (
            number, len(said), len(said), said,
        )  # fmt: skip
        return b"".join([head, *self._nodes()])

    def _nodes(self) -> Iterator[bytes]:
        """Yield the changes of the revision: first deletions, then additions."""
        gone: list[bytes] = []
        came: dict[bytes, tuple[bytes, bytes]] = {}
        for line in self._stream:
            words = line.rstrip(b"\n").split(b" ", 3)
            if words[0] == b"M":
                came[_unquoted(words[3])] = (words[1], words[2])
            elif words[0] == b"D":
                gone.append(_unquoted(b" ".join(words[1:])))
            elif not words[0]:
                break
        for path in gone:
            yield from self._delete(path)
        for path, (mode, key) in sorted(came.items()):
            yield from self._put(path, mode, self._text(key))

    def _delete(self, path: bytes) -> Iterator[bytes]:
        """Yield the deletion of a file, or of the outermost folder that has nothing else in it."""
        self._files.pop(path, None)
        top = path
        while (path := path.rpartition(b"/")[0]) and self._inside[path] == 1:
            del self._inside[path]
            top = path
        if path:
            self._inside[path] -= 1
        yield b"Node-path: %b\nNode-action: delete\n\n\n" % top

    def _put(self, path: bytes, mode: bytes, text: bytes) -> Iterator[bytes]:
        if mode == _SUBMODULE:
            raise CommandError(f"{path.decode('utf-8', 'replace')} is a submodule, for which Subversion has nothing")
        before = self._files.get(path)
        if before is None:
            yield from self._folders(path)
        elif (before == _LINK) != (mode == _LINK):
            yield b"Node-path: %b\nNode-action: delete\n\n\n" % path
            before = None
        self._files[path] = mode
        said = _properties(
            {b"svn:special": b"*"} if mode == _LINK else {b"svn:executable": b"*"} if mode == _EXECUTABLE else {}
        )
        text = b"link " * (mode == _LINK) + text
        yield b"Node-path: %b\nNode-kind: file\nNode-action: %b\n" % (path, b"change" if before else b"add")
        yield b"Prop-content-length: %d\nText-content-length: %d\n" % (len(said), len(text))
        yield b"Content-length: %d\n\n%b%b\n\n" % (len(said) + len(text), said, text)

    def _folders(self, path: bytes) -> Iterator[bytes]:
        """Yield the missing folders above a new file."""
        names = path.split(b"/")[:-1]
        for depth in range(len(names), 0, -1):
            folder = b"/".join(names[:depth])
            self._inside[folder] = self._inside.get(folder, 0) + 1
            if self._inside[folder] > 1:
                break
        else:
            depth = 0
        for missing in range(depth + 1, len(names) + 1):
            yield b"Node-path: %b\nNode-kind: dir\nNode-action: add\n\n\n" % b"/".join(names[:missing])

    def _text(self, key: bytes) -> bytes:
        self._asking.write(key + b"\n")
        self._asking.flush()
        size = int(self._answers.readline().split()[2])
        return self._answers.read(size + 1)[:-1]


def _properties(found: Mapping[bytes, bytes]) -> bytes:
    listed = [b"K %d\n%b\nV %d\n%b\n" % (len(name), name, len(value), value) for name, value in found.items()]
    return b"".join([*listed, b"PROPS-END\n"])


def _unquoted(path: bytes) -> bytes:
    """Return a path without the quotes of `git fast-export`."""
    if not path.startswith(b'"'):
        return path
    return path[1:-1].decode("unicode_escape").encode("latin-1")


def tree_of(folder: Path, git: Path, environment: Mapping[str, str]) -> str:
    """Return git's id of the content of a folder."""
    (git / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n", encoding="utf-8")
    mine = {**environment, "GIT_INDEX_FILE": str(git / "compared"), "GIT_WORK_TREE": str(folder), "GIT_DIR": str(git)}
    run(["git", "read-tree", "--empty"], None, mine)
    run(["git", "add", "--all", "--force", "."], folder, mine)
    return run(["git", "write-tree"], None, mine).strip()


def trees(git: Path, environment: Mapping[str, str]) -> Sequence[str]:
    """Return the ids of the trees of all revisions of `main`, the oldest first."""
    return run(["git", "log", "--reverse", "--format=%T", "main"], git, environment).split()
