"""Pushes of one commit each: the bytes of every one on the link, ours beside git's for the same commit.

Commits go from the oldest to the newest in topological order, so the servers have a commit's parents when its turn
comes. Before each push the servers' refs are moved, off the link, to exactly the parents. So both servers show only the
ancestors, and git's push can use nothing else as a base.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

import click

from bench import options
from bench.git_histories import add_commit, copy
from bench.push import NOTHING, revisions_of
from bench.report import Progress, Report, median, percentile
from bench.servers import Server, Workspace, run
from netem.counter import Counts
from netem.proxy import Proxy
from smartserver.cli.errors import CommandError, one_line
from smartserver.client.call import Caller, Client
from smartserver.client.knowledge import Knowledge, cache_folder
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.client.url import parse
from smartserver.vcs.git.plan import Revision
from smartserver.verbs.rules import Rule
from smartserver.wire.limits import INITIAL_WINDOW

BRANCH = "refs/heads/main"
ANCHOR = "anchor"
"""A branch without a relation to the history. HEAD names it, so that every other branch can be deleted."""

GROWTH = 16
"""Bytes that a push may take more with many refs than with one: version numbers grow by digits."""

MANY_PUSHES = 50
"""The number of pushes that are measured with more than one ref."""

_PER_REQUEST = 5000
"""The number of refs that one request makes."""

_PACKED_FROM = 100
"""The number of refs from which git keeps them in one file."""


class _Remote:
    """A repository of ours whose refs can be moved without using the link."""

    def __init__(self, work: Workspace, server: Server, name: str, environment: Mapping[str, str]) -> None:
        self.proxy = work.enter(Proxy(0.0, server.address))
        self.url = server.url(name, self.proxy.port)
        # What git's pushes know of the remote, so that it stays up to date.
        self._folder = cache_folder(environment)
        self._client = work.enter(Client(lambda: TcpMedium(*server.address), (), Caller("bench")))

    def set_refs(self, changes: Mapping[str, str | None]) -> None:
        updates = [
            RefUpdate(name.encode(), None if tip is None else bytes.fromhex(tip), Rule.FORCE)
            for name, tip in changes.items()
        ]
        location = parse(self.url)
        for at in range(0, len(updates), _PER_REQUEST):
            remote = RemoteRepository(self._client, location.path, Knowledge(self._folder, location.key))
            for done in remote.push(PushRequest(updates[at : at + _PER_REQUEST], NOTHING)).refs:
                if done.outcome is Outcome.REFUSED:
                    raise CommandError(f"{done.update.ref.decode()}: {done.error}")


class _Git(_Remote):
    """A repository of git's whose refs can be moved without using the link."""

    def __init__(self, work: Workspace, server: Server, name: str, environment: Mapping[str, str]) -> None:
        self.proxy = work.enter(Proxy(0.0, server.address))
        self.url = server.url(name, self.proxy.port)
        self._git = partial(subprocess.run, cwd=server.served / name, env=environment, check=True)
        run(["git", "init", "--quiet", "--bare", str(server.served / name)], None, environment)
        self._git(["git", "config", "receive.autogc", "false"])

    def set_refs(self, changes: Mapping[str, str | None]) -> None:
        lines = [f"delete {name}\n" if tip is None else f"update {name} {tip}\n" for name, tip in changes.items()]
        self._git(["git", "update-ref", "--stdin"], input="".join(lines).encode())
        if len(lines) > _PACKED_FROM:
            self._git(["git", "pack-refs", "--all"])


