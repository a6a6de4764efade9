"""A profile of an import by library, function and line, as the benchmark of 2002 had one."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import click
from needs import is_met

from bench.papers.imports import ROWS, make_files
from bench.papers.profiles import by_function
from bench.servers import Workspace, attempt

MOST: Final = 15
"""Rows of a list."""

EVENTS: Final = "instructions,cycles,cache-misses,L1-icache-load-misses,L1-dcache-load-misses"

SAMPLED: Final = """
import collections, signal, sys
from smartserver.cli.main import group
lines = collections.Counter()
def look(_, frame):
    lines[frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno] += 1
signal.signal(signal.SIGPROF, look)
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
group.main(sys.argv[1:], standalone_mode=False)
signal.setitimer(signal.ITIMER_PROF, 0)
for (file, function, line), count in lines.items():
    print(count, file, function, line, sep="|", file=sys.stderr)
"""
"""Counts where Python is, each millisecond of the processor that it notices: what a line calls in C is the line's."""


def _list(title: str, found: Mapping[str, float]) -> None:
    total = sum(found.values()) or 1
    click.echo(f"\n{title}")
    for name, count in sorted(found.items(), key=lambda each: -each[1])[:MOST]:
        click.echo(f"  {count / total:6.1%}  {name}")


@click.command()
@click.option("--row", type=click.Choice(list(ROWS)), default="100 large texts", show_default=True)
def command(row: str) -> None:
    """A profile of `smartserver import` of new files: by library and function (perf), by function and line of Python,
    and instructions and cache misses where the machine counts them.

    \b
    bench papers profile
    bench papers profile --row '1,000 small texts'
    """
    with Workspace("bench") as work:
        environment = work.environment("bench")
        files = work.folder / "files"
        make_files(files, row, random.Random(row))
        made = [str(work.folder / f"made{number}") for number in range(3)]
        if is_met("perf"):
            words = ["smartserver", "import", "-m", "new", str(files)]
            counts = attempt(["perf", "stat", "-x", ";", "-e", EVENTS, "--", *words, made[0]], None, environment)
            click.echo(f"{row}: counters of the processor")
            for line in counts.stderr.splitlines():
                value, _, name = line.split(";")[:3]
                click.echo(f"  {name}: {'not counted by this machine' if value.startswith('<') else value}")
            libraries = defaultdict[str, float](float)
            functions = defaultdict[str, float](float)
            for (library, function), share in by_function([*words, made[1]], environment).items():
                libraries[library] += share
                functions[f"{library}: {function}"] += share
            _list("by library (perf, the clock)", libraries)
            _list("by function of a library", functions)
        else:
            click.echo("perf is not there (linux-perf): neither libraries nor counters of the processor")
        script = [sys.executable, "-c", SAMPLED, "import", "-m", "new", str(files), made[2]]
        said = attempt(script, None, environment).stderr
        of_python = defaultdict[str, float](float)
        lines = defaultdict[str, float](float)
        for line in said.splitlines():
            count, file, function, number = line.split("|")
            place = "/".join(file.split("/")[-3:])
            of_python[f"{place}: {function}"] += int(count)
            lines[f"{place}:{number} ({function})"] += int(count)
        _list("by function of Python, with what it calls in C", of_python)
        _list("by line", lines)
