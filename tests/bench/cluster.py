"""`make demo-cluster`: three servers behind HAProxy, an S3 store and PostgreSQL, each killed while users push."""

from __future__ import annotations

import os
import random
import re
import signal
import struct
import subprocess
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
from haproxy import Haproxy
from needs import Missing
from postgres import Postgres
from versitygw import S3, environment

from bench.breezy import BRZ, last_revision, plugin_at, settings
from bench.mercurial import OURS, SETTINGS
from bench.report import Progress, circumstances, end
from bench.servers import HOST, Workspace, attempt, free_port, run, serving
from smartserver.cli.errors import CommandError

SERVERS = 3
KILL_EVERY = 10.0
FROZEN = 15.0
AWAY = 2.0
"""Seconds for which PostgreSQL or a process of the S3 store is stopped."""
AHEAD = 600.0
"""Seconds by which the clock of one server is fast."""
CLOCK = Path(__file__).parents[1] / "sockets" / "soak_clock.py"
"""The program that starts a server with another clock."""
GIT, BRZ_USERS, HG = 20, 6, 6
"""The number of users of each tool; 32 together."""
SHARED = "refs/heads/shared"


@dataclass
class Seen:
    """The observations of all users."""

    over: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """Tips by repository and ref, in the order of the answers."""
    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """The duration of each acknowledged push."""
    wrong: list[str] = field(default_factory=list)


class Node:
    """A server: a process that is started again whenever it is killed."""

    def __init__(self, work: Workspace, root: str, gateway: str, number: int) -> None:
        self.port, self.ready = free_port(), free_port()
        options = ("--metrics", f"{HOST}:{self.ready}", "--cache-dir", str(work.folder / f"copies{number}"))
        self._command = list(serving(root, HOST, self.port, *options))
        self._environment = work.environment(f"server{number}") | environment(gateway)
        if number == 0:
            clock = work.folder / "clock"
            clock.write_bytes(struct.pack("d", AHEAD))
            self._command[1:3] = [str(CLOCK), str(clock)]
        self._log = (work.folder / f"server{number}.log").open("ab")
        work.later(self._log.close)
        self._guard = threading.Lock()
        self.start()
        work.later(self.stop)

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill_unless_frozen(self) -> bool:
        if not self._guard.acquire(blocking=False):
            return False
        try:
            self.stop()
            self.start()
        finally:
            self._guard.release()
        return True

    def freeze(self) -> None:
        with self._guard:
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(FROZEN)
            self.process.send_signal(signal.SIGCONT)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.ready}/readyz", timeout=5):
                return True
        except OSError:
            return False


class Cluster:
    """All parts, and the failures that are made in them."""

    def __init__(self, work: Workspace, log_in: str) -> None:
        (work.folder / "s3").mkdir()
        self.s3 = work.enter(S3(work.folder / "s3"))
        self.postgres = work.enter(Postgres()) if log_in == "postgres" else None
        self.root = f"s3://{self.s3.bucket()}/code"
        self.environment = work.environment("operator") | environment(self.s3.gateways[1].endpoint)
        if self.postgres is not None:
            self.smartserver("cluster", "init", self.root, "--log", self.postgres.address)
        gateways = [self.s3.gateways[number % 2].endpoint for number in range(SERVERS)]
        self.nodes = [Node(work, self.root, gateway, number) for number, gateway in enumerate(gateways)]
        self.wait()
        balancer = work.enter(Haproxy(work.folder, [(node.port, node.ready) for node in self.nodes]))
        self.url = f"hpss://{HOST}:{balancer.port}/"
        self.done: Counter[str] = Counter()

    def smartserver(self, *words: str) -> str:
        return run(["smartserver", *words], None, self.environment)

    def wait(self) -> None:
        end_at = time.monotonic() + 60
        while not all(node.is_ready() for node in self.nodes):
            if time.monotonic() > end_at:
                raise CommandError("a server does not become ready")
            time.sleep(0.2)

    def moments(self, seconds: float) -> list[tuple[float, Callable[[], None]]]:
        """Return the failures to make during so many seconds, each with the second at which it comes."""
        found: list[tuple[float, Callable[[], None]]] = []
        found += [(at * KILL_EVERY, self._kill) for at in range(1, int(seconds / KILL_EVERY))]
        found += [(seconds * (n + 1) / 4, partial(self._freeze, node)) for n, node in enumerate(self.nodes)]
        found += [(seconds * part, partial(self._away, n)) for n, part in enumerate((0.2, 0.45, 0.7))]
        if self.postgres is not None:
            found += [(seconds * part, self._restart) for part in (0.33, 0.6)]
        return found

    def _kill(self) -> None:
        for node in random.sample(self.nodes, SERVERS):
            if node.kill_unless_frozen():
                self.done["servers killed"] += 1
                return

    def _freeze(self, node: Node) -> None:
        node.freeze()
        self.done[f"servers frozen for {FROZEN:.0f} s"] += 1

    def _away(self, number: int) -> None:
        gateway = self.s3.gateways[number % 2]
        gateway.kill()
        time.sleep(AWAY)
        gateway.start()
        self.done["processes of the S3 store killed"] += 1

    def _restart(self) -> None:
        assert self.postgres is not None
        self.postgres.stop()
        time.sleep(AWAY)
        self.postgres.start()
        self.done["restarts of PostgreSQL"] += 1