class Commits:
    """The measurement: the servers hold the ancestors of the commits, then the commits are pushed one by one."""

    def __init__(self, path: Path, count: int, work: Workspace, progress: Progress) -> None:
        self._progress = progress
        # A bitmap makes pack-objects forget the bases a thin pack could use: git would look worse than it is.
        settings = {"pack.useBitmaps": "false", "repack.writeBitmaps": "false", "gc.auto": "0"}
        self._environment = work.environment("bench", settings)
        self._source = work.folder / "source.git"
        progress.step(f"copying and repacking {path.name}")
        self.branch = copy(path, self._source, self._environment)
        run(["git", "repack", "-adfq"], self._source, self._environment)
        found = revisions_of(self._source, self._environment, self.branch, "--topo-order", f"-{count}")
        self.commits: list[Revision] = found[::-1]
        add_commit(self._source, self._environment, ANCHOR, {"anchor": b"anchor\n"})
        self._work = work
        daemon = work.start_git_daemon()
        if daemon is None:
            raise CommandError("`git daemon` is not installed: there is nothing to compare with")
        self._daemon, self._ours = daemon, work.start_ours()

    def remotes(self, name: str, commits: Sequence[Revision], refs: int) -> list[_Remote]:
        """Make a new repository on each server, ours first, with the ancestors of `commits` and about `refs` refs."""
        remotes = [
            _Remote(self._work, self._ours, name, self._environment),
            _Git(self._work, self._daemon, name, self._environment),
        ]
        here = {revision.id for revision in commits}
        below = dict.fromkeys(p.hex() for revision in commits for p in revision.parents if p not in here)
        names = {f"refs/heads/below-{number}": key for number, key in enumerate(below)}
        tips = self._git("rev-list", *(below or [ANCHOR])).split()
        many = {f"refs/heads/many/{n:06}": tips[n % len(tips)] for n in range(1, refs)}
        for remote in remotes:
            self._progress.step(f"{remote.url}: pushing what is below {len(commits)} commits, {refs} refs")
            # The anchor alone at first, so that HEAD is there.
            self._push(remote, f"refs/heads/{ANCHOR}:refs/heads/{ANCHOR}")
            if names:
                self._push(remote, *[f"{key}:{name}" for name, key in names.items()])
            remote.set_refs({**dict.fromkeys(names), **many})
        return remotes

    def thin_packs(self) -> list[int]:
        """Return the size in bytes of git's thin pack of each commit."""
        found = []
        for revision in self.commits:
            found.append(self._thin_pack(revision))
            self._progress.count("thin packs", len(found), len(self.commits))
        return found

    def _thin_pack(self, revision: Revision) -> int:
        asked = [revision.id.hex(), *["^" + parent.hex() for parent in revision.parents]]
        command = ["git", "pack-objects", "-q", "--revs", "--thin", "--delta-base-offset", "--stdout"]
        done = subprocess.run(
            command, cwd=self._source, env=self._environment, input="\n".join(asked).encode(), capture_output=True,
            check=True,
        )  # fmt: skip
        return len(done.stdout)

    def push_each(self, remote: _Remote, what: str, commits: Sequence[Revision]) -> list[Counts]:
        """Push each commit while the server's refs are at its parents, and return the bytes of each push."""
        pushed = []
        refs: dict[str, str] = {}
        for number, revision in enumerate(commits):
            wanted = {BRANCH if not n else f"refs/heads/merged-{n}": p.hex() for n, p in enumerate(revision.parents)}
            changes: dict[str, str | None] = {name: None for name in refs if name not in wanted}
            changes |= {name: key for name, key in wanted.items() if refs.get(name) != key}
            if changes:
                remote.set_refs(changes)
            remote.proxy.take()
            self._push(remote, f"{revision.id.hex()}:{BRANCH}")
            pushed.append(remote.proxy.take())
            refs = wanted | {BRANCH: revision.id.hex()}
            self._progress.count(what, number + 1, len(commits))
        remote.set_refs(dict.fromkeys(refs))
        return pushed

    def _push(self, remote: _Remote, *refspecs: str) -> None:
        self._git("push", "--quiet", remote.url, *refspecs)

    def _git(self, *arguments: str) -> str:
        return run(["git", *arguments], self._source, self._environment)


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Parse numbers of 1 or more with commas between them."""
    try:
        found = tuple(int(number) for number in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r}: expected numbers with commas between them, e.g. 1,1000") from None
    if min(found) < 1:
        raise click.BadParameter(f"{value!r}: expected numbers of 1 or more")
    return found


@click.command()
@options.path()
@options.number("-n count", 500, "The newest commits.")
@click.option("--refs", callback=_numbers, default="1", show_default=True, help="Numbers of refs on the server.")
def command(path: Path, count: int, refs: tuple[int, ...]) -> None:
    """Bytes of one-commit pushes, each to servers that hold exactly the parents.

    Stock `git push` does both, over hpss:// and git://, through a proxy that counts application bytes in both
    directions. For each further number of refs, 50 of the pushes are repeated with that many refs on the server: their
    bytes must not grow.

    \b
    bench commits ~/src/project -n 100
    bench commits history.bundle --refs 1,1000,20000
    """
    with Workspace("bench") as work, one_line():
        commits = Commits(path, count, work, Progress())
        if not commits.commits:
            raise CommandError(f"{commits.branch} has no commits")
        what = f"{len(commits.commits)} commits of {commits.branch}"
        report = Report(f"{what}, each pushed to servers that hold exactly its parents")
        first: list[list[Counts]] = []
        for number in sorted({1, *refs}):
            # A commit can be pushed to a repository once: each number of refs has repositories of its own.
            chosen = commits.commits if number == 1 else commits.commits[:MANY_PUSHES]
            remotes = commits.remotes(f"refs-{number}", chosen, number)
            pushed = [commits.push_each(each, f"push over {each.url.partition(':')[0]}", chosen) for each in remotes]
            if number == 1:
                first = pushed
                _add_bytes(report, pushed[0], pushed[1], commits.thin_packs())
            if len(refs) > 1:
                _add_growth(report, number, first, pushed)
    report.finish()


def _add_growth(report: Report, refs: int, first: Sequence[list[Counts]], pushed: Sequence[list[Counts]]) -> None:
    """Add the bytes that many refs add to the pushes of the same commits."""
    ours, git = (each[:MANY_PUSHES] for each in pushed)
    label = f"{refs:,} refs, {len(ours)} pushes: bytes"
    report.both(f"{label} up, median", lambda pushes: f"{median([p.bytes_up for p in pushes]):,}", ours, git)
    report.both(f"{label} down, median", lambda pushes: f"{median([p.bytes_down for p in pushes]):,}", ours, git)
    if refs > 1:
        up = max(push.bytes_up - before.bytes_up for push, before in zip(ours, first[0], strict=False))
        down = max(push.bytes_down - before.bytes_down for push, before in zip(ours, first[0], strict=False))
        ok = max(up, down) <= GROWTH
        report.add(f"{refs:,} refs: most that a push grew", f"{up:+} up, {down:+} down", "", f"+{GROWTH}", ok)


def _add_bytes(report: Report, ours: Sequence[Counts], git: Sequence[Counts], thin: Sequence[int]) -> None:
    for what, of in (("both ways", _both_ways), ("up", attrgetter("bytes_up")), ("down", attrgetter("bytes_down"))):
        mine, theirs = ([of(push) for push in pushes] for pushes in (ours, git))
        for name, percent in (("median", 50), ("p90", 90), ("p99", 99), ("most", 100)):
            a, b = int(percentile(mine, percent)), int(percentile(theirs, percent))
            judged = ("git's", a <= b) if percent <= 90 else ()
            report.add(f"bytes {what}: {name}", f"{a:,}", f"{b:,}", *judged)
    fits = [push.bytes_up for push, pack in zip(ours, thin, strict=True) if pack < INITIAL_WINDOW]
    over = sum(up >= INITIAL_WINDOW for up in fits)
    report.add(f"{INITIAL_WINDOW:,} up or more where git's thin pack is under", f"{over}", "", "0", over == 0)
    large = lambda pushes: str(sum(push.bytes_up >= INITIAL_WINDOW for push in pushes))  # noqa: E731
    report.both(f"{INITIAL_WINDOW:,} up or more", large, ours, git)
    larger = sum(_both_ways(a) > _both_ways(b) for a, b in zip(ours, git, strict=True))
    report.add("pushes with more bytes than the other's", str(larger), str(len(ours) - larger))


def _both_ways(counts: Counts) -> int:
    return counts.bytes_up + counts.bytes_down
