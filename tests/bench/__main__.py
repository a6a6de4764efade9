"""`make bench`: the measurements."""

from __future__ import annotations

import os

from bench.command import command
from smartserver.cli.main import main

# It says where this package is, and is no user's: with it the start in C leaves each command to Python's.
os.environ.pop("PYTHONPATH", None)
main(command, "bench")
