"""An agent of a test's own: where it listens, and no end of it without it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from smartserver.agent.address import NoAgent
from smartserver.agent.lending import ask
from smartserver.agent.messages import Stop, decode_count


@contextmanager
def of_its_own() -> Iterator[dict[str, str]]:
    """What is in the environment of its user. The folder's path is short: that of a socket must be."""
    folder = tempfile.mkdtemp(prefix="agent", dir="/tmp")
    environment = {"XDG_RUNTIME_DIR": folder, "SMARTSERVER_AGENT": "1"}
    try:
        yield environment
    finally:
        stop(environment)
        shutil.rmtree(folder)


def stop(environment: dict[str, str]) -> bool:
    """End one; whether there was one."""
    try:
        ask(Stop(), decode_count, environment)
    except NoAgent:
        return False
    return True
