"""The program of the agent, which `agent.start` runs: two processes on sockets that it inherits."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Collection

from smartserver.agent.address import KEEPER, path_of
from smartserver.agent.keeper import Keeper
from smartserver.agent.thin import SIGNALS
from smartserver.cli.streams import prepare_streams


def main() -> None:
    """Run the keeper, with the zygote as a child process. The arguments are the descriptors of their sockets and of a
    lock, and the path of the keeper's socket."""
    prepare_streams()
    keeper, zygote, lock = map(int, sys.argv[1:4])
    close_all_but((*range(3), keeper, zygote, lock))
    if sys.argv[4] != path_of(KEEPER, os.environ):
        sys.exit("another installation than that of the command")  # The command had a PYTHONPATH.
    for number in (keeper, zygote, lock):
        os.set_inheritable(number, False)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # The first command may have blocked or ignored signals.
    os.chdir("/")
    ours, theirs = socket.socketpair()  # Each process notices the end of the other.
    if os.fork() == 0:
        ours.close()
        os.close(keeper)
        os.close(lock)  # Workers may outlive the agent, and must not delay the next one.
        from smartserver.cli import zygote as loaded

        loaded.run(socket.socket(fileno=zygote), theirs.fileno())
    else:
        theirs.close()
        os.close(zygote)
        Keeper(socket.socket(fileno=keeper), zygote=ours).run()


def close_all_but(kept: Collection[int]) -> None:
    """Close all descriptors except `kept`, because those inherited from the command may hold a lock (`flock`) or keep a
    pipe open."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in kept:
            with contextlib.suppress(OSError):  # The descriptor of the listing itself is closed already.
                os.close(number)


if __name__ == "__main__":
    main()
