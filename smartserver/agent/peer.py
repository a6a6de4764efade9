"""Checks the process at the other end of an agent's socket.

A process of the same user may be confined: in a container, under a profile of AppArmor, or without capabilities. If it
reaches the socket, it can send messages like a command, or receive them in place of the agent. So each end reads the
rights of the other process in /proc (proc(5)), and expects the same rights as its own. It trusts nothing that the other
process says about itself.

The thin start of a command loads this module, like `address`. `thin.c` makes the same checks.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds 3 ms to each start.
import _socket
import errno
import os
import struct
from collections.abc import Callable, Mapping

from smartserver.agent.address import NoAgent, path_of

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")

OF_STATUS = (b"Uid:", b"Gid:", b"Groups:", b"Cap", b"NoNewPrivs:", b"Seccomp")
"""The lines of /proc/PROCESS/status with the credentials and capabilities of a process."""

LABELS = ("attr/current", "attr/apparmor/current")
"""The files with a process's labels from SELinux, AppArmor and similar systems."""

ABSENT = (errno.ENOENT, errno.EINVAL)
"""The errors of a read in /proc on a system that lacks a kind of namespace or of labels."""

CREDENTIALS = struct.Struct("3i")
"""The credentials of SO_PEERCRED (unix(7)): process, user and group."""

SO_PEERPIDFD = 77
"""The socket option for a pidfd of the process at the other end (Linux 6.5). `_socket` has no name for it."""

TIME_TO_ANSWER = 2.0
"""Seconds that an agent has to answer. After that time, a command continues without an agent."""


class Gone(NoAgent):
    """The process at the other end of a socket has ended."""


def connect(part: str, environment: Mapping[str, str], *, waits: bool = False, foreign: bool = False) -> _socket.socket:
    """Connect to a part of the agent; each message is one packet (SOCK_SEQPACKET). `waits`: wait for an agent that is
    loading, whose sockets were created by a command that has ended. `foreign`: accept an agent with other rights than
    this process, for messages that are no secret.

    Raises:
        Gone: the process that made the socket has ended, and no agent listens there yet.
    """
    path = path_of(part, environment)
    made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        made.settimeout(TIME_TO_ANSWER)
        made.connect(path)
        if foreign:
            check_user(made)
        else:
            _check_agent(made)
    except OSError as error:
        made.close()
        raise NoAgent(f"{path}: {error.strerror or error}") from None
    except Gone:
        if waits:
            _wait_until_refused(made)
        made.close()
        if not waits:
            raise
        return connect(part, environment)
    except NoAgent:
        made.close()
        raise
    return made


def _wait_until_refused(connection: _socket.socket) -> None:
    """Wait until an agent accepts connections. It also accepts this one, and closes it because it has no message."""
    try:
        connection.shutdown(_socket.SHUT_WR)
        connection.recv(1)
    except OSError:  # No agent did so in time.
        return


def check_user(connection: _socket.socket) -> int:
    """Check that the process at the other end runs as this user, and return its process id. That process opened the
    connection, or was listening when it was opened."""
    process, user, _ = CREDENTIALS.unpack(
        connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, CREDENTIALS.size)
    )
    if user != os.geteuid():
        raise NoAgent(f"expected a process of user {os.geteuid()} at the other end, got one of user {user}")
    return int(process)


def open_peer(connection: _socket.socket) -> int:
    """Open the folder in /proc of the process at the other end. Reads below the folder fail once the process has ended,
    even if another process has its id by then.

    Raises:
        Gone: the process has ended.
    """
    process = check_user(connection)
    if process == 0:
        raise NoAgent("the agent runs in another namespace")
    try:
        folder = open_process(str(process))
    except (FileNotFoundError, ProcessLookupError):
        raise Gone(f"the process at the other end, {process}, has ended") from None
    try:
        _check_number(connection)
    except OSError:
        os.close(folder)
        raise Gone(f"the process at the other end, which was {process}, has ended") from None
    return folder


def open_process(process: str) -> int:
    """Open the folder of a process in /proc."""
    return os.open(f"/proc/{process}", os.O_RDONLY | os.O_DIRECTORY)


def _check_number(connection: _socket.socket) -> None:
    """Check that the process at the other end still has its process id. Before Linux 6.5, nothing is checked."""
    try:
        process = connection.getsockopt(_socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT:
            return
        raise
    try:
        signal.pidfd_send_signal(process, 0)
    finally:
        os.close(process)


def _check_agent(connection: _socket.socket) -> None:
    """Check that the process at the other end runs this interpreter, and is confined like this process."""
    folder = open_peer(connection)
    try:
        here = open_process("self")
        try:
            program, expected = (os.stat("exe", dir_fd=each) for each in (folder, here))
            if not os.path.samestat(program, expected) or bounds(folder) != bounds(here):
                raise NoAgent("the agent runs with other rights than this process")
        finally:
            os.close(here)
    finally:
        os.close(folder)


def bounds(folder: int) -> bytes:
    """Return a text about the confinement of a process. The texts of two processes are equal if neither is confined, or
    both are confined in the same way. `folder`: the descriptor of the process's folder in /proc."""
    root = os.stat("root", dir_fd=folder)
    facts = [
        *[_if_there(_link, f"ns/{name}", folder) for name in NAMESPACES],
        b"%d:%d" % (root.st_dev, root.st_ino),
        *[_if_there(read, name, folder) for name in LABELS],
        *[line for line in read("status", folder).splitlines() if line.startswith(OF_STATUS)],
    ]
    return b"\n".join(facts)


def read(name: str, folder: int) -> bytes:
    """Return the content of a file below a folder."""
    with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
        return file.read()


def _link(name: str, folder: int) -> bytes:
    return os.fsencode(os.readlink(name, dir_fd=folder))


def _if_there(get: Callable[[str, int], bytes], name: str, folder: int) -> bytes:
    """Return the result of `get`; empty if the file does not exist on this system. If the process has ended, a later
    read of `bounds` fails."""
    try:
        return get(name, folder)
    except OSError as error:
        if error.errno not in ABSENT:
            raise
        return b""
