"""Namespaces without names, so that the kernel removes them however their processes end. Linux only.

A network namespace exists as long as a process is in it or a descriptor of it is open. An ordinary user makes it inside
a user namespace of his own, if the kernel permits that; only the process that made it, and its children, can enter it.
When the first process of a PID namespace ends, the kernel kills all others in it. A function raises `OSError` if the
system refuses.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Callable, Iterator

_NEW_MOUNTS, _NEW_USER, _NEW_PIDS, _NEW_NETWORK = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_THIS_THREAD = "/proc/thread-self/ns/net"
_RECURSIVE, _PRIVATE = 0x4000, 0x40000
_NO_SUID, _NO_DEVICES, _NO_EXECUTION = 2, 4, 8
_DIE_WITH_PARENT, _TIMER_SLACK = 1, 29


class Namespace:
    """One network namespace."""

    def __init__(self) -> None:
        """Create a new namespace. The calling thread stays in its own namespace."""
        with _staying():
            _call("a network namespace", "unshare", _NEW_NETWORK)
            self._descriptor = os.open(_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor of the namespace."""
        return self._descriptor

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the namespace with the calling thread. Sockets and processes that the thread creates meanwhile belong
        to the namespace."""
        with _staying():
            _call("entering a network namespace", "setns", self._descriptor, _NEW_NETWORK)
            yield

    def close(self) -> None:
        """Close the descriptor. The namespace ends with its last process or socket. Closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def become_owner() -> None:
    """Let this process, which must have one thread, create network namespaces. Put its children into a PID namespace.

    The first child is that namespace's first process: when it ends, the kernel kills all others, and no process can be
    started there any more. An ordinary user keeps his user id.
    """
    try:
        _call("namespaces", "unshare", _NEW_PIDS | _NEW_NETWORK)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
        user, group = os.getuid(), os.getgid()
        # All in one call: after a later call for the network namespace, this process could not return to the first one.
        _call("a user namespace (may users make one here?)", "unshare", _NEW_USER | _NEW_PIDS | _NEW_NETWORK)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def show_own_processes() -> None:
    """Mount a /proc for the PID namespace of this process, in which programs look up themselves and their parents.

    The kernel refuses that if a container hides parts of /proc. Then programs see the outer /proc.
    """
    with contextlib.suppress(OSError):
        _call("mounts", "unshare", _NEW_MOUNTS)
        _call("private mounts", "mount", b"none", b"/", None, _RECURSIVE | _PRIVATE, None)
        flags = _NO_SUID | _NO_DEVICES | _NO_EXECUTION
        _call("/proc", "mount", b"proc", b"/proc", b"proc", flags, None)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    _call("the end of the parent", "prctl", _DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def wake_up_in_time() -> None:
    """Let the kernel end this thread's sleeps within a microsecond. By default they may be 50 us longer."""
    _call("timer slack", "prctl", _TIMER_SLACK, 1, 0, 0, 0)


@contextlib.contextmanager
def _staying() -> Iterator[None]:
    """Return the thread to its network namespace at the end of the block, even after an error."""
    home = os.open(_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            _call("returning from a network namespace", "setns", home, _NEW_NETWORK)
        finally:
            os.close(home)


def _call(what: str, name: str, *arguments: int | bytes | None) -> None:
    function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
