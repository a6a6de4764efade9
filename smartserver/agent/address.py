"""The addresses of a user's agent.

The thin start of a command (`agent.thin`) loads this module, so it uses `_socket`: `socket` would add 4 ms to each
start.
"""

from __future__ import annotations

import _socket
import os
import stat
import zlib
from collections.abc import Mapping

import smartserver

KEEPER, ZYGOTE = "keeper", "zygote"

FALSE = ("0", "false", "no", "off")

PRELOADED = ("LD_PRELOAD", "LD_AUDIT")
"""Variables that name libraries to preload (ld.so(8)), which may change how a program connects (`torsocks`)."""

BASES = (("XDG_RUNTIME_DIR", "smartserver"), ("HOME", ".cache/smartserver-agent"))
"""Variables that name a folder, and the name of the agent's folder in it. If neither folder belongs to the user, the
agent's folder is in /tmp, which all users share."""

MAX_PATH = 107
"""The most bytes of a socket's path (unix(7)), without the zero at its end."""


class NoAgent(Exception):
    """No agent can be used; the text gives the reason. Sending to an agent that has ended raises `OSError` instead."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Return True unless SMARTSERVER_AGENT turns the agent off, or a library is preloaded."""
    if any(environment.get(name) for name in PRELOADED):
        return False
    return environment.get("SMARTSERVER_AGENT", "").lower() not in FALSE


def runtime_folder(environment: Mapping[str, str], *, make: bool = False) -> str:
    """Return the folder of the sockets, below the first of `BASES` that belongs to the user. `make`: create the folder
    if it is missing."""
    user = os.geteuid()
    own = (f"{environment[name]}/{below}" for name, below in BASES if _is_of(environment.get(name, ""), user))
    folder = next(own, f"/tmp/smartserver-{user}")
    try:
        if make:
            for each in (os.path.dirname(folder), folder):
                if not os.path.lexists(each):
                    os.mkdir(each, 0o700)
        found = os.lstat(folder)
    except OSError as error:
        raise NoAgent(f"{folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        kind = "folder" if stat.S_ISDIR(found.st_mode) else "file"
        got = f"a {kind} of user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}"
        raise NoAgent(f"{folder}: expected a folder of user {user} that nobody else may enter, got {got}")
    return folder


def _is_of(folder: str, user: int) -> bool:
    """Return True if a folder belongs to a user. With `sudo`, a variable may name the folder of another user."""
    try:
        return os.path.isabs(folder) and os.stat(folder).st_uid == user
    except OSError:
        return False


def path_of(part: str, environment: Mapping[str, str], *, make: bool = False) -> str:
    """Return the path of a socket. Its name depends on the release, on the path and the modification time of the
    installation, on the network namespace and, because a home may be shared, on the machine. So a command finds only an
    agent that matches it in all of these."""
    if not hasattr(_socket, "SO_PEERCRED"):
        raise NoAgent("this system does not tell which user is at the other end of a socket")
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    try:
        installed = os.stat(smartserver.__file__).st_mtime_ns
    except OSError:  # It is being replaced.
        installed = 0
    facts = [smartserver.__version__, os.path.dirname(smartserver.__file__), installed, network, os.uname().nodename]
    name = zlib.crc32(os.fsencode("\n".join(map(str, facts))))
    path = f"{runtime_folder(environment, make=make)}/{name:08x}.{part}"
    if len(os.fsencode(path)) > MAX_PATH:
        raise NoAgent(f"{path}: expected a path of at most {MAX_PATH} bytes for a socket")
    return path
