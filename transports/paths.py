"""Paths of a transport: relative, `/`-separated, UTF-8. One that cannot be one is a bug of the caller: `ValueError`."""

from __future__ import annotations


def check(path: str) -> str:
    """`path` itself, when it can be one; `''` is the place of the transport.

    Raises:
        ValueError: absolute, an empty, `.` or `..` part, a NUL, or not UTF-8.
    """
    if path:
        if "\0" in path:
            raise ValueError(f"path {path!r} holds a NUL")
        for part in path.split("/"):
            if part in ("", ".", ".."):
                raise ValueError(f"path {path!r} has the part {part!r}")
        path.encode()  # A lone surrogate is a UnicodeEncodeError, which is a ValueError.
    return path


def join(prefix: str, path: str) -> str:
    """`path` below `prefix`; either may be `''`.

    Raises:
        ValueError: `path` cannot be one.
    """
    check(path)
    if not prefix:
        return path
    return f"{prefix}/{path}" if path else prefix


def split(path: str) -> tuple[str, str]:
    """The folder a path lies in and its last part."""
    folder, _, name = path.rpartition("/")
    return folder, name
