"""Paths of a transport: relative, `/`-separated, UTF-8. An invalid path is a bug of the caller: `ValueError`."""

from __future__ import annotations


def check(path: str) -> str:
    """Return `path` if it is valid; `''` is the root of the transport.

    Raises:
        ValueError: the path is absolute, has an empty, `.` or `..` part or a NUL, or is not UTF-8.
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
    """Return `path` below `prefix`; either may be `''`.

    Raises:
        ValueError: `path` is invalid.
    """
    check(path)
    if not prefix:
        return path
    return f"{prefix}/{path}" if path else prefix


def split(path: str) -> tuple[str, str]:
    """Return the folder of a path, which may be `''`, and its last part."""
    folder, _, name = path.rpartition("/")
    return folder, name
