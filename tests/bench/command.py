"""`make bench`: measurements a user can repeat, ours beside git's, each with its bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smartserver.cli.errors import CommandError

if TYPE_CHECKING:
    from bench.report import Report

SOURCE = click.Path(path_type=Path, exists=True)
"""A git repository or bundle."""


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Numbers of 1 or more with commas between them."""
    try:
        found = tuple(int(number) for number in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r}: expected numbers with commas between them, e.g. 1,1000") from None
    if min(found) < 1:
        raise click.BadParameter(f"{value!r}: expected numbers of 1 or more")
    return found


@click.group(name="bench", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Measure: ours beside git's in one run, with the bar; exit status 1 when one is missed.

    Servers run on loopback, ours and `git daemon`, in a temporary folder that is removed. PATH is a git repository or
    a bundle, and only read. `bench NAME ARGUMENTS` is `make bench ARGS="NAME ARGUMENTS"`.

    \b
    make bench ARGS="trips"
    make bench ARGS="commits $HOME/src/project -n 100"
    """


@command.command()
@click.argument("rules", nargs=-1, required=True)
@click.option("-n", "count", type=click.IntRange(1), default=10, show_default=True, help="Rounds of all operations.")
def bans(rules: Sequence[str], count: int) -> None:
    """Many operations on one connection, by a client with these bans and by one without: what bans cost.

    \b
    make bench ARGS="bans silly"
    make bench ARGS="bans silly 'vfs:*' -n 300"
    """
    from bench.bans import run_bans

    _finish(run_bans(rules, count), [])


@command.command()
@click.argument("path", required=False, type=SOURCE)
@click.option("--rtt", "rtts", multiple=True, help="Round-trip time of the link; three or more for a slope.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Runs at each RTT.")
def trips(path: Path | None, rtts: Sequence[str], repeat: int) -> None:
    """Round trips of every git operation on a fresh connection, and of those on a held one.

    They are counted by a proxy, and measured as the slope of wall time over the RTT (200, 600 and 1000 ms), which must
    be 2.00 +- 0.05 where PATH is under 1 MB; without PATH a history is made. The shortest of the runs at each RTT
    counts, for what else the machine does makes a run longer and never shorter. Takes about 12 minutes; with --rtt
    100ms --repeat 1 they are only counted, in half a minute.

    \b
    bench trips
    bench trips ~/src/project --rtt 100ms --repeat 1
    """
    from bench.trips import RTTS, run_trips

    _finish(*run_trips(path, [_time(rtt) for rtt in rtts] or RTTS, repeat, _say))


@command.command()
@click.argument("path", type=SOURCE)
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Timed rounds.")
@click.option("--stages/--no-stages", default=True, show_default=True, help="Time the client's work alone as well.")
def history(path: Path, repeat: int, stages: bool) -> None:
    """First push of all of PATH and a clone of it: time, CPU, memory, bytes and sizes.

    Git pushes from and serves a copy repacked with -adf. The clone over hpss:// must equal the source: every ref,
    `git rev-list --objects --all`, output and status of `git fsck --strict`.

    \b
    bench history ~/src/project
    bench history history.bundle --repeat 1
    """
    from bench.history import run_history

    _finish(*run_history(path, repeat, _say, stages=stages))


@command.command()
@click.argument("path", required=False, type=SOURCE)
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Timed rounds.")
@click.option(
    "-n", "most", type=click.IntRange(1), default=3000, show_default=True, help="The oldest revisions of a git history."
)
@click.option(
    "--tools",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the programs of an environment with Breezy are, for where this one has none.",
)
def brz(path: Path | None, repeat: int, most: int, tools: Path | None) -> None:
    """Push and branch of a Breezy history, ours beside stock Breezy over bzr://: time, CPU, memory, bytes, sizes.

    PATH is a bzr branch, or a git repository or bundle of which the oldest revisions are converted; without it a
    history of 300 revisions is made. Stock pushes from and serves a repository of one pack. The branch over hpss://
    must equal the source: revno, testament of the tip, and what `brz check` says and counts. Exit status 1 when ours
    takes longer than stock, or a process over 300 MB.

    \b
    bench brz ~/src/branch
    bench brz history.bundle -n 10000 --repeat 1
    """
    from bench.brz import run_brz

    _finish(*run_brz(path, repeat, most, tools, _say))


@command.command()
@click.argument("path", type=SOURCE)
@click.option("-n", "count", type=click.IntRange(1), default=500, show_default=True, help="The newest commits.")
@click.option("--branch", help="Whose commits; by default HEAD's.")
@click.option("--refs", callback=_numbers, default="1", show_default=True, help="Numbers of refs on the server.")
def commits(path: Path, count: int, branch: str | None, refs: tuple[int, ...]) -> None:
    """Bytes of one-commit pushes, each to servers that hold exactly the parents.

    Stock `git push` does both, over hpss:// and git://, through a proxy that counts application bytes both ways. With
    more numbers of refs 50 of the pushes are done again with that many refs on the server: they must not grow.

    \b
    bench commits ~/src/project -n 100
    bench commits history.bundle --refs 1,1000,20000
    """
    from bench.commits import run_commits

    _finish(*run_commits(path, branch, count, refs, _say))


@command.command()
@click.argument("path", type=SOURCE)
@click.option("-n", "count", type=click.IntRange(1), default=2000, show_default=True, help="The oldest commits.")
@click.option("--branch", help="Whose commits; by default HEAD's.")
@click.option(
    "--by",
    type=click.Choice(["library", "git"]),
    default="library",
    show_default=True,
    help="What pushes: the client library on one connection, or a `git push` each, beside git's own server.",
)
@click.option(
    "--repeat", type=click.IntRange(1), default=1, show_default=True, help="A push's time is its best of so many runs."
)
def pushes(path: Path, count: int, branch: str | None, by: str, repeat: int) -> None:
    """One-commit pushes in a row, into an empty repository: what they leave, beside one push of the same.

    None may be refused, no base chain be deeper than 128; under 20 packs, at most 1.5 times the store of one push, and
    p99 of a push at most 2 times its median.

    \b
    bench pushes ~/src/project -n 200
    bench pushes history.bundle --by git
    """
    from bench.pushes import run_pushes

    _finish(*run_pushes(path, branch, count, by, repeat, _say))


@command.command()
@click.option("-n", "count", type=click.IntRange(1), default=50, show_default=True, help="Pushes of each writer.")
@click.option("--writers", "number", type=click.IntRange(1), default=4, show_default=True, help="Processes that push.")
def writers(count: int, number: int) -> None:
    """Several processes push at once to one repository: through one server, and through a server each.

    Every push that was acknowledged must be there and the repository sound.

    \b
    bench writers
    bench writers -n 10 --writers 16
    """
    from bench.writers import run_writers

    _finish(*run_writers(number, count, _say))


@command.command()
@click.option("--size", "content", default="20MB", show_default=True, help="Content of the push.")
@click.option("--rtt", default="1000ms", show_default=True, help="Round-trip time of the link.")
@click.option("--rate", default="1mbit", show_default=True, help="Bandwidth of the link each way.")
def diverged(content: str, rtt: str, rate: str) -> None:
    """A large push that has diverged: it must be refused after one round trip, with little sent in vain.

    \b
    bench diverged
    bench diverged --size 2MB --rtt 300ms --rate 10mbit
    """
    from bench.diverged import run_diverged
    from netem.units import parse_rate, parse_size

    try:
        bytes_, bytes_per_second = parse_size(content), parse_rate(rate)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from None
    _finish(*run_diverged(bytes_, _time(rtt), bytes_per_second, _say))


@command.command()
@click.argument("path", required=False, type=SOURCE)
@click.option("-n", "count", type=click.IntRange(4), default=100, show_default=True, help="Pushes with and without.")
@click.option("--clones", type=click.IntRange(1), default=1, show_default=True, help="Clones that have stalled.")
def stall(path: Path | None, count: int, clones: int) -> None:
    """Pushes beside a clone that has stopped reading: no slower, and the server's memory stays flat.

    The clone is of PATH, which must be larger than all socket buffers together; without it 64 MB are made.

    \b
    bench stall
    bench stall --clones 32
    """
    from bench.stall import run_stall

    _finish(*run_stall(path, clones, count, _say))


@command.command()
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Pushes at each RTT.")
@click.option("--rtt", "rtts", multiple=True, help="Round-trip time of the link; three or more for a slope.")
def cold(repeat: int, rtts: Sequence[str]) -> None:
    """Pushes on a fresh connection over real TCP: 2 round trips, 1 with Fast Open; and slow start of a large one.

    Client and server are in network namespaces with a link of packets between them (Linux, as root or where users may
    make namespaces). Takes two minutes. Another load on the machine falsifies slopes.

    \b
    bench cold
    bench cold --repeat 1 --rtt 100ms
    """
    from bench.cold import RTTS, run_cold

    _finish(*run_cold(repeat, [_time(rtt) for rtt in rtts] or RTTS, _say))


@command.command()
@click.option("--size", "content", default="50MB", show_default=True, help="Random bytes to push and to clone.")
@click.option("--link", "links", nargs=2, multiple=True, metavar="RTT RATE", help="A link, e.g. 250ms 100mbit.")
@click.option("--buffers", default="64MiB", show_default=True, help="Most that a socket may hold, on both sides.")
def bulk(content: str, links: Sequence[tuple[str, str]], buffers: str) -> None:
    """A large push and a clone over long, fast links of real TCP: 90 % of the pace of a bare connection.

    Links by default: 1000 ms with 20 Mbit/s, 250 ms with 100 Mbit/s; three minutes for both. Client and server are in
    network namespaces (Linux, as root or where users may make namespaces), where --buffers is the most of
    net.ipv4.tcp_rmem and tcp_wmem: the system's own may be too small for such a link.

    \b
    bench bulk
    bench bulk --size 10MB --link 500ms 50mbit
    """
    from bench.bulk import LINKS, run_bulk
    from netem.units import parse_rate, parse_size

    try:
        bytes_, most = parse_size(content), parse_size(buffers)
        lines = [(_time(rtt), parse_rate(rate)) for rtt, rate in links]
    except ValueError as wrong:
        raise CommandError(str(wrong)) from None
    _finish(*run_bulk(bytes_, lines or LINKS, most, _say))


@command.command()
@click.option(
    "--rtt",
    "rtts",
    multiple=True,
    help="Round-trip time of the link; three or more for a slope (100, 200 and 300 ms).",
)
@click.option("--repeat", type=click.IntRange(1), default=2, show_default=True, help="Runs at each RTT.")
@click.option(
    "--only", multiple=True, metavar="NAME", help="Some tools, networks or operations: hg, packets, clone; repeatable."
)
@click.option(
    "--tools", type=click.Path(path_type=Path, file_okay=False), help="Where programs are looked for before PATH."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--write", is_flag=True, help="Also write doc/performance.md and doc/compare.svg, here.")
def compare(
    rtts: Sequence[str], repeat: int, only: Sequence[str], tools: Path | None, as_json: bool, write: bool
) -> None:
    """Git, hg, brz, svn and ours side by side: round trips and seconds of the same operations on the same links.

    Each tool has the same history of 100 revisions and 50 files, and its own server; the links are a proxy, which
    counts, and packets of real TCP between two namespaces. A tool that is not installed is left out and named. Every
    outcome is looked at: exit status 1 when one is wrong. All of it takes about 20 minutes; with one RTT of 20 ms
    trips are only counted, in two. Another load on the machine falsifies slopes.

    \b
    bench compare --rtt 20ms --repeat 1 --only proxy
    bench compare --only git --only hpss --only clone
    """
    from bench.compare.comparison import RTTS, names, run_compare
    from bench.compare.picture import svg
    from bench.compare.table import markdown, page, put

    if unknown := [name for name in only if name not in names()]:
        raise click.UsageError(f"--only {unknown[0]!r}: there is {', '.join(names())}")
    performance, picture = Path("doc/performance.md"), Path("doc/compare.svg")
    before = performance.read_text(encoding="utf-8") if write else ""
    if write:
        put(before, "")  # What is wrong with the page is said before anything is measured.
    found = run_compare([_time(rtt) for rtt in rtts] or RTTS, repeat, only, tools, _say)
    if write and found.costs:
        performance.write_text(put(before, page(found, picture.name)), encoding="utf-8")
        picture.write_text(svg(found), encoding="utf-8")
    click.echo(json.dumps(found.as_json()) if as_json else markdown(found))
    _end(found.problems)


@command.command()
@click.argument("path", required=False, type=SOURCE)
@click.option("--only", multiple=True, metavar="NAME", help="Some commands: push, 'push, diverged'; repeatable.")
@click.option("--rtt", default="10ms", show_default=True, help="Round-trip time of the link; no count changes with it.")
@click.option(
    "--tools",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the programs of an environment with Breezy are, for where this one has none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--write", is_flag=True, help="Also write doc/performance.md, here.")
def ratchet(path: Path | None, only: Sequence[str], rtt: str, tools: Path | None, as_json: bool, write: bool) -> None:
    """Every remote command of brz, by stock Breezy over bzr:// and by our plugin over hpss://: calls, trips, bytes.

    Both sides have the same history (a bzr branch, or the first 3,000 revisions of a git repository or bundle; without
    PATH one of 300 revisions is made), the same links and a fresh connection for each command; what each command did
    is looked at. Exit status 1 when one of ours takes more round trips than its budget, makes a VFS call, comes out
    wrong, or, where it reads with nothing remembered, moves more bytes than stock. Takes about three minutes.

    \b
    bench ratchet
    bench ratchet ~/src/branch --only cat --only log
    """
    from bench.compare.table import put
    from bench.ratchet.measure import names, run_ratchet
    from bench.ratchet.table import BEGIN, END, markdown

    if unknown := [name for name in only if name not in names()]:
        raise click.UsageError(f"--only {unknown[0]!r}: there is {', '.join(names())}")
    performance = Path("doc/performance.md")
    before = performance.read_text(encoding="utf-8") if write else ""
    if write:
        put(before, "", BEGIN, END)  # What is wrong with the page is said before anything is measured.
    found = run_ratchet(path, only, tools, _time(rtt), _say)
    if write:
        performance.write_text(put(before, markdown(found), BEGIN, END), encoding="utf-8")
    click.echo(json.dumps(found.as_json()) if as_json else markdown(found))
    _end(found.problems)


@command.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("-n", "count", type=click.IntRange(1), default=30, show_default=True, help="Parts.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another number: other parts and steps.")
def lossless(path: Path, count: int, seed: int) -> None:
    """Random parts of the bzr history at PATH pushed and branched back in random steps: all of it must come back.

    A part is some revisions and all their ancestors. Compared are the text and the parents of every record (revisions,
    signatures, inventories, their pages, files), the testaments and roots of some trees, and what `brz check` finds of
    what came. PATH, a branch or repository of format 2a, is only read. 30 parts of 3,000 revisions take about half an
    hour.

    \b
    bench lossless ~/src/branch
    bench lossless ~/src/branch -n 3 --seed 7
    """
    from bench.breezy import breezy_library

    breezy_library(None)
    from bench.lossless import run_lossless

    _finish(*run_lossless(path, count, seed, _say))


PAGES = (Path("doc/performance.md"), Path("doc/explanation/why-rpc.md"))
"""Where the table of `baseline` stands."""


@command.command()
@click.option("--rtt", default="1000ms", show_default=True, help="Round-trip time of the link.")
@click.option("--only", multiple=True, metavar="WAY", help="Some ways: rpc, vfs, sftp; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--write", is_flag=True, help=f"Also write {PAGES[0]} and {PAGES[1]}, here.")
def baseline(rtt: str, only: Sequence[str], as_json: bool, write: bool) -> None:
    """The same operations three ways over the same link: by SFTP, by the file-level (VFS) verbs, and by RPC.

    It starts its own servers on loopback, an OpenSSH server among them, with an emulated link in front, and counts what
    passes: round trips, bytes, seconds. Beside them stands what Breezy needs. Each outcome is looked at. Exit status 1
    when one is wrong or takes more round trips than it may. Takes about six minutes; with --rtt 20ms, one. With less,
    what is answered while more is being sent counts as more round trips than it takes.

    \b
    bench baseline
    bench baseline --rtt 20ms --only sftp
    """
    from bench.baseline.measure import names, run_baseline
    from bench.baseline.table import BEGIN, END, markdown, page
    from bench.compare.table import put

    if unknown := [name for name in only if name not in names()]:
        raise click.UsageError(f"--only {unknown[0]!r}: there is {', '.join(names())}")
    if write and only:
        raise click.UsageError("--write takes no --only: the pages show every way")
    before = [each.read_text(encoding="utf-8") for each in PAGES] if write else []
    for text in before:
        put(text, "", BEGIN, END)  # What is wrong with a page is said before anything is measured.
    found = run_baseline(_time(rtt), only, _say)
    for path, text, inside in zip(PAGES, before, (markdown(found), page(found)), strict=False):
        path.write_text(put(text, inside, BEGIN, END), encoding="utf-8")
    click.echo(json.dumps(found.as_json()) if as_json else markdown(found))
    _end(found.problems)


def _time(text: str) -> float:
    from netem.units import parse_time

    try:
        return parse_time(text)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from None


def _say(words: str) -> None:
    click.echo(words, err=True)


def _finish(report: Report, problems: Sequence[str]) -> None:
    """Print the table; leave with status 1 where something is wrong or does not reach its bar."""
    for line in report.lines():
        click.echo(line)
    _end(problems, missed=bool(report.missed))


def _end(problems: Sequence[str], *, missed: bool = False) -> None:
    """Print what is wrong; leave with status 1 where something is, or a bar was missed."""
    for problem in problems:
        click.echo(f"wrong: {problem}", err=True)
    if missed or problems:
        sys.exit(1)
