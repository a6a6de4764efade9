"""Random parts of a Bazaar history, pushed and branched back in random steps: what comes back must be what went.

The source is only read. Every part goes to a repository of its own on a server of ours, over its protocol.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from bench import options
from bench.breezy import breezy_library
from bench.report import Progress, Report
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.servers import Workspace
from smartserver.client.media.tcp import TcpMedium
from smartserver.records.model import RevisionId

STEPS = 7
"""Pushes, and pulls, of a part at most."""


@click.command()
@options.path(folder=True)
@options.number("-n count", 30, "Parts.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another number: other parts and steps.")
def command(path: Path, count: int, seed: int) -> None:
    """Random parts of the bzr history at PATH pushed and branched back in random steps: all of it must come back.

    A part is some revisions and all their ancestors. Compared are the text and the parents of every record (revisions,
    signatures, inventories, their pages, files), the testaments and roots of some trees, and what `brz check` finds of
    what came. PATH, a branch or repository of format 2a, is only read. 30 parts of 3,000 revisions take about half an
    hour.

    \b
    bench lossless ~/src/branch
    bench lossless ~/src/branch -n 3 --seed 7
    """
    breezy_library(None)
    from bench.breezy_lossless import WRONG, Original, Part, open_original  # Needs Breezy.

    progress = Progress()
    try:
        source = open_original(path)
    except WRONG as wrong:
        raise CommandError(f"{path}: {wrong}") from None
    problems: list[str] = []
    whole = 0
    tally: Counter[str] = Counter()
    with Workspace("bench") as work, source.lock_read(), one_line():
        progress.step("reading the history")
        original = Original(source)
        if not original.order:
            raise CommandError("there is no revision in it")
        server = work.start_ours()
        connect = lambda: TcpMedium(*server.address)  # noqa: E731
        for number in range(count):
            chance = random.Random(f"{seed} {number}")
            heads = chance.sample(original.order, min(len(original.order), chance.choice((1, 1, 2, 4))))
            part = original.ancestors(heads)
            progress.step(f"part {number + 1} of {count}: {len(part)} revisions")
            folder = work.folder / f"part-{number}"
            with Part(original, connect, f"part-{number}", folder) as trial:
                try:
                    trial.push(_cut(chance, part))
                    trial.pull(_cut(chance, part))
                    found = list(trial.differences(part, chance))
                except WRONG as wrong:
                    found = [str(wrong)]
                problems += [f"part {number + 1}: {each}" for each in found]
                whole += not found
                tally.update(trial.tally)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(server.served / f"part-{number}", ignore_errors=True)
    report = Report(f"{count} random parts of {path.name}, of {len(original.order)} revisions, there and back", "")
    report.add("parts that came back whole", str(whole), bar=str(count), ok=whole == count)
    for what, number in tally.items():
        report.add(what, f"{number:,}")
    report.problems = problems
    report.finish()


def _cut(chance: random.Random, part: Sequence[RevisionId]) -> list[Sequence[RevisionId]]:
    """A part as it grows: each begins as the one before and goes on; the last is all of it."""
    ends = {chance.randint(1, len(part)) for _ in range(chance.randrange(STEPS))} | {len(part)}
    return [part[:end] for end in sorted(ends)]
