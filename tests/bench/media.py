"""The media between a client and a server, ours and git's: a server of each behind a link of packets, and the round
trips of a first and a second command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
from sshd import Sshd

from bench import options
from bench.breezy import breezy_library, plugin_at, settings
from bench.links import AUTHORITY, PORT, Across, across, agent, server
from bench.process import MODULES
from bench.report import Progress, Report, Runs
from netem.link import Link
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import LinkCost, Workspace, measured, run, serving_git

RTTS = (0.2, 0.5, 0.9)
"""Seconds. Under a second: that is after how long TCP sends a SYN again."""

SOON = 0.004
TOLERANCE = 0.05
FAST_OPEN = ("net.ipv4.tcp_fastopen", "3")

LOGIN = "ssh -F {config}"
CONTROL = f"{LOGIN} -o ControlMaster=auto -o ControlPersist=600 -o ControlPath={{control}}"


@dataclass(frozen=True)
class Medium:
    """A way to a repository. `reach` fills in the `{names}` in its words."""

    name: str
    url: str
    serve: Callable[[Path, str, int], Sequence[str]] | None = None
    """From a folder, a host and a port to the command of its server; None: one that is there for several."""
    first: int | None = None
    """Round trips of a first command of ours; None: one more than `ssh host true`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables in the environment of its clients."""
    close: str = "smartserver agent forget {url}"
    """The command that closes the connection which is held between commands."""

    @property
    def is_ours(self) -> bool:
        """Whether it leads to a server of ours."""
        return self.name.startswith("hpss")


def serving_https(served: Path, host: str, port: int) -> Sequence[str]:
    """The command of git's own server over https, with the certificate of this workspace."""
    files = [str(served.parent / f"{host}.{kind}") for kind in ("pem", "key")]
    return [sys.executable, "-m", "bench.https", str(served), host, str(port), *files]


TCP = Medium("hpss://", "hpss://{host}:{port}/{name}", first=2)
FAST_OPENED = Medium("hpss://, Fast Open", TCP.url, first=1, settings={"SMARTSERVER_FAST_OPEN": "1"})
ALONE = Medium("hpss://, without the agent", TCP.url, settings={"SMARTSERVER_AGENT": "0"})
TLS = Medium("hpss+tls://", "hpss+tls://{host}:{port}/{name}?ca={ca}", first=3)
SSH = Medium("hpss+ssh://", "hpss+ssh://{host}:{sshd}{served}/{name}")
GIT = Medium("git://", "git://{host}:{port}/{name}", serving_git, close="true")
GIT_HTTPS = Medium(
    "git over https", "https://{host}:{port}/{name}", serving_https,
    settings={"GIT_SSL_CAINFO": "{ca}"}, close="true",
)  # fmt: skip
GIT_SSH = Medium(
    "git over ssh, ControlPersist", "ssh://{host}:{sshd}{served}/{name}", settings={"GIT_SSH_COMMAND": CONTROL},
    close=f"{CONTROL} -O exit -p {{sshd}} {{host}}",
)  # fmt: skip


@dataclass(frozen=True)
class Reached:
    """A medium with a server at its other end."""

    medium: Medium
    names: Mapping[str, object]
    environment: Mapping[str, str]
    """Of a client."""

    def words(self, text: str) -> list[str]:
        """The words of a command, with its names filled in."""
        return text.format_map(self.names).split()


@contextmanager
def reach(there: Across, work: Workspace, media: Sequence[Medium]) -> Iterator[list[Reached]]:
    """Start what serves some media, and an agent of their user. `{url}` of each is that of another repository: git's
    is empty, a push makes ours."""
    user = work.environment("user")
    keys = work.folder / "sshd"
    keys.mkdir()
    with ExitStack() as stack:
        held = stack.enter_context(agent(there.run, user))
        sshd = Sshd(keys, listener=there.network.listen(), session={key: user[key] for key in ("PATH", "HOME")})
        try:
            stack.enter_context(sshd)
        except FileNotFoundError as missing:
            raise CommandError(str(missing)) from None
        found = []
        for number, medium in enumerate(media):
            served, name, port = work.folder / "served", f"project{number}", PORT
            if not medium.is_ours:
                served = work.folder / "served-git"
                run(["git", "init", "--quiet", "--bare", str(served / name)], None, user)
            if medium.serve is not None:
                port += 1 + number
                words = medium.serve(served, sshd.host, port)
                stack.enter_context(server(there.network, words, work.folder, {**user, **MODULES}))
            names: dict[str, object] = {
                "host": sshd.host, "port": port, "sshd": sshd.port, "config": sshd.config, "served": served,
                "name": name, "ca": work.folder / AUTHORITY, "control": f"{held['XDG_RUNTIME_DIR']}/%C",
            }  # fmt: skip
            names["url"] = medium.url.format_map(names)
            settings = {"GIT_SSH_COMMAND": LOGIN, **medium.settings}
            environment = {
                **work.environment(f"user{number}", {"gc.auto": "0", "maintenance.auto": "0"}),
                **held,
                **{key: value.format_map(names) for key, value in settings.items()},
            }
            found.append(Reached(medium, names, environment))
            stack.callback(there.run, found[-1].words(medium.close), work.folder, environment)
        yield found


