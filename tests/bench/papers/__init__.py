"""`bench papers`: what the Subversion performance documents of 2002 to 2014 measured, beside ours."""

from __future__ import annotations

import click

from bench.command import Commands

PARTS = {
    "matrix": "matrix", "runs": "runs", "io": "counts", "client": "profiles", "memcached": "memcached",
    "imports": "imports", "null": "null",
}  # fmt: skip
"""Each, and its module."""


@click.command(cls=Commands, modules={name: f"bench.papers.{module}" for name, module in PARTS.items()})
def command() -> None:
    """Measure what the Subversion performance documents did: doc/papers.md says what came of it.

    Repositories and results lie in a folder (--folder), and a part that is run again goes on where it stopped. PATH, a
    git repository or bundle, is the real history.

    \b
    bench papers matrix ~/src/project
    bench papers matrix --history wide --command export --scale 100
    """