class User:
    """A user who pushes to a ref of its own, and reads."""

    def __init__(self, work: Workspace, cluster: Cluster, seen: Seen, system: str, number: int) -> None:
        self.repository = f"{system}{number % 2}"
        self.url = cluster.url + self.repository
        self.name = f"u{number}"
        self.seen = seen
        self.folder = work.folder / "users" / f"{system}{number}"
        self.folder.parent.mkdir(exist_ok=True)
        self.environment = work.environment(f"{system}{number}") | settings(self.folder.parent) | dict(SETTINGS)
        self.environment |= {"BRZ_PLUGINS_AT": plugin_at()}
        self.chance = random.Random(f"{system}{number}")
        self.turn = 0
        self.begin()

    def begin(self) -> None:
        """Make the user's own repository."""
        raise NotImplementedError

    def take_turn(self) -> None:
        """Make a revision and push it; read now and then."""
        raise NotImplementedError

    def work(self) -> None:
        """Take turns until the run is over."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # Users have machines of their own.
        while not self.seen.over.is_set():
            self.turn += 1
            (self.folder / f"file{self.turn % 7}").write_bytes(self.chance.randbytes(2000))
            try:
                self.take_turn()
            except CommandError as wrong:
                self.seen.wrong.append(str(wrong))
                return

    def own(self, *words: str) -> str:
        """Run a command that asks no server, and return its output."""
        return run(words, self.folder, self.environment).strip()

    def ask(self, what: str, *words: str) -> str | None:
        """Run a command that asks a server, and return its output. Count a failure and return None."""
        begun = time.monotonic()
        done = attempt(words, self.folder, self.environment)
        if done.returncode == 0:
            self.seen.counts[f"{what}: done"] += 1
            if what.endswith("push"):
                self.seen.seconds.append(time.monotonic() - begun)
            return done.stdout
        lines = [line for line in done.stderr.splitlines() if "hpss" in line or "reject" in line or "ERROR" in line]
        reason = re.sub(r"[0-9a-f]{8,}|\d+|u\d+", "N", (lines or [done.stderr.strip()[-200:]])[0])
        self.seen.counts[f"{what}: {reason[:150]}"] += 1
        return None

    def push(self, ref: str, tip: str, *words: str) -> None:
        if self.ask(f"{self.repository[:-1]} push", *words) is not None:
            self.seen.acknowledged[self.repository, ref].append(tip)


class GitUser(User):
    def begin(self) -> None:
        run(["git", "init", "--quiet", str(self.folder)], None, self.environment)

    def take_turn(self) -> None:
        self.own("git", "add", ".")
        self.own("git", "commit", "--quiet", "-m", f"{self.name} {self.turn}")
        tip, ref = self.own("git", "rev-parse", "HEAD"), f"refs/heads/{self.name}"
        self.push(ref, tip, "git", "push", "--quiet", self.url, f"HEAD:{ref}")
        if self.turn % 3 == 0:
            self.share()
        if self.turn % 5 == 0:
            self.read(ref)

    def share(self) -> None:
        """Merge the commits that other users pushed to a branch, and push that; another user may be first."""
        if self.ask("git fetch", "git", "fetch", "--quiet", self.url, "+refs/heads/*:refs/remotes/o/*") is None:
            return
        found = self.own("git", "for-each-ref", "--format=%(objectname)", "refs/remotes/o/shared")
        parents = ["-p", "HEAD", *(["-p", found] if found else [])]
        tip = self.own("git", "commit-tree", "HEAD^{tree}", *parents, "-m", "merge")
        self.push(SHARED, tip, "git", "push", "--quiet", self.url, f"{tip}:{SHARED}")

    def read(self, ref: str) -> None:
        """Check that the server shows the last acknowledged tip of a ref, or a descendant of it."""
        known = self.seen.acknowledged[self.repository, ref]
        if known and self.turn % 10:
            told = self.ask("git ls-remote", "git", "ls-remote", self.url, ref)
            if told is not None and not self._has(told.partition("\t")[0], known[-1]):
                self.seen.wrong.append(f"{ref} of {self.repository} was shown at {told!r} after {known[-1]}")
        elif known:
            clone = self.folder.with_suffix(".clone")
            if self.ask("git clone", "git", "clone", "--quiet", "--bare", self.url, str(clone)) is not None:
                self.own("git", "--git-dir", str(clone), "cat-file", "-e", known[-1])
            attempt(["rm", "-rf", str(clone)], None, self.environment)

    def _has(self, tip: str, wanted: str) -> bool:
        ask = ["git", "merge-base", "--is-ancestor", wanted, tip]
        return bool(tip) and attempt(ask, self.folder, self.environment).returncode == 0


class BrzUser(User):
    def begin(self) -> None:
        run([*BRZ, "init", "--quiet", str(self.folder)], None, self.environment)

    def take_turn(self) -> None:
        self.own(*BRZ, "add", "--quiet")
        self.own(*BRZ, "commit", "--quiet", "-m", f"{self.turn}")
        tip = last_revision(self.folder).split()[1]
        self.push(self.name, tip, *BRZ, "push", "--quiet", f"{self.url}/{self.name}")


class HgUser(User):
    def begin(self) -> None:
        run(["hg", "init", str(self.folder)], None, self.environment)

    def take_turn(self) -> None:
        self.own("hg", "commit", "--quiet", "-A", "-m", f"{self.turn}")
        self.own("hg", "bookmark", "--force", self.name)
        tip = self.own("hg", "log", "-r", ".", "-T", "{node}")
        self.push(self.name, tip, *OURS, "push", "--quiet", "--force", "-B", self.name, self.url)


@click.command(short_help="Kill each part of a cluster while users push: count what was acknowledged and is there.")
@click.option("--minutes", type=click.FloatRange(0.5), default=1.0, show_default=True, help="How long.")
@click.option(
    "--log-in", type=click.Choice(["postgres", "s3"]), default="postgres", show_default=True, help="Where logs are."
)
def command(minutes: float, log_in: str) -> None:
    """Three servers behind HAProxy, two processes of an S3 store and PostgreSQL, on loopback; 32 users push and clone.

    A server is killed every 10 seconds. Each is frozen for 15 seconds once, PostgreSQL is restarted twice, and a
    process of the S3 store is killed three times. The clock of one server is ten minutes fast. Afterwards every
    acknowledged push must be there, and the repositories must be sound: exit status 1 if not.

    \b
    make demo-cluster
    make demo-cluster ARGS="--minutes 10 --log-in s3"
    """
    progress, seen = Progress(), Seen()
    with Workspace("cluster") as work:
        try:
            cluster = Cluster(work, log_in)
        except Missing as missing:
            raise CommandError(str(missing)) from None
        for number in range(2):
            run([*BRZ, "init-shared-repo", "--quiet", f"{cluster.url}brz{number}"], None, _brz(work))
        kinds = [(GitUser, "git", GIT), (BrzUser, "brz", BRZ_USERS), (HgUser, "hg", HG)]
        users: list[User] = [
            kind(work, cluster, seen, system, number) for kind, system, count in kinds for number in range(count)
        ]
        seconds = minutes * 60
        progress.step(f"{len(users)} users push for {minutes:g} minutes")
        moments = [threading.Timer(at, do) for at, do in cluster.moments(seconds)]
        threads = [*(threading.Thread(target=user.work) for user in users), *moments]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        try:
            while (passed := time.monotonic() - begun) < seconds:
                time.sleep(5)
                progress.count("seconds", int(passed), int(seconds))
        finally:  # A thread that runs would keep this process.
            seen.over.set()
            for each in moments:
                each.cancel()
            for thread in threads:
                thread.join()
        progress.step("looking for what was acknowledged")
        cluster.wait()
        _report(cluster, seen, judged(work, cluster, seen), seconds)
    end(seen.wrong)


def _brz(work: Workspace) -> dict[str, str]:
    return work.environment("brz") | settings(work.folder) | {"BRZ_PLUGINS_AT": plugin_at()}


COPIES: Mapping[str, Sequence[Sequence[str]]] = {
    "git": (
        ("git", "clone", "--quiet", "--mirror", "{url}", "{copy}"),
        ("git", "--git-dir", "{copy}", "fsck", "--strict"),
    ),
    "hg": ((*OURS, "clone", "--quiet", "--noupdate", "{url}", "{copy}"), ("hg", "-R", "{copy}", "verify", "--quiet")),
}
"""The commands that copy a repository of a system, and check the copy."""

LINES: Mapping[str, Sequence[str]] = {
    "git": ("git", "--git-dir", "{copy}", "rev-list", "{ref}"),
    "brz": (*BRZ, "log", "--long", "--show-ids", "{url}/{ref}"),
    "hg": ("hg", "-R", "{copy}", "log", "-r", "::bookmark({ref})", "-T", "{{node}}\n"),
}
"""The command that prints the revisions that a ref reaches, each on a line of its own."""


def judged(work: Workspace, cluster: Cluster, seen: Seen) -> Counter[str]:
    """Count, by system, the acknowledged pushes that are in the repositories. Note each error in `Seen.wrong`."""

    def said(words: Sequence[str], **names: object) -> str:
        return run([word.format_map(names) for word in words], None, _brz(work) | dict(SETTINGS))

    found: Counter[str] = Counter()
    for repository in sorted({repository for repository, _ in seen.acknowledged}):
        system = repository[:-1]
        verified = attempt(["smartserver", "verify", f"{cluster.root}/{repository}"], None, cluster.environment)
        if verified.returncode:
            seen.wrong.append(f"verify {repository}: {verified.stdout}{verified.stderr}")
        names = {"url": cluster.url + repository, "copy": work.folder / f"{repository}.copy"}
        for words in COPIES.get(system, ()):
            said(words, **names)
        for (name, ref), tips in seen.acknowledged.items():
            if name == repository:
                there = set(re.findall(r"(?m)^(?:revision-id: )?(\S+)$", said(LINES[system], **names, ref=ref)))
                lost = [tip for tip in tips if tip not in there]
                seen.wrong += [f"acknowledged and lost: {repository} {ref} {tip}" for tip in lost]
                found[system] += len(tips) - len(lost)
    return found


def _report(cluster: Cluster, seen: Seen, found: Counter[str], seconds: float) -> None:
    total: Counter[str] = Counter()
    for (repository, _), tips in seen.acknowledged.items():
        total[repository[:-1]] += len(tips)
    for what, count in cluster.done.items():
        click.echo(f"{count:7,} {what}")
    for what, count in sorted(seen.counts.items()):
        click.echo(f"{count:7,} {what}")
    for system, count in total.items():
        click.echo(f"{system}: {count:,} pushes were acknowledged, {found[system]:,} of them are there")
    taken = sorted(seen.seconds)
    click.echo(
        f"{len(taken) / seconds:.1f} pushes a second; half of them took {taken[len(taken) // 2]:.1f} s, "
        f"1 of 100 more than {taken[int(0.99 * len(taken))]:.1f} s"
    )
    click.echo(f"({circumstances()})")