@dataclass(frozen=True)
class Tool:
    """A tool whose pushes are measured, and the media; `{url}` in its words is that of a repository."""

    name: str
    init: str
    commit: str
    push: str
    media: Sequence[Medium]


TOOLS = (
    Tool(
        "git", "git init --quiet --initial-branch=main", "git commit --quiet --allow-empty -m one",
        "git push --quiet {url} main", (TCP, FAST_OPENED, TLS, SSH, GIT, GIT_HTTPS, GIT_SSH),
    ),
    Tool("brz", "brz init --quiet", "brz commit --quiet --unchanged -m one", "brz push --quiet {url}", (TCP, TLS, SSH)),
)  # fmt: skip


@dataclass
class Row:
    what: str
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    before: Sequence[Sequence[str]] = ()
    """Commands that come first, and are not measured."""
    bar: int | None = None
    """Round trips it may take; None: one more than `most`, if there is one."""
    most: Row | None = None
    runs: Runs = field(default_factory=Runs)

    def run(self, there: Across) -> LinkCost:
        for words in self.before:
            there.run(words, self.folder, self.environment).check(words)
        done, cost = measured(there.network, lambda: there.run(self.command, self.folder, self.environment))
        return replace(cost, seconds=done.check(self.command).seconds)

    @property
    def taken(self) -> float:
        """Round trips by the slope of wall time; those that were counted where there is none."""
        return self.runs.slope.rounds if self.runs.slope else self.runs.most

    def add_to(self, report: Report) -> None:
        slope = self.runs.slope
        shown = f"{self.runs.most}" + (f", {slope.rounds:.2f} RTT + {slope.intercept:.2f} s" if slope else "")
        if self.bar is not None:
            ok = self.runs.most == self.bar and abs(self.taken / self.bar - 1) <= TOLERANCE
            report.add(self.what, shown, "", f"{self.bar} +- {TOLERANCE:.0%}", ok)
        elif self.most is not None:
            most = (self.most.taken + 1) * (1 + TOLERANCE)
            report.add(self.what, shown, "", f"{most:.2f}", self.taken <= most)
        else:
            report.add(self.what, shown)


def rows_of(tool: Tool, at: Reached, folder: Path, login: Row) -> list[Row]:
    """A first and a second push, from a branch in `folder`; `login`: of ssh alone."""
    environment = {**settings(folder.parent), **breezy_library(None), **at.environment}
    environment |= {"BRZ_PLUGINS_AT": plugin_at(), "BRZ_SSH": f"{folder}.ssh"}
    # Breezy takes a program without options.
    ssh = Path(environment["BRZ_SSH"])
    ssh.write_text(f'#!/bin/sh\nexec {environment["GIT_SSH_COMMAND"]} "$@"\n')
    ssh.chmod(0o700)
    folder.mkdir()
    run(tool.init.split(), folder, environment)
    found = []
    for which, before, bar in (
        ("first", [at.medium.close, tool.commit], at.medium.first),
        ("second", [tool.commit], 1),
    ):
        row = Row(f"{tool.name} push, {at.medium.name}, {which}", at.words(tool.push), folder, environment)
        row.before = [at.words(words) for words in before]
        if at.medium.is_ours:
            row.bar, row.most = bar, login
        found.append(row)
    return found


@click.command()
@options.number("--repeat", 5, "Runs at each RTT.")
@options.rtts()
def command(repeat: int, rtts: Sequence[float]) -> None:
    """Round trips of the first and the second push of one revision, with the agent: TCP, TLS, SSH, and git over ssh.

    The first finds no connection, the second the one that is held. Trips are counted, and measured as the slope of wall
    time over the RTT. Client and server are in network namespaces with a link of packets between them (Linux, as root
    or where users may make namespaces). Takes ten minutes. Another load on the machine falsifies slopes.

    \b
    bench media
    bench media --repeat 1 --rtt 100ms
    """
    progress = Progress()
    report = Report("pushes of one revision across a link of packets: trips counted, by the clock", "")
    media = [(tool, medium) for tool in TOOLS for medium in tool.media]
    with (
        Workspace("bench") as work,
        across(work, Link(SOON), [FAST_OPEN]) as there,
        reach(there, work, [medium for _, medium in media]) as reached,
    ):
        login = Row(
            "ssh host true", reached[0].words(f"{LOGIN} -p {{sshd}} {{host}} true"), work.folder, reached[0].environment
        )
        rows = [login]
        for number, ((tool, _), at) in enumerate(zip(media, reached, strict=True)):
            first, second = rows_of(tool, at, work.folder / f"branch{number}", login)
            for row in (second, first):  # They make the repository, start the agent, get the cookie of Fast Open.
                row.run(there)
            rows += [first, second]
        for turn in range(repeat):
            for rtt in rtts or RTTS:
                progress.step(f"RTT {rtt:g} s, {turn + 1} of {repeat}")
                there.network.change(Link(rtt))
                for row in rows:
                    row.runs.costs.append((rtt, row.run(there)))
    for row in rows:
        row.add_to(report)
    report.finish()
