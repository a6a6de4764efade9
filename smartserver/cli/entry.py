"""The program `smartserver`: a command that only reads from a server is run by the user's agent, any other here.

Python and all modules of such a command take longer to load than a near server takes to answer.
"""

from __future__ import annotations

import os
import sys

from smartserver.agent.reading import NAME, is_for_agent


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


if __name__ == "__main__":
    main()
