"""Two sides that do the same with stock git: one against a served repository, one against git's own over file://.

A script is sh. `a commit f`: user a, in repository a and with a cache of its own, commits a file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from our_forks import FORKS, with_forked

from netem.counter import Counts
from netem.proxy import Proxy
from smartserver.client.knowledge import Knowledge, decode, encode
from smartserver.client.url import parse
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

RTT = 0.02
"""Seconds: long enough to tell an answer from bytes that were sent ahead, short enough for hundreds of commands."""

TIMEOUT = 120
"""Seconds after which a command counts as hanging."""

USERS = r"""
set -e
user() (
    XDG_CACHE_HOME=$SIDE/.cache/$1; export XDG_CACHE_HOME
    cd "$SIDE/$1"; shift
    "$@"
)
a() { user a "$@"; }
b() { user b "$@"; }
c() { user c "$@"; }
as() ( XDG_CACHE_HOME=$SIDE/.cache/$1; export XDG_CACHE_HOME; shift; cd "$SIDE"; "$@" )
forget() { rm -rf "$SIDE/.cache/$1"; }
"""
"""`as c`: runs as user c, in no repository. `forget a`: makes user a forget all remotes."""

COMMIT = r"""
commit() { printf '%s\n' "$1" > "$1"; git add -A; git commit -q -m "$1"; }
"""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of git and the helper: a home of its own, no variable of the user's, and fixed dates."""
    # SMARTSERVER_DEBUG says what is banned; AWS_... is set where a bucket is.
    kept = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "SMARTSERVER_DEBUG")
    return {
        **{name: value for name, value in os.environ.items() if name in kept or name.startswith("AWS_")},
        "PATH": with_forked(os.environ["PATH"]),
        "HOME": str(home),
        "SIDE": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": "",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_AUTHOR_DATE": "1700000000 +0000",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_COMMITTER_DATE": "1700000000 +0000",
        "GIT_TERMINAL_PROMPT": "0",
        "SMARTSERVER_AGENT": "0",
        "CC": "false",  # `smartserver setup git` replaces no program of this environment.
    }


SETTINGS = """[init]
	defaultBranch = main
[advice]
	detachedHead = false
[pull]
	rebase = false
[protocol "file"]
	allow = always
[protocol "hpss"]
	allow = always
[gc]
	auto = 0
[maintenance]
	auto = false
"""


@dataclass(frozen=True)
class CommandRow:
    """One command of a user: what the tables of commands of git and of hg share."""

    name: str
    run: str
    """The script that is counted and compared: sh, as below."""
    start: str = "shared"
    before: str = ""
    status: int = 0
    most_down: int = 1 << 20
    """The most bytes from the server."""


@dataclass(frozen=True)
class Done:
    """The results of a script; its output has placeholders for the folder and the URL."""

    status: int
    out: str
    err: str
    counts: Counts = field(default_factory=Counts)

    @property
    def said(self) -> str:
        """Both streams."""
        return self.out + self.err


def fine(done: Done, rounds: int = 2) -> Done:
    """Check that a script succeeded in so many round trips (`check_rounds`), and return its results."""
    assert done.status == 0, done.said
    check_rounds(done.counts, rounds)
    return done


def check_rounds(counts: Counts, rounds: int) -> None:
    """Check the round trips, with the one that makes a connection."""
    assert counts.rounds == rounds, counts


