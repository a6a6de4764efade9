"""The name of the user of this process, for messages and on standard input of a server."""

from __future__ import annotations

import getpass
import os


def user() -> str:
    """The name of who runs this, else the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
