"""`make bench`: the measurements."""

from __future__ import annotations

from bench.command import command
from smartserver.cli.main import main

main(command, "bench")
