"""Network namespaces without names, so that nothing is left behind whatever happens to their processes. Linux only.

A namespace lives as long as a process is in it or a descriptor of it is open. An ordinary user makes them inside a user
namespace of his own, where the kernel allows that; only the process that made it, and its children, can enter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator

_NEW_NETWORK = 0x40000000
_NEW_USER = 0x10000000
_THIS_THREAD = "/proc/thread-self/ns/net"


class Namespace:
    """One network namespace."""

    def __init__(self) -> None:
        """Make a new one; the calling thread stays where it is.

        Raises:
            OSError: not allowed, or not on this system.
        """
        with _staying():
            _call("unshare", _NEW_NETWORK)
            self._descriptor = os.open(_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Its descriptor."""
        return self._descriptor

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is in it; sockets made meanwhile, and processes started, stay there.

        Raises:
            OSError: not allowed.
        """
        with _staying():
            _call("setns", self._descriptor, _NEW_NETWORK)
            yield

    def close(self) -> None:
        """Give it up; it goes with the last process or socket in it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def enter_user_namespace() -> None:
    """Move this process, which must have one thread, into a user namespace where it may make networks. It stays itself.

    Raises:
        OSError: the system does not allow it to ordinary users (or not in this container).
    """
    user, group = os.getuid(), os.getgid()
    _call("unshare", _NEW_USER | _NEW_NETWORK)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


@contextlib.contextmanager
def _staying() -> Iterator[None]:
    """Whatever happens inside, the thread is afterwards where it was."""
    home = os.open(_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            _call("setns", home, _NEW_NETWORK)
        finally:
            os.close(home)


def _call(name: str, *arguments: int) -> None:
    function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
