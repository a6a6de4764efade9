"""Everyday commands of git, from exec to exit, over real TCP: ours with the user's agent, beside git's own servers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
from sshd import Sshd

from bench import options
from bench.git_histories import generate
from bench.links import AUTHORITY, PORT, Across, across, agent, server
from bench.process import MODULES
from bench.report import Progress, circumstances, end, median, table
from bench.servers import Workspace, run, serving_git
from netem.link import Link
from smartserver.cli.errors import CommandError

LOGIN = "ssh -F {config}"
CONTROL = f"{LOGIN} -o ControlMaster=auto -o ControlPersist=600 -o ControlPath={{control}}"


@dataclass(frozen=True)
class Medium:
    """A way to a repository. `reach` fills in the `{names}` in its words."""

    name: str
    url: str
    serve: Callable[[Path, str, int], Sequence[str]] | None = None
    """Makes the command of its server from a folder, a host and a port; None: a server that several media share."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables in the environment of its clients."""
    close: str = "smartserver agent forget {url}"
    """The command that closes the connection that an agent holds between commands."""

    @property
    def is_ours(self) -> bool:
        """True if this medium leads to a server of ours."""
        return self.name.startswith("hpss")


TCP = Medium("hpss://", "hpss://{host}:{port}/{name}")
ALONE = Medium("hpss://, without the agent", TCP.url, settings={"SMARTSERVER_AGENT": "0"})
TLS = Medium("hpss+tls://", "hpss+tls://{host}:{port}/{name}?ca={ca}")
SSH = Medium("hpss+ssh://", "hpss+ssh://{host}:{sshd}{served}/{name}")
GIT = Medium("git://", "git://{host}:{port}/{name}", serving_git, close="true")
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
    """The environment of a client."""

    def words(self, text: str) -> list[str]:
        """Return the words of a command, with its names filled in."""
        return text.format_map(self.names).split()


@contextmanager
def reach(there: Across, work: Workspace, media: Sequence[Medium]) -> Iterator[list[Reached]]:
    """Start the servers of these media, and an agent of their user. The `{url}` of each medium has a repository of its
    own: for git an empty one, for ours one that a push makes."""
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


# -- what is measured

RTTS = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1)
"""Seconds: from the same machine to another continent."""

NEAR = 0.02
"""Seconds of RTT below which ours may be a little slower than `git://`."""

TIMES, MORE = 1.2, 0.025
"""The bar near by: ours may take so many times as long, or so many seconds more, whichever is larger."""

TIME_TO_LOAD = 1.0
"""Seconds after which an agent that was just started has loaded everything."""

SIDES: Sequence[tuple[Medium, Sequence[Medium]]] = (
    (TCP, (GIT, GIT_SSH)), (ALONE, ()), (GIT, ()), (TLS, (GIT_SSH,)), (SSH, (GIT_SSH,)), (GIT_SSH, ()),
)  # fmt: skip
"""Each medium, and the media than which it may not be slower."""

COMMANDS: Mapping[str, Sequence[str]] = {
    "push of one": ("push", "--quiet", "origin", "main"),
    "push of nothing": ("push", "--quiet", "origin", "main"),
    "fetch of one": ("fetch", "--quiet", "origin"),
    "fetch of nothing": ("fetch", "--quiet", "origin"),
    "ls-remote": ("ls-remote", "--quiet", "origin"),
}
"""The commands in their order, so that each finds what its name says."""

COMMIT = ("commit", "--quiet", "--allow-empty", "-m", "one")


