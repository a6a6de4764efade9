"""The program `smartserver`: a command that only reads from a server is run by the user's agent, any other here.

Python and all modules of such a command take longer to load than a near server takes to answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

READING = ("export", "ls", "cat", "log", "list", "stats")
"""Commands that ask for one answer and show it. None of them asks the user anything."""

SCHEMES = ("hpss://", "hpss+tls://")
"""Of URLs whose server needs no program that logs in."""

NAME = b"smartserver"
"""The first word of a command that is handed over; one of git's has no name."""


def main() -> None:
    """Run it."""
    words = sys.argv[1:]
    if is_for_agent(words):
        from smartserver.agent.address import is_wanted

        if is_wanted(os.environ):
            from smartserver.agent.thin import hand_over

            status = hand_over([NAME, *map(os.fsencode, words)], os.environb)
            if status is not None:
                os._exit(status)
    from smartserver.cli.main import main as run

    run()


def is_for_agent(words: Sequence[str]) -> bool:
    """Whether they are a command that the agent may run."""
    commands = [word for word in words if not word.startswith("-D")][:1]
    return commands[:1] != [] and commands[0] in READING and any(word.lower().startswith(SCHEMES) for word in words)


if __name__ == "__main__":
    main()
