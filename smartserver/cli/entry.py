"""The program `smartserver`. The user's agent runs commands that only read from a server; this process runs the others.

Loading Python and the modules of such a command takes longer than a near server takes to answer.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds 3 ms to each start.
import os
import sys

from smartserver.agent.reading import NAME, is_for_agent
from smartserver.cli.streams import prepare_streams


def main() -> None:
    """Run the command of this process's arguments, in the agent or here."""
    prepare_streams()
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # A shell ignores it for commands in the background.
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # During imports there is nothing to undo or to print.
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


if __name__ == "__main__":
    main()