@click.command()
@options.number("--repeat", 20, "Times each command is run at each RTT.")
@options.rtts("default: six, from 0 to 100 ms")
@options.write("doc/measurements/every_day.md")
def command(repeat: int, rtts: Sequence[float], write: bool) -> None:
    """Everyday commands of git over our media, beside git:// and git over ssh, from exec to exit; medians.

    Ours runs with the user's agent, and over TCP also without it; git's ssh runs with ControlPersist. Client and server
    are in network namespaces with a link of packets between them (Linux, as root or where users may make namespaces).
    Takes twenty minutes. Other load on the machine falsifies the figures.

    \b
    bench near
    bench near --repeat 5 --rtt 0ms --rtt 20ms
    """
    pages = options.Pages("near", *([options.MEASUREMENTS / "every_day.md"] if write else []))
    progress = Progress()
    rtts = rtts or RTTS
    medians: dict[tuple[str, str, float], float] = {}
    with (
        Workspace("bench") as work,
        across(work, Link(0.0)) as there,
        reach(there, work, [medium for medium, _ in SIDES]) as sides,
    ):
        shown = [_clones(work, there, number, side) for number, side in enumerate(sides)]
        for rtt in rtts:
            progress.step(f"RTT {rtt * 1000:g} ms")
            there.network.change(Link(rtt))
            taken = there.ask("bench.near", json.dumps(shown), str(repeat))
            for what in COMMANDS:
                for side, _ in SIDES:
                    seconds = [each[2] for each in taken if each[:2] == [side.name, what]]
                    medians[what, side.name, rtt] = median(seconds)  # type: ignore[arg-type]
    rows, missed = [], []
    for what in COMMANDS:
        for side, others in SIDES:
            cells = []
            for rtt in rtts:
                ours = medians[what, side.name, rtt]
                faster = [each.name for each in others if ours > most(each, rtt, medians[what, each.name, rtt])]
                cells.append(f"{ours * 1000:.0f}" + " MISSED" * bool(faster))
                missed += [f"{what} at {rtt * 1000:g} ms: {side.name} is slower than {name}" for name in faster]
            rows.append([what, side.name, *cells])
    found = table(["milliseconds", "", *(f"RTT {rtt * 1000:g} ms" for rtt in rtts)], rows)
    found += f"\n\nMedians of {repeat}. ({circumstances()})"
    click.echo(found)
    if write:
        pages.write(found)
    end(missed)


def most(other: Medium, rtt: float, seconds: float) -> float:
    """Return the seconds that a command of ours may take where another took `seconds`."""
    return max(TIMES * seconds, seconds + MORE) if other is GIT and rtt < NEAR else seconds


def _clones(work: Workspace, there: Across, number: int, side: Reached) -> tuple[str, Mapping[str, str], str, str]:
    """Make the history on the server and two clones, and return them as `turns` takes a side."""
    source, url = work.folder / "source.git", str(side.names["url"])
    if not source.exists():
        generate(source, side.environment, count=50)
    there.git(source, side.environment, "push", "--quiet", url, "main")
    near, far = (work.folder / f"{which}-{number}" for which in ("near", "far"))
    for clone in (near, far):
        there.git(work.folder, side.environment, "clone", "--quiet", "--branch", "main", url, str(clone))
    there.git(far, side.environment, "checkout", "--quiet", "-b", "other")
    return side.medium.name, side.environment, str(near), str(far)


def turns(sides: Sequence[tuple[str, Mapping[str, str], str, str]], repeat: int) -> Iterator[tuple[str, str, float]]:
    """Run each command `repeat` times on each side, and yield side, command and seconds.

    A side is a name, an environment, the clone whose commands are timed, and a second clone. The second clone pushes,
    to a branch of its own, the commits that the first one fetches.

    `command` runs this as one program on the near side of a link. Programs that are started there one by one have a
    mount namespace each, and cannot use an agent from another one.
    """
    environment = sides[0][1]
    run(["smartserver", "agent", "stop"], None, environment)
    for _, environment, near, _ in sides:
        run(["git", *COMMANDS["ls-remote"]], Path(near), environment)
    time.sleep(TIME_TO_LOAD)
    for turn in range(repeat):
        first = turn % len(sides)
        for name, environment, near, far in [*sides[first:], *sides[:first]]:
            for what, words in COMMANDS.items():
                if what == "push of one":
                    run(["git", *COMMIT], Path(near), environment)
                elif what == "fetch of one":
                    run(["git", *COMMIT], Path(far), environment)
                    run(["git", "push", "--quiet", "origin", "other"], Path(far), environment)
                begun = time.monotonic()
                run(["git", *words], Path(near), environment)
                yield name, what, time.monotonic() - begun


if __name__ == "__main__":
    print(json.dumps(list(turns(json.loads(sys.argv[1]), int(sys.argv[2])))))
