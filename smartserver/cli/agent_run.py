"""The agent, as `agent.start` begins it: two processes on sockets that listen already."""

from __future__ import annotations

import os
import signal
import socket
import sys

from smartserver.agent.keeper import Keeper


def main() -> None:
    """Be the keeper, with the zygote as a process below; the words are the numbers of their sockets, and of a lock."""
    keeper, zygote, lock = map(int, sys.argv[1:])
    for number in (keeper, zygote, lock):
        os.set_inheritable(number, False)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.chdir("/")
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        os.close(keeper)
        from smartserver.cli import zygote as loaded

        loaded.run(socket.socket(fileno=zygote), reading)
    else:
        os.close(reading)
        os.close(zygote)
        Keeper(socket.socket(fileno=keeper)).run()


if __name__ == "__main__":
    main()
