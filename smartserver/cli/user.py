"""The name of the user of this process, for messages and for a server on standard input (`serve --stdio`)."""

from __future__ import annotations

import getpass
import os


def user() -> str:
    """Return the name of the user who runs this process, or the user id if there is no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
