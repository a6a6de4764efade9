"""Where a user's agent listens, and who may be at either end.

The thin start of a command loads this, and so it uses the sockets of `_socket`: `socket` would add 4 ms to each start.
"""

from __future__ import annotations

import _socket
import os
import stat
import struct
import zlib
from collections.abc import Mapping

import smartserver

KEEPER, ZYGOTE = "keeper", "zygote"

FALSE = ("0", "false", "no", "off")

PRELOADED = ("LD_PRELOAD", "LD_AUDIT")
"""Variables that name libraries for all that a program does (ld.so(8)), such as how it connects (`torsocks`)."""

CREDENTIALS = struct.Struct("3i")
"""As unix(7) has those of SO_PEERCRED: process, user and group."""

MAX_PATH = 107
"""Bytes of a socket's address, as unix(7) says, without the zero at its end."""

TIME_TO_ANSWER = 2.0
"""Seconds an agent has, before a command goes on without it."""


class NoAgent(Exception):
    """There is none to be used, and why."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether SMARTSERVER_AGENT leaves the agent on, and nothing changes what a connection is."""
    if any(environment.get(name) for name in PRELOADED):
        return False
    return environment.get("SMARTSERVER_AGENT", "").lower() not in FALSE


def runtime_folder(environment: Mapping[str, str], *, make: bool = False) -> str:
    """The folder of the sockets: in XDG_RUNTIME_DIR where that is the user's own, else in /tmp.

    Raises:
        NoAgent: there is none, or it is not the user's alone.
    """
    user = os.geteuid()
    base = environment.get("XDG_RUNTIME_DIR", "")
    folder = f"{base}/smartserver" if os.path.isabs(base) and _is_of(base, user) else f"/tmp/smartserver-{user}"
    try:
        if make and not os.path.lexists(folder):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
    except OSError as wrong:
        raise NoAgent(f"{folder}: {wrong.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        kind = "folder" if stat.S_ISDIR(found.st_mode) else "file"
        got = f"a {kind} of user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}"
        raise NoAgent(f"{folder}: expected a folder of user {user} that nobody else may enter, got {got}")
    return folder


def _is_of(folder: str, user: int) -> bool:
    """Whether a folder is a user's own: with `sudo` the variable may name another's."""
    try:
        return os.lstat(folder).st_uid == user
    except OSError:
        return False


def path_of(part: str, environment: Mapping[str, str], *, make: bool = False) -> str:
    """The path of a socket. Its name tells agents apart that must not serve each other's commands: of another release,
    another installation (also one that replaced the first in its folder), and another network namespace.

    Raises:
        NoAgent: as `runtime_folder`, the path is too long for a socket, or this system does not say who is at the other
            end of one.
    """
    if not hasattr(_socket, "SO_PEERCRED"):
        raise NoAgent("this system does not say who is at the other end of a socket")
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    try:
        installed = os.stat(smartserver.__file__).st_mtime_ns
    except OSError:  # It is being replaced.
        installed = 0
    facts = f"{smartserver.__version__}\n{os.path.dirname(smartserver.__file__)}\n{installed}\n{network}"
    path = f"{runtime_folder(environment, make=make)}/{zlib.crc32(os.fsencode(facts)):08x}.{part}"
    if len(os.fsencode(path)) > MAX_PATH:
        raise NoAgent(f"{path}: expected a path of at most {MAX_PATH} bytes for a socket")
    return path


def connect(part: str, environment: Mapping[str, str]) -> _socket.socket:
    """A connection to a part of the agent; each message is one packet (SOCK_SEQPACKET).

    Raises:
        NoAgent: as `path_of`, nobody listens, or somebody else does.
    """
    path = path_of(part, environment)
    made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        made.settimeout(TIME_TO_ANSWER)
        made.connect(path)
        check_peer(made)
    except OSError as wrong:
        made.close()
        raise NoAgent(f"{path}: {wrong.strerror or wrong}") from None
    except NoAgent:
        made.close()
        raise
    return made


def check_peer(connection: _socket.socket) -> None:
    """Accept a peer that is a process of this user.

    Raises:
        NoAgent: it is another's.
    """
    _, user, _ = CREDENTIALS.unpack(connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, CREDENTIALS.size))
    if user != os.geteuid():
        raise NoAgent(f"expected a process of user {os.geteuid()} at the other end, got one of user {user}")
