"""Who runs this, for messages and as the user of a server on standard input."""

from __future__ import annotations

import getpass
import os


def user() -> str:
    """The name of who runs this, else the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
