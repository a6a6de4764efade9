"""Random git histories with everything git allows, written as loose objects: no process per object."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path

from builders import ancestors

Tree = dict[bytes, "tuple[bytes, bytes] | Tree"]
"""name -> (mode, key) or a folder."""


def environment(home: Path) -> dict[str, str]:
    """An environment in which git sees no settings but the repository's own."""
    home.mkdir(exist_ok=True)
    names = ("PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
    return {
        **{name: os.environ[name] for name in names if name in os.environ},
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }


class Builder:
    """A bare repository to write into."""

    def __init__(self, path: Path, env: Mapping[str, str], object_format: str = "sha1") -> None:
        self.path = path
        self.env = dict(env)
        self.hash = hashlib.sha256 if object_format == "sha256" else hashlib.sha1
        self.width = self.hash().digest_size
        subprocess.run(
            ["git", "init", "-q", "--bare", f"--object-format={object_format}", "-b", "main", str(path)],
            check=True,
            env=self.env,
        )

    def git(self, *arguments: str, stdin: bytes = b"", check: bool = True) -> bytes:
        done = subprocess.run(
            ["git", "--git-dir", str(self.path), *arguments],
            input=stdin,
            capture_output=True,
            env=self.env,
            check=False,
        )
        assert not check or done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def add(self, kind: bytes, text: bytes) -> bytes:
        whole = b"%s %d\0%s" % (kind, len(text), text)
        key = self.hash(whole).digest()
        name = self.path / "objects" / key.hex()[:2] / key.hex()[2:]
        if not name.exists():
            name.parent.mkdir(exist_ok=True)
            name.write_bytes(zlib.compress(whole, 1))
        return key

    def remove(self, key: bytes) -> None:
        (self.path / "objects" / key.hex()[:2] / key.hex()[2:]).unlink()

    def blob(self, text: bytes) -> bytes:
        return self.add(b"blob", text)

    def tree(self, tree: Tree) -> bytes:
        rows = []
        for name, value in tree.items():
            if isinstance(value, dict):
                rows.append((name + b"/", b"40000", name, self.tree(value)))
            else:
                rows.append((name, value[0], name, value[1]))
        return self.add(b"tree", b"".join([m + b" " + n + b"\0" + k for _, m, n, k in sorted(rows)]))

    def commit(self, tree: bytes, parents: list[bytes], *, headers: bytes = b"", message: bytes = b"msg\n") -> bytes:
        who = b"A \xc3\xa9 <a@example.org> 1700000000 +0130\n"
        links = b"".join([b"parent " + parent.hex().encode() + b"\n" for parent in parents])
        text = b"tree %s\n%sauthor %scommitter %s%s\n%s" % (tree.hex().encode(), links, who, who, headers, message)
        return self.add(b"commit", text)

    def tag(self, target: bytes, kind: bytes, name: bytes) -> bytes:
        text = b"object %s\ntype %s\ntag %s\ntagger A <a@example.org> 1700000000 +0000\n\ntagged\n"
        return self.add(b"tag", text % (target.hex().encode(), kind, name))

    def ref(self, name: str, key: bytes) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(key.hex() + "\n")

    def configure(self, text: str) -> None:
        with (self.path / "config").open("a") as file:
            file.write(text)

    def reachable(self, *keys: bytes) -> set[bytes]:
        names = b"".join([key.hex().encode() + b"\n" for key in keys])
        listed = self.git("rev-list", "--objects", "--no-object-names", "--stdin", stdin=names).split()
        return {bytes.fromhex(key.decode()) for key in listed}

    def fsck(self, *arguments: str) -> tuple[int, list[bytes]]:
        done = subprocess.run(
            ["git", "--git-dir", str(self.path), "fsck", "--no-dangling", "--no-progress", *arguments],
            capture_output=True,
            env=self.env,
            check=False,
        )
        return done.returncode, sorted((done.stdout + done.stderr).splitlines())


class RandomHistory:
    """`size` commits: evil and octopus merges, swaps of files and folders, moves, submodules, odd modes and headers."""

    def __init__(self, builder: Builder, seed: int, size: int) -> None:
        self.builder = builder
        self.random = random.Random(seed)
        self.commits: list[bytes] = []
        self.parents: dict[bytes, list[bytes]] = {}
        self._states: dict[bytes, Tree] = {}
        self.words = [b"line %d of some text that repeats\n" % n for n in range(400)]
        for _ in range(size):
            self._add_commit()

    def _content(self) -> bytes:
        rng = self.random
        if rng.random() < 0.6:
            return b"same %d\n" % rng.randrange(12)
        if rng.random() < 0.1:
            return rng.randbytes(rng.randrange(5000))
        start = rng.randrange(300)
        words = self.words[start : start + rng.randrange(100)]
        for _ in range(rng.randrange(4)):
            words.insert(rng.randrange(len(words) + 1), b"edited %d\n" % rng.randrange(1000))
        return b"".join(words)

    def _mutate(self, tree: Tree) -> Tree:
        rng = self.random
        tree = _copy(tree)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            folder = tree
            for _ in range(rng.randrange(3)):
                name = rng.choice([b"x", b"y", b"z"])
                inner = folder.get(name)
                if not isinstance(inner, dict):
                    inner = folder[name] = {}
                folder = inner
            name = rng.choice([b"a", b"a.c", b"b", b"b.c", b"c", b"x", "é".encode(), b"lat\xe9", b".git", b"A"])
            dice = rng.random()
            if dice < 0.15:
                folder.pop(name, None)
            elif dice < 0.22:
                folder[name] = (b"160000", rng.randbytes(self.builder.width))
            elif dice < 0.32:
                mode = rng.choice((b"100755", b"120000", b"100664"))
                folder[name] = (mode, self.builder.blob(b"same %d\n" % rng.randrange(5)))
            elif dice < 0.42 and folder:
                moved = rng.choice(list(folder))
                value = folder[moved]
                folder[name] = _copy(value) if isinstance(value, dict) else value
                if rng.random() < 0.6 and moved != name:
                    del folder[moved]
            elif dice < 0.46:
                folder[name] = {}
            elif dice < 0.5 and tree:
                inner = rng.choice(list(tree.values()))
                tree = _copy(inner) if isinstance(inner, dict) and inner else tree
            else:
                folder[name] = (b"100644", self.builder.blob(self._content()))
        return tree

    def _add_commit(self) -> None:
        rng = self.random
        count = 0 if len(self.commits) < 2 else rng.choice((0, *(1,) * 14, *(2,) * 6, 3, 4))
        recent = self.commits[-8:]
        parents = rng.sample(recent, min(count, len(recent)))
        tree: Tree = _copy(self._states[parents[0]]) if parents else {}
        for parent in parents[1:]:
            for name, value in self._states[parent].items():
                if rng.random() < 0.6:
                    tree[name] = _copy(value) if isinstance(value, dict) else value
        if len(parents) < 2 or rng.random() < 0.4:
            tree = self._mutate(tree)
        headers = b""
        if rng.random() < 0.2:
            headers += b"encoding ISO-8859-1\n"
        if rng.random() < 0.2:
            headers += b"gpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----\n"
        if rng.random() < 0.1:
            headers += b"mergetag object 0123\n type commit\n tag v1\n"
        message = rng.choice((b"msg %d\n", b"no newline %d", b"caf\xe9 %d\n")) % rng.randrange(10**6)
        commit = self.builder.commit(self.builder.tree(tree), parents, headers=headers, message=message)
        self._states[commit] = tree
        self.parents[commit] = parents
        self.commits.append(commit)

    def ancestors(self, *heads: bytes) -> set[bytes]:
        return ancestors(heads, self.parents)


def _copy(tree: Tree) -> Tree:
    return {name: _copy(value) if isinstance(value, dict) else value for name, value in tree.items()}
