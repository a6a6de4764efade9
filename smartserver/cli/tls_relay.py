"""The program that holds a TLS connection for the agent (`client.media.tls_relay`)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from smartserver.client.media.tls import TlsMedium
from smartserver.client.media.tls_relay import CONNECTED, relay
from smartserver.client.medium import CannotConnect, MediumError
from smartserver.client.trust import Trust


def main() -> None:
    """Connect to the server of the arguments and relay bytes. The exit status is 1 if the connection cannot be opened,
    and 0 even if it breaks later."""
    for number in (signal.SIGINT, signal.SIGHUP):  # Later commands use it too, so ignore the first one's terminal.
        signal.signal(number, signal.SIG_IGN)
    host, port, fingerprint, ca = sys.argv[1:]
    try:
        server = TlsMedium(host, int(port), Trust(fingerprint, ca))
    except CannotConnect as error:
        print(error.why, file=sys.stderr)
        sys.exit(1)
    os.chdir("/")
    with contextlib.suppress(MediumError, OSError):  # The client notices that the stream ends.
        os.write(1, CONNECTED)
        relay(server, 0, 1)


if __name__ == "__main__":
    main()