class Served:
    """A running `smartserver serve` with a link before it."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        root: Path | None = None,
        program: Sequence[str] = ("-m", "smartserver.cli.main"),
    ) -> None:
        """`root`: repositories that another server serves too; `program`: the words after `python`."""
        self.root = root or folder / "root"
        self.root.mkdir(exist_ok=True)
        self.log = folder / f"server-{len(list(folder.glob('server-*.log')))}.log"
        with open(self.log, "wb") as log:
            self.process = FORKS.start(
                *program,
                "serve",
                str(self.root),
                "--listen",
                "127.0.0.1:0",
                *options,
                stdout=log.fileno(),
                stderr=log.fileno(),
                environment=environment(folder),
            )
        self.direct = ("127.0.0.1", self._port())
        self.proxy = Proxy(RTT, self.direct)
        self.proxy.start()

    def _port(self) -> int:
        """Wait until the server listens, and return its port."""
        with open(self.log, "rb") as log:
            seen = b""
            while self.process.poll() is None:
                seen += log.read()
                found = re.search(rb"hpss(?:\+tls)?://127\.0\.0\.1:(\d+)/", seen)
                if found:
                    return int(found[1])
                try:
                    self.process.wait(0.02)
                except subprocess.TimeoutExpired:
                    continue
        raise AssertionError(f"the server ended: {seen.decode()}")

    def url(self, path: str) -> str:
        """Return the URL of a repository, through the link."""
        return f"hpss://127.0.0.1:{self.proxy.port}/{path}"

    def copy(self, path: str, to: str) -> None:
        """Copy a repository, if there is one, to another path."""
        if (self.root / path).exists():
            shutil.copytree(self.root / path, self.root / to)

    def close(self) -> str:
        """Stop the server, and return its log without the line of its address and without refusals of access."""
        self.proxy.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        lines = self.log.read_text().splitlines(keepends=True)[1:]
        return "".join([line for line in lines if ": access-denied: " not in line])


class Side:
    """The repositories of some users in a folder, and a URL that they share."""

    prelude = USERS + COMMIT
    """The beginning of each script."""

    def __init__(self, folder: Path, url: str, served: Served | None = None) -> None:
        self.folder = folder
        self.url = url
        self.served = served
        folder.mkdir(exist_ok=True)
        (folder / ".gitconfig").write_text(SETTINGS)

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of a script."""
        return {**environment(self.folder), "URL": self.url, **variables}

    def run(self, script: str, **variables: str) -> Done:
        """Run a script, and count the traffic on the link."""
        if self.served is not None:
            self.served.proxy.take()
        done = subprocess.run(
            ["sh", "-c", self.prelude + script],
            cwd=self.folder,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
        counts = self.served.proxy.take() if self.served is not None else Counts()
        return Done(done.returncode, self._plain(done.stdout), self._plain(done.stderr), counts)

    def prepare(self, script: str, **variables: str) -> Done:
        """Run a script that must succeed."""
        done = self.run(script, **variables)
        assert done.status == 0, done.said
        return done

    def git(self, repository: str, *arguments: str) -> str:
        """Return the output of a git command that must succeed and asks no remote."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder / repository,
            env=environment(self.folder),
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "backslashreplace").rstrip("\n")

    def _plain(self, said: bytes) -> str:
        text = said.decode("utf-8", "backslashreplace")
        return text.replace(self.url, "URL").replace(str(self.folder), "SIDE")

    def repositories(self) -> list[str]:
        """Return the users' repositories."""
        return sorted(
            path.name
            for path in self.folder.iterdir()
            if path.name != "peer" and ((path / ".git").exists() or (path / "HEAD").exists())
        )

    def state(self) -> str:
        """Return refs, HEAD and FETCH_HEAD of all repositories."""
        lines = []
        for name in self.repositories():
            folder = self.folder / name
            folder = folder / ".git" if (folder / ".git").exists() else folder
            lines += [f"== {name}", self.git(name, "for-each-ref", "--format=%(objectname) %(refname) %(symref)")]
            lines.append((folder / "HEAD").read_text())
            if (folder / "FETCH_HEAD").exists():
                lines += sorted((folder / "FETCH_HEAD").read_text().splitlines())
        # FETCH_HEAD names the remote without its scheme where it is a path.
        return self._plain("\n".join(lines).encode()).replace("SIDE/peer", "URL")

    def check_sound(self) -> None:
        """Check that git finds nothing wrong with any repository."""
        for name in self.repositories():
            assert self.git(name, "fsck", "--strict", "--no-dangling", "--no-progress") == "", name

    @property
    def path(self) -> str:
        """The path of the repository on the server."""
        return self.url.rpartition("/")[2]

    @property
    def refs(self) -> dict[str, str]:
        """The refs of the served repository, as `server_refs`."""
        assert self.served is not None
        return server_refs(self.served, self.path)


def server_refs(served: Served, path: str) -> dict[str, str]:
    """Return the stored refs of a served repository; empty if there is none."""
    repository = PackRepository(LocalTransport(served.root), path)
    if not repository.exists():
        return {}
    refs = repository.snapshot().state.refs()
    return {name.decode("utf-8", "surrogateescape"): value[0].id.hex() for name, value in refs.items()}


def server_head(served: Served, path: str) -> str:
    """Return the branch that a clone checks out."""
    return PackRepository(LocalTransport(served.root), path).snapshot().state.settings["HEAD"].decode()


def missing_objects(served: Served, path: str, ids: list[str]) -> list[str]:
    """Return the members of `ids` that a served repository lacks."""
    repository = PackRepository(LocalTransport(served.root), path)
    if not repository.exists():
        return ids
    snapshot = repository.snapshot()
    return [name for name in ids if snapshot.first(0, bytes.fromhex(name)) is None]


def peer_refs(side: Side) -> dict[str, str]:
    """Return the refs of the repository that git serves."""
    listed = side.git("peer", "for-each-ref", "--format=%(refname) %(objectname)")
    return dict(line.split(" ") for line in listed.splitlines())


def copy_side(template: Side, folder: Path, url: str) -> Side:
    """Copy a side to another folder and URL, with its users' knowledge of the remote."""
    shutil.copytree(template.folder, folder, symlinks=True)
    side = Side(folder, url, template.served)
    places: Mapping[str, str] = {template.url: url, str(template.folder): str(folder)}
    for config in [*folder.glob("*/.git/config"), *folder.glob("*/config")]:
        text = config.read_text()
        for old, new in places.items():
            text = text.replace(old, new)
        config.write_text(text)
    for remotes in folder.glob(".cache/*/smartserver/remotes"):
        readdress(remotes, template.url, url)
    return side


def readdress(remotes: Path, old: str, new: str) -> None:
    """Move a user's knowledge of a remote to another URL."""
    before, after = (knowledge_file(remotes, url) for url in (old, new))
    if before.exists():
        known = decode(before.read_bytes(), parse(old).key)
        known.url = parse(new).key
        after.write_bytes(encode(known))
        before.unlink()


def knowledge_file(remotes: Path, url: str) -> Path:
    """Return the file in which the knowledge of a remote is kept."""
    path = Knowledge(str(remotes), parse(url).key).path
    assert path is not None
    return Path(path)


@dataclass(frozen=True)
class Pair:
    """The same start on both sides."""

    ours: Side
    gits: Side

    def prepare(self, script: str) -> None:
        """Run a script that must succeed on both sides."""
        for done in self.run(script):
            assert done.status == 0, done.said

    def run(self, script: str) -> tuple[Done, Done]:
        """Run a script on both sides at the same time."""
        with ThreadPoolExecutor(1) as other:
            gits = other.submit(self.gits.run, script)
            return self.ours.run(script), gits.result()

    def states(self) -> tuple[str, str]:
        """Return `Side.state` of both sides."""
        with ThreadPoolExecutor(1) as other:
            gits = other.submit(self.gits.state)
            return self.ours.state(), gits.result()
